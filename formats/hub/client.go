package hub

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nstf/nstf/formats"
)

// DefaultEndpoint is Hugging Face's own hub.
const DefaultEndpoint = "https://huggingface.co"

// A Client speaks to one hub. Its methods may be called from several goroutines.
type Client struct {
	Endpoint string // "https://host", without a slash at the end
	Token    string // sent to Endpoint's host alone; "" for none
	Agent    string // User-Agent
	Cache    Cache
	Offline  bool // ask nobody: what is in the cache has to do
	Parallel int  // connections at once; 0: 8

	Progress func(done, total int64) // bytes of a Pull, nil for none; not called by two goroutines at once
	Note     func(line string)       // what a user should know while it goes on; nil for none

	once sync.Once
	http *http.Client
	slow *http.Client // of uploads, whose answers take the time to store them
	base *url.URL
	err  error

	// Waits of tests are shorter, and so is what is asked for at once.
	pause func(ctx context.Context, d time.Duration) error
	bytes int64
}

// An Error says what a hub refused, or that it could not be asked.
type Error struct {
	What    string // the reference or file
	Reason  string
	Hint    string // what the user can do, or ""
	Missing bool   // there is no such thing, or not for this user
	Err     error
}

// Error implements error.
func (e *Error) Error() string {
	s := formats.Printable(formats.Brief(e.What, 300)) + ": " + formats.Printable(formats.Brief(e.Reason, 500))
	if e.Err != nil {
		s += ": " + formats.Printable(formats.Brief(e.Err.Error(), 500))
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

const (
	defaultParallel = 8
	maxAnswer       = 64 << 20         // bytes of JSON that describe a repository
	maxFiles        = 200_000          // of a repository
	maxSize         = 1 << 44          // bytes of one file: that of so many fits 63 bits
	maxTries        = 6                // without a byte of progress
	longestWait     = 5 * time.Minute  // that a hub may ask for
	stall           = 60 * time.Second // without a byte
)

func (c *Client) prepare() error {
	c.once.Do(func() {
		c.base, c.err = url.Parse(c.Endpoint)
		if c.err == nil && (c.base.Scheme != "https" && c.base.Scheme != "http" || c.base.Host == "" || c.base.RawQuery != "") {
			c.err = errors.New("not the address of a server")
		}
		if c.err != nil {
			c.err = &Error{What: "HF_ENDPOINT " + c.Endpoint, Reason: "is wrong", Err: c.err}
			return
		}
		if c.pause == nil {
			c.pause = pause
		}
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.DialContext = (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext
		t.ResponseHeaderTimeout = 30 * time.Second
		t.MaxIdleConnsPerHost = c.parallel()
		t.DisableCompression = true // ranges are of bytes as they are
		// One connection each: servers bound what one of them gets.
		t.ForceAttemptHTTP2, t.TLSNextProto = false, map[string]func(string, *tls.Conn) http.RoundTripper{}
		c.http = &http.Client{Transport: t, CheckRedirect: c.redirect}
		t = t.Clone()
		t.ResponseHeaderTimeout = longestWait
		c.slow = &http.Client{Transport: t, CheckRedirect: c.redirect}
	})
	return c.err
}

func (c *Client) parallel() int { return cmp.Or(c.Parallel, defaultParallel) }

func (c *Client) chunk() int64 { return cmp.Or(c.bytes, defaultChunk) }

func (c *Client) note(format string, args ...any) {
	if c.Note != nil {
		c.Note(fmt.Sprintf(format, args...))
	}
}

// redirect lets a token go to no other host: net/http would send it to hosts below the
// hub's own, where storage lies.
func (c *Client) redirect(r *http.Request, via []*http.Request) error {
	switch {
	case len(via) >= 10:
		return errors.New("ten redirects")
	case via[0].URL.Scheme == "https" && r.URL.Scheme != "https":
		return fmt.Errorf("redirected from https to %s", r.URL.Scheme)
	}
	if r.URL.Host != c.base.Host || r.URL.Scheme != c.base.Scheme {
		r.Header.Del("Authorization")
	}
	r.Header.Del("Referer")
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

// get asks for bytes of an address; first is -1 for all of them. The body is the
// caller's to close; it ends with an error where no byte comes for a while.
func (c *Client) get(ctx context.Context, addr string, first, last int64) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, addr, nil)
	if err != nil {
		cancel(nil)
		return nil, hostAlone(err)
	}
	r.Header.Set("User-Agent", cmp.Or(c.Agent, "nstf"))
	if first >= 0 {
		r.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", first, last))
	}
	if c.Token != "" && r.URL.Host == c.base.Host && r.URL.Scheme == c.base.Scheme {
		r.Header.Set("Authorization", "Bearer "+c.Token)
	}
	resp, err := c.http.Do(r)
	if err != nil {
		cancel(nil)
		if cause := context.Cause(ctx); cause != nil && errors.Is(err, context.Canceled) {
			return nil, cause
		}
		return nil, hostAlone(err)
	}
	resp.Body = &watched{ReadCloser: resp.Body, cancel: cancel, timer: time.AfterFunc(stall, func() { cancel(errStalled) }), ctx: ctx}
	return resp, nil
}

// hostAlone leaves of the address in an error the host: addresses of the storage are
// signed, and whoever has one may use it.
func hostAlone(err error) error {
	var e *url.Error
	if errors.As(err, &e) {
		u, perr := url.Parse(e.URL)
		if e.URL = ""; perr == nil {
			e.URL = u.Scheme + "://" + u.Host
		}
	}
	return err
}

var errStalled = fmt.Errorf("no byte came for %v", stall)

// A watched body is given up where nothing comes.
type watched struct {
	io.ReadCloser
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
}

// Read implements io.Reader.
func (w *watched) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	if n > 0 {
		w.timer.Reset(stall)
	}
	if err != nil && errors.Is(err, context.Canceled) {
		err = context.Cause(w.ctx)
	}
	return n, err
}

// Close implements io.Closer.
func (w *watched) Close() error {
	w.timer.Stop()
	err := w.ReadCloser.Close()
	w.cancel(nil)
	return err
}

// A refusal is a status that is no success.
type refusal struct {
	status int
	code   string // X-Error-Code
	reason string // X-Error-Message
	after  time.Duration
	hub    bool // itself refused, and not the storage that it sent us to
}

// Error implements error.
func (e *refusal) Error() string {
	s := fmt.Sprintf("status %d", e.status)
	if e.reason != "" {
		s += ", " + e.reason
	}
	return s
}

// refused reads what a status other than success means, and closes the body.
func (c *Client) refused(resp *http.Response) *refusal {
	resp.Body.Close()
	e := &refusal{status: resp.StatusCode, code: resp.Header.Get("X-Error-Code"), reason: formats.Brief(resp.Header.Get("X-Error-Message"), 300), hub: resp.Request.URL.Host == c.base.Host}
	if s := resp.Header.Get("Retry-After"); s != "" {
		if n, err := strconv.Atoi(s); err == nil && n >= 0 {
			e.after = time.Duration(min(n, 1<<20)) * time.Second
		} else if at, err := http.ParseTime(s); err == nil {
			e.after = max(time.Until(at), 0)
		}
	}
	return e
}

// passing reports whether the same question may be answered a little later.
func passing(err error) bool {
	var e *refusal
	if errors.As(err, &e) {
		switch e.status {
		case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
			return true
		}
		return !e.hub // an address of the storage is good for a while
	}
	var n net.Error
	return errors.As(err, &n) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) || errors.Is(err, errStalled)
}

