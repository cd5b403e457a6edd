package work

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/atomicfile"
)

// A Bucket is a place in an object store that has S3's interface with conditional writes
// (If-None-Match and If-Match of PutObject, which AWS has since November 2024).
type Bucket struct {
	Name     string
	Prefix   string                   // what keys begin with, without a slash at the end; never ""
	Endpoint string                   // "https://host:port"; "": AWS
	Region   string                   // "": what the store says
	Key      *credentials.Credentials // whose requests these are
	Agent    [2]string                // name and version, for the store's log
	Note     func(line string)        // told when the store is waited for; nil: nobody
}

// ParseBucket reads "s3://bucket/prefix".
func ParseBucket(address string) (*Bucket, error) {
	rest, ok := strings.CutPrefix(address, "s3://")
	name, prefix, _ := strings.Cut(rest, "/")
	prefix = strings.Trim(prefix, "/")
	switch {
	case !ok || !bucketName.MatchString(name):
		return nil, fmt.Errorf("%q is not s3://BUCKET/PREFIX", formats.Brief(address, 200))
	case prefix == "":
		return nil, fmt.Errorf("%s has no prefix: s3://%s/PREFIX keeps what lies beside it safe", formats.Brief(address, 200), name)
	case !prefixName.MatchString(prefix) || strings.Contains(prefix, "//") || strings.Contains("/"+prefix+"/", "/./") || strings.Contains("/"+prefix+"/", "/../"):
		return nil, fmt.Errorf("%q: a prefix has letters, digits and -_.=/ alone", formats.Brief(address, 200))
	}
	return &Bucket{Name: name, Prefix: prefix}, nil
}

var (
	bucketName = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)
	prefixName = regexp.MustCompile(`^[A-Za-z0-9_.=/-]{1,500}$`)
)

// String returns how the place is written.
func (b *Bucket) String() string { return "s3://" + b.Name + "/" + b.Prefix }

// A StoreError says what an object store refused, or that it could not be asked.
type StoreError struct {
	Place   string // "s3://bucket/prefix", and the object
	Reason  string
	Hint    string // what the user can do, or ""
	Missing bool   // there is no such bucket, or not for this user
}

// Error implements error.
func (e *StoreError) Error() string {
	return formats.Printable(formats.Brief(e.Place, 300)) + ": " + formats.Printable(formats.Brief(e.Reason, 500))
}

// client returns a client of the store.
func (b *Bucket) client(key *credentials.Credentials) (*minio.Core, error) {
	u, err := url.Parse(cmp.Or(b.Endpoint, "https://s3.amazonaws.com"))
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return nil, &StoreError{Place: b.String(), Reason: "the endpoint is not https://HOST"} // its text may hold a password
	case u.User != nil || u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "":
		return nil, &StoreError{Place: b.String(), Reason: "the endpoint has more than https://HOST"}
	}
	c, err := minio.NewCore(u.Host, &minio.Options{Creds: key, Secure: u.Scheme == "https", Region: b.Region})
	if err != nil {
		return nil, &StoreError{Place: b.String(), Reason: err.Error()}
	}
	if b.Agent[0] != "" {
		c.SetAppInfo(b.Agent[0], b.Agent[1])
	}
	return c, nil
}

// open implements [Place].
func (b *Bucket) open(ctx context.Context) (_ store, err error) {
	o := &objects{Bucket: b, copies: map[string]string{}, patience: firstPatience, stall: soon}
	key := credentials.New(signing{b.Key})
	if o.s3, err = b.client(key); err != nil {
		return nil, err
	}
	if err := o.signs(ctx, key); err != nil {
		return nil, err
	}
	if err := o.probe(ctx); err != nil {
		return nil, err
	}
	if o.temp, err = atomicfile.NewTemp(tempKind); err != nil {
		return nil, err
	}
	o.patience = laterPatience
	return o, nil
}

// tempKind is what folders for copies begin with.
const tempKind = "nstf-work-"

// signs gets a first key, so that one that is not to be had is said at once.
func (o *objects) signs(ctx context.Context, key *credentials.Credentials) error {
	asking, cancel := context.WithTimeout(ctx, firstPatience)
	defer cancel()
	how := o.s3.CredContext()
	how.Context = asking
	_, err := key.GetWithContext(how)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return &StoreError{Place: o.String(), Reason: "there are no credentials to write with: " + reason(errors.Unwrap(err)),
			Hint: "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or give the machine a role"}
	}
	return nil
}

// signing gives a key or an error: an empty one would have requests go out unsigned.
type signing struct{ *credentials.Credentials }

// A keyError says that there is no key just now.
type keyError struct{ error }

func (e keyError) Unwrap() error { return e.error }

// RetrieveWithCredContext implements credentials.Provider.
func (s signing) RetrieveWithCredContext(how *credentials.CredContext) (credentials.Value, error) {
	key, err := s.GetWithContext(how)
	if err == nil && (key.AccessKeyID == "" || key.SecretAccessKey == "") {
		err = errors.New("the key is empty")
	}
	if err != nil {
		return credentials.Value{}, keyError{err}
	}
	return key, nil
}

// Retrieve implements credentials.Provider.
func (s signing) Retrieve() (credentials.Value, error) { return s.RetrieveWithCredContext(nil) }

// probe finds out whether the store keeps to conditions, without which two processes would
// have the same lease. An object that does not behave may have been swept away by a process that
// gathers, as what a killed one left: another is tried.
func (o *objects) probe(ctx context.Context) (err error) {
	for range 3 {
		err = o.probeOne(ctx, fmt.Sprintf("probe%s%016x", halfWritten, rand.Uint64()))
		if _, refused := errors.AsType[*formats.UnsupportedError](err); !refused {
			break
		}
	}
	return err
}