// final reports whether the same question is refused for good.
func final(err error) bool {
	var e *refusal
	return errors.As(err, &e) && e.status/100 == 4 && e.status != http.StatusRequestTimeout && e.status != http.StatusTooManyRequests
}

// again calls try until it succeeds, fails for good, or has failed often without getting
// further, which it reports.
func (c *Client) again(ctx context.Context, what string, try func() (further bool, err error)) error {
	for failed := 0; ; {
		further, err := try()
		if err == nil {
			return nil
		}
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		if further {
			failed = 0
		}
		if failed++; failed >= maxTries || !passing(err) {
			return err
		}
		wait := 500 * time.Millisecond << (failed - 1)
		var e *refusal
		if errors.As(err, &e) && e.after > 0 {
			if e.after > longestWait {
				return err
			}
			wait = e.after
			c.note("%s: the hub asks to wait %v", formats.Brief(what, 200), wait)
		}
		if err := c.pause(ctx, wait); err != nil {
			return err
		}
	}
}

// explain says what a failure of the hub means to a user.
func (c *Client) explain(r Ref, what string, err error) error {
	var e *refusal
	if !errors.As(err, &e) {
		var known *Error
		if errors.As(err, &known) || errors.Is(err, context.Canceled) {
			return err
		}
		var n net.Error
		if errors.As(err, &n) {
			return &Error{What: what, Reason: "the hub " + c.base.Host + " cannot be reached", Err: err,
				Hint: "HF_ENDPOINT names a mirror; with HF_HUB_OFFLINE=1 the cache alone is asked"}
		}
		return &Error{What: what, Reason: "download failed", Err: err}
	}
	token := "set HF_TOKEN, or write the token by hf auth login"
	if c.Token != "" {
		token = "the token that is set has no access"
	}
	switch {
	case e.code == "GatedRepo":
		return &Error{What: what, Reason: "its owner asks for consent first", Missing: true,
			Hint: "accept at " + c.Endpoint + "/" + r.Repo + ", and " + strings.Replace(token, "has no access", "must be of the account that accepted", 1)}
	case e.code == "RevisionNotFound":
		return &Error{What: what, Reason: fmt.Sprintf("there is no revision %q", r.Revision), Missing: true}
	case e.code == "EntryNotFound":
		return &Error{What: what, Reason: "there is no such file", Missing: true}
	case e.code == "RepoNotFound", e.status == http.StatusNotFound, e.status == http.StatusUnauthorized:
		return &Error{What: what, Reason: "there is no such model on " + c.base.Host + ", or it is private", Missing: true,
			Hint: "look at " + c.Endpoint + "/" + r.Repo + "; for a private one " + token}
	case e.status == http.StatusForbidden:
		return &Error{What: what, Reason: "access is forbidden", Missing: true, Hint: token, Err: e}
	case e.status == http.StatusTooManyRequests:
		return &Error{What: what, Reason: "the hub asks for fewer requests", Hint: "try again later; with a token the limit is higher", Err: e}
	}
	return &Error{What: what, Reason: "the hub failed", Err: e}
}