func (o *objects) probeOne(ctx context.Context, name string) (err error) {
	nobody, text := mark{free: true}, func() string { return fmt.Sprintf("%016x", rand.Uint64()) }
	first, err := o.put(ctx, name, nobody, text())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.remove(ctx, name)) }()
	second, err := o.put(ctx, name, first, text())
	if errors.Is(err, errLost) {
		return o.refused("its own PUT with If-Match is refused")
	}
	if err != nil {
		return err
	}
	for what, seen := range map[string]mark{"If-None-Match: *": nobody, "If-Match": first} {
		if _, err := o.put(ctx, name, seen, text()); err == nil {
			return o.refused("a PUT that " + what + " forbids goes through")
		} else if !errors.Is(err, errLost) {
			return err
		}
	}
	is, err := o.look(ctx, name)
	if err == nil && is.stamp != second.stamp {
		err = o.refused("what was written is not read back")
	}
	return err
}

// refused says that leases cannot be had of a store.
func (o *objects) refused(why string) error {
	e := formats.Unsupportedf(o.String(), "", "leases in the object store at %s: %s", formats.Brief(cmp.Or(o.Endpoint, "AWS"), 200), why)
	e.Hint = "take a store with conditional writes, or a folder that all machines see"
	return e
}

// For so long a store may be overloaded or out of reach, at first, when an address may be
// wrong, and later.
const (
	firstPatience = 20 * time.Second
	laterPatience = 10 * time.Minute
)

// asked has the store do something, again while it is overloaded or out of reach: as long as its
// patience, from the first failure on, and anew a few times after what took longer than that,
// as of a large transfer.
func (o *objects) asked(ctx context.Context, name string, do func() error) error {
	const first = 250 * time.Millisecond
	began, said, long := time.Now(), false, 0
	var failing time.Time
	for wait := first; ; wait = min(2*wait, 15*time.Second) {
		tried := time.Now()
		err := do()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		known := o.known(name, err)
		if known != nil {
			return known
		}
		switch now := time.Now(); {
		case failing.IsZero():
			failing = now
		case now.Sub(tried) > o.patience && long < 3:
			failing, wait, long = now, first, long+1
		case now.Sub(failing) > o.patience:
			return &StoreError{Place: o.String() + "/" + name, Reason: "the store cannot be reached: " + reason(err)}
		}
		if !said && o.Note != nil && time.Since(began) > 5*time.Second {
			o.Note(o.String() + ": waiting for the store: " + formats.Printable(formats.Brief(reason(err), 300)))
			said = true
		}
		if err := pause(ctx, time.Duration((0.5+rand.Float64()/2)*float64(wait))); err != nil {
			return err
		}
	}
}

// known returns what an error says for good, nil for what may pass.
func (o *objects) known(name string, err error) error {
	e, ok := errors.AsType[minio.ErrorResponse](err)
	said := &StoreError{Place: o.String() + "/" + name, Reason: reason(err)}
	switch {
	case errors.Is(err, errLost):
		return err
	case !ok && refreshing(err):
		return nil
	case !ok && ofDisk(err): // the system's numbers look like a network's errors
		return fmt.Errorf("%s/%s: %w", o, name, err)
	case !ok && (strings.Contains(err.Error(), "x509:") || strings.Contains(err.Error(), "server gave HTTP response to HTTPS client")):
		said.Hint = "SSL_CERT_FILE names further certificates to trust; a store without TLS is named by AWS_ENDPOINT_URL=http://HOST"
	case !ok && passing(err):
		return nil
	case !ok:
		return fmt.Errorf("%s/%s: %w", o, name, err)
	case e.Code == minio.NoSuchBucket:
		said.Missing, said.Hint = true, "make the bucket, or look at its name and region (AWS_REGION)"
	case e.StatusCode == 412, e.StatusCode == 409:
		return errLost
	case e.StatusCode == 404 || e.Code == minio.NoSuchKey:
		return fs.ErrNotExist
	case e.StatusCode == 403, e.StatusCode == 401:
		said.Missing = true
		said.Hint = "the key must be valid and may list the prefix, and get, put and delete objects there"
	case e.StatusCode == 501:
		return o.refused("it does not implement " + cmp.Or(e.Message, "what it is asked for"))
	case e.StatusCode == 429, e.StatusCode == 408, e.StatusCode >= 500, e.Code == "SlowDown":
		return nil
	}
	return said
}

// A cutError is of a connection that ended before all had come.
type cutError struct{ error }

func (e cutError) Unwrap() error { return e.error }

// refreshing reports whether there is no key just now.
func refreshing(err error) bool {
	_, ok := errors.AsType[keyError](err)
	return ok
}

// ofDisk reports whether an error is of a file of this machine.
func ofDisk(err error) bool {
	_, path := errors.AsType[*fs.PathError](err)
	_, full := errors.AsType[*atomicfile.DiskFullError](err)
	return path || full
}

// passing reports whether an error is of the network.
func passing(err error) bool {
	var network net.Error
	var request *url.Error
	var body cutError
	return errors.As(err, &network) || errors.As(err, &request) || errors.As(err, &body) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// reason says in words what went wrong. Of an address the host alone stays.
func reason(err error) string {
	if e, ok := errors.AsType[keyError](err); ok {
		return "no key to sign with: " + reason(e.error)
	}
	if e, ok := errors.AsType[minio.ErrorResponse](err); ok {
		return fmt.Sprintf("%s (%s, %d)", strings.TrimSuffix(cmp.Or(e.Message, "refused"), "."), e.Code, e.StatusCode)
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		if u, perr := url.Parse(e.URL); perr == nil {
			return fmt.Sprintf("%s: %v", u.Host, e.Err)
		}
		return e.Err.Error()
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return "the connection was cut"
	}
	return err.Error()
}