// ask reads JSON from the hub; next is the address of the next page, or "".
func (c *Client) ask(ctx context.Context, addr string, v any) (next string, err error) {
	err = c.again(ctx, addr, func() (bool, error) {
		resp, err := c.get(ctx, addr, -1, 0)
		if err != nil {
			return false, err
		}
		if resp.StatusCode != http.StatusOK {
			return false, c.refused(resp)
		}
		defer resp.Body.Close()
		p, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
		if err != nil {
			return false, err
		}
		if len(p) > maxAnswer {
			return false, formats.Errorf(addr, "", "an answer of more than %d bytes", maxAnswer)
		}
		if err := json.Unmarshal(p, v); err != nil {
			return false, formats.Errorf(addr, "", "not the answer of a hub: %v", err)
		}
		next = nextPage(resp.Header.Get("Link"))
		return false, nil
	})
	if err != nil || next == "" {
		return "", err
	}
	u, err := c.base.Parse(next)
	if err != nil || u.Host != c.base.Host || u.Scheme != c.base.Scheme {
		return "", formats.Errorf(addr, "", "the next page is at another host")
	}
	return u.String(), nil
}

// nextPage finds the address of rel="next" in a Link header (RFC 8288).
func nextPage(link string) string {
	for _, l := range strings.Split(link, ",") {
		addr, attributes, _ := strings.Cut(l, ";")
		if strings.Contains(attributes, `rel="next"`) {
			return strings.Trim(strings.TrimSpace(addr), "<>")
		}
	}
	return ""
}

// A Snapshot is the files of one commit that make a model.
type Snapshot struct {
	Ref
	Commit string
	Files  []File
	open   string // of Files, "" for the folder
	cache  Cache
}

// Path is what opens the model once it was pulled: a folder, or the first of its files.
func (s *Snapshot) Path() string { return s.cache.file(s.Repo, s.Commit, s.open) }

// Bytes returns what the files take.
func (s *Snapshot) Bytes() (n int64) {
	for _, f := range s.Files {
		n += f.Size
	}
	return n
}

// Missing returns the files that the cache has not.
func (s *Snapshot) Missing() (files []File) {
	for _, f := range s.Files {
		if !s.cache.has(s.Repo, s.Commit, f) {
			files = append(files, f)
		}
	}
	return files
}

// Open asks the hub which files make the model. Offline, or where the hub cannot be
// reached and the cache has the revision, the cache answers.
func (c *Client) Open(ctx context.Context, r Ref) (*Snapshot, error) {
	if c.Offline {
		return c.cached(r)
	}
	if err := c.prepare(); err != nil {
		return nil, err
	}
	s, err := c.open(ctx, r)
	var n net.Error
	if err != nil && errors.As(err, &n) && context.Cause(ctx) == nil {
		if old, cerr := c.cached(r); cerr == nil {
			c.note("%s: %s cannot be reached; the cache's commit %s is used", r, c.base.Host, old.Commit[:12])
			return old, nil
		}
	}
	return s, err
}

func (c *Client) open(ctx context.Context, r Ref) (*Snapshot, error) {
	model := c.Endpoint + "/api/models/" + r.Repo
	var info struct {
		SHA string `json:"sha"`
	}
	if _, err := c.ask(ctx, model+"/revision/"+url.PathEscape(r.Revision), &info); err != nil {
		return nil, c.explain(r, r.String(), err)
	}
	if !commit.MatchString(info.SHA) {
		return nil, formats.Errorf(r.String(), "", "the hub names %q as its commit", formats.Brief(info.SHA, 100))
	}
	var all []File
	for next := model + "/tree/" + info.SHA + "?recursive=true"; next != ""; {
		var page []struct {
			Type, Path, OID string
			Size            int64
			LFS             *struct {
				OID  string
				Size int64
			}
		}
		var err error
		if next, err = c.ask(ctx, next, &page); err != nil {
			return nil, c.explain(r, r.String(), err)
		}
		for _, e := range page {
			if e.Type != "file" {
				continue
			}
			f := File{Path: e.Path, Size: e.Size, Etag: e.OID}
			if e.LFS != nil {
				f.Size, f.Etag = e.LFS.Size, e.LFS.OID
			}
			if err := checkPath(f.Path); err != nil {
				return nil, formats.Errorf(r.String(), "", "the hub names a file wrongly: %v", err)
			}
			if f.Size < 0 || f.Size > maxSize || !isEtag(f.Etag) {
				return nil, formats.Errorf(r.String(), f.Path, "the hub says %d bytes with the hash %q", f.Size, formats.Brief(f.Etag, 100))
			}
			all = append(all, f)
		}
		if len(all) > maxFiles {
			return nil, formats.Errorf(r.String(), "", "more than %d files", maxFiles)
		}
	}
	s := &Snapshot{Ref: r, Commit: info.SHA, cache: c.Cache}
	var err error
	s.Files, s.open, err = choose(r, all)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// isEtag reports whether s is a hash in hexadecimal: SHA-1 or SHA-256.
func isEtag(s string) bool {
	return (len(s) == 40 || len(s) == 64) && strings.Trim(s, "0123456789abcdef") == ""
}

// cached finds a model in the cache alone.
func (c *Client) cached(r Ref) (*Snapshot, error) {
	at := c.Cache.commit(r)
	files, err := c.Cache.files(r.Repo, at)
	if at == "" || err != nil || len(files) == 0 {
		absent := c.Cache.absent(r)
		absent.Hint += "; HF_HUB_OFFLINE and TRANSFORMERS_OFFLINE forbid to ask the hub"
		return nil, absent
	}
	s := &Snapshot{Ref: r, Commit: at, cache: c.Cache}
	s.Files, s.open, err = choose(r, files)
	return s, err
}
