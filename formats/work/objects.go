package work

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/nstf/nstf/formats/atomicfile"
)

// objects are a store in a bucket: an entry is an object, which a PUT, or the end of an
// upload in parts, lets appear whole, and a claim one that is overwritten on the condition
// that it still is what was seen (If-None-Match, If-Match), so that one process has it, and
// who lost it cannot renew it. Conditions are for claims alone: whoever makes an entry makes
// the same bytes, and one that is damaged has to be replaced.
//
// What is read is copied to this machine and mapped there.
type objects struct {
	*Bucket
	s3     *minio.Core
	temp   *atomicfile.Temp  // of copies
	copies map[string]string // ETags of what was copied, by name

	patience time.Duration // for how long the store may be overloaded or out of reach
	stall    time.Duration // for how long nothing of a download may come
}

func (o *objects) key(name string) string { return o.Prefix + "/" + name }

func (o *objects) copy(name string) string { return filepath.Join(o.temp.Path(), name) }

// soon is what a small request may take.
const soon = time.Minute

func (o *objects) soon() time.Duration { return min(soon, o.patience) }

// least is the least mean rate of a transfer, in bytes a second: one that is slower is begun
// anew, or gone on with.
const least = 64 << 10

// A pulse is of a transfer, whose context ends when nothing moves for a while: a connection may
// be dead without a word.
type pulse struct {
	context.Context
	end  context.CancelCauseFunc
	stop func()
	last *time.Timer
	rest time.Duration
}

var errStalled = errors.New("nothing moved any more")

// transfer begins one of so many bytes.
func transfer(ctx context.Context, size int64, rest time.Duration) *pulse {
	ctx, stop := context.WithTimeout(ctx, soon+time.Duration(size/least)*time.Second)
	ctx, end := context.WithCancelCause(ctx)
	return &pulse{ctx, end, stop, time.AfterFunc(rest, func() { end(errStalled) }), rest}
}

// Write implements io.Writer, for what comes.
func (p *pulse) Write(b []byte) (int, error) { return p.Read(b) }

// Read implements io.Reader, as minio tells of what goes.
func (p *pulse) Read(b []byte) (int, error) {
	p.last.Reset(p.rest)
	return len(b), nil
}

// over ends a transfer and returns its error, which passes where nothing moved.
func (p *pulse) over(err error) error {
	if err != nil && errors.Is(context.Cause(p), errStalled) {
		err = cutError{errStalled}
	}
	p.last.Stop()
	p.end(nil)
	p.stop()
	return err
}

// list passes over what no process of ours can have written: a name becomes that of a file of
// this machine.
func (o *objects) list(ctx context.Context) (out []string, err error) {
	err = o.asked(ctx, "", func() error {
		ctx, cancel := context.WithTimeout(ctx, 5*soon)
		defer cancel()
		out = nil
		for x := range o.s3.Client.ListObjects(ctx, o.Name, minio.ListObjectsOptions{Prefix: o.Prefix + "/", Recursive: true}) {
			if x.Err != nil {
				return x.Err
			}
			if name, ok := o.name(x.Key); ok {
				out = append(out, name)
			}
		}
		return ctx.Err()
	})
	if err != nil {
		return nil, err
	}
	there := map[string]bool{}
	for _, name := range out {
		there[name] = true
	}
	for name := range o.copies {
		if !there[name] {
			o.forget(name)
		}
	}
	return out, nil
}

// name returns the name of what lies under a key, if it is one that a file can have.
func (o *objects) name(key string) (string, bool) {
	name, ok := strings.CutPrefix(key, o.Prefix+"/")
	return name, ok && name != "." && filepath.IsLocal(name) && !strings.ContainsAny(name, `/\`)
}

// forget removes a copy. Where it is open it goes when that ends, or with the folder.
func (o *objects) forget(name string) {
	if _, ok := o.copies[name]; ok {
		delete(o.copies, name)
		os.Remove(o.copy(name))
	}
}

func (o *objects) stat(ctx context.Context, name string) (is minio.ObjectInfo, err error) {
	err = o.asked(ctx, name, func() (err error) {
		ctx, cancel := context.WithTimeout(ctx, o.soon())
		defer cancel()
		is, err = o.s3.StatObject(ctx, o.Name, o.key(name), minio.StatObjectOptions{})
		return err
	})
	return is, err
}

func (o *objects) has(ctx context.Context, name string) (bool, error) {
	_, err := o.stat(ctx, name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

func (o *objects) fetch(ctx context.Context, name string) (string, error) {
	for range 10 {
		is, err := o.stat(ctx, name)
		if err != nil {
			return "", err
		}
		if o.copies[name] == is.ETag {
			return o.copy(name), nil
		}
		if err := o.download(ctx, name, is); errors.Is(err, errLost) {
			continue // it was replaced meanwhile
		} else if err != nil {
			return "", err
		}
		o.copies[name] = is.ETag
		return o.copy(name), nil
	}
	return "", &StoreError{Place: o.String() + "/" + name, Reason: "it changes while it is read"}
}

// download copies an object. Cut connections are gone on with where they ended.
func (o *objects) download(ctx context.Context, name string, is minio.ObjectInfo) error {
	f, err := atomicfile.Scratch(o.copy(name)).Create(is.Size)
	if err != nil {
		return err
	}
	defer f.Abort()
	for at := int64(0); at < is.Size; {
		err := o.asked(ctx, name, func() error {
			from := at
			p := transfer(ctx, is.Size-at, o.stall)
			n, err := o.part(p, name, is, at, io.MultiWriter(f, p))
			err = p.over(err)
			if at += n; err != nil && at > from && !errors.Is(err, errLost) {
				if known := o.known(name, err); known != nil {
					return err
				}
				return nil // some way on
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return f.Commit()
}

// part copies an object from a byte on, and returns how many came.
func (o *objects) part(ctx context.Context, name string, is minio.ObjectInfo, at int64, to io.Writer) (int64, error) {
	var opts minio.GetObjectOptions
	if err := errors.Join(opts.SetMatchETag(is.ETag), opts.SetRange(at, is.Size-1)); err != nil {
		return 0, err
	}
	body, got, _, err := o.s3.GetObject(ctx, o.Name, o.key(name), opts)
	if err != nil {
		return 0, err
	}
	defer body.Close()
	if got.Size != is.Size-at {
		return 0, cutError{fmt.Errorf("%d bytes instead of %d", got.Size, is.Size-at)}
	}
	n, err := io.Copy(to, cutting{io.LimitReader(body, is.Size-at)})
	if err == nil && n < is.Size-at {
		err = cutError{io.ErrUnexpectedEOF}
	}
	return n, err
}

// cutting tells what goes wrong in reading from what does in writing.
type cutting struct{ from io.Reader }

// Read implements io.Reader.
func (c cutting) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	if err != nil && err != io.EOF {
		err = cutError{err}
	}
	return n, err
}

func (o *objects) write(ctx context.Context, name string, write func(out *atomicfile.Output) error) error {
	delete(o.copies, name)
	if err := write(atomicfile.Scratch(o.copy(name)).Loose()); err != nil { // the object is what stays
		return err
	}
	info, err := os.Stat(o.copy(name))
	if err != nil {
		return err
	}
	return o.asked(ctx, name, func() error {
		p := transfer(ctx, info.Size(), 5*o.stall) // a store says nothing while it joins parts
		is, err := o.s3.Client.FPutObject(p, o.Name, o.key(name), o.copy(name), minio.PutObjectOptions{ContentType: binary, SendContentMd5: true, Progress: p})
		if err == nil {
			o.copies[name] = is.ETag
		}
		return p.over(err)
	})
}

func (o *objects) leave(ctx context.Context, name string, write func(out *atomicfile.Output) error) error {
	return o.write(ctx, name, write)
}

const binary = "application/octet-stream"

func (o *objects) begin(ctx context.Context, name string, data []byte) error {
	_, err := o.putText(ctx, name, mark{free: true}, string(data))
	if errors.Is(err, errLost) {
		return nil
	}
	return err
}

func (o *objects) remove(ctx context.Context, name string) error {
	o.forget(name)
	err := o.asked(ctx, name, func() error {
		ctx, cancel := context.WithTimeout(ctx, o.soon())
		defer cancel()
		return o.s3.RemoveObject(ctx, o.Name, o.key(name), minio.RemoveObjectOptions{})
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// A claim's object says in its first line whose it is, or freed, and in the second what has
// been written nowhere else, so that each has its own ETag.
const freed = "nobody"

// put overwrites a claim that still is as it was seen, else fails with errLost.
func (o *objects) put(ctx context.Context, name string, seen mark, owner string) (is mark, err error) {
	return o.putText(ctx, name, seen, fmt.Sprintf("%s\n%016x\n", owner, rand.Uint64()))
}

// putText writes a text on condition that a name still is as it was seen.
func (o *objects) putText(ctx context.Context, name string, seen mark, text string) (is mark, err error) {
	opts := minio.PutObjectOptions{ContentType: binary, SendContentMd5: true}
	if seen.stamp == "" {
		opts.SetMatchETagExcept("*")
	} else {
		opts.SetMatchETag(seen.stamp)
	}
	err = o.asked(ctx, name, func() error {
		ctx, cancel := context.WithTimeout(ctx, o.soon())
		defer cancel()
		was, err := o.s3.Client.PutObject(ctx, o.Name, o.key(name), strings.NewReader(text), int64(len(text)), opts)
		is.stamp = was.ETag
		return err
	})
	if errors.Is(err, fs.ErrNotExist) { // If-Match of what is gone
		err = errLost
	}
	if !errors.Is(err, errLost) {
		return is, err
	}
	// A request whose answer was lost may have been repeated, and refused for that.
	return o.still(ctx, name, text)
}

// still returns a claim as it is now, and fails with errLost where it does not begin with a text.
func (o *objects) still(ctx context.Context, name, text string) (mark, error) {
	p, etag, err := o.read(ctx, name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !strings.HasPrefix(string(p), text) {
		err = errLost
	}
	if err != nil {
		return mark{}, err
	}
	return mark{stamp: etag}, nil
}

// read returns a small object.
func (o *objects) read(ctx context.Context, name string) (p []byte, etag string, err error) {
	err = o.asked(ctx, name, func() error {
		ctx, cancel := context.WithTimeout(ctx, o.soon())
		defer cancel()
		body, is, _, err := o.s3.GetObject(ctx, o.Name, o.key(name), minio.GetObjectOptions{})
		if err != nil {
			return err
		}
		defer body.Close()
		etag = is.ETag
		if p, err = io.ReadAll(cutting{io.LimitReader(body, maxJournal+1)}); err == nil && int64(len(p)) < min(is.Size, maxJournal) {
			err = io.ErrUnexpectedEOF
		}
		return err
	})
	return p, etag, err
}

func (o *objects) look(ctx context.Context, name string) (mark, error) {
	p, etag, err := o.read(ctx, name)
	if errors.Is(err, fs.ErrNotExist) {
		return mark{free: true}, nil
	}
	return mark{stamp: etag, free: bytes.HasPrefix(p, []byte(freed+"\n"))}, err
}

func (o *objects) take(ctx context.Context, name string, seen mark, owner string) (mark, bool, error) {
	is, err := o.put(ctx, name, seen, owner)
	if errors.Is(err, errLost) {
		return mark{}, false, nil
	}
	return is, err == nil, err
}

// renew takes a claim that still names its owner as renewed: a request that was given up may
// have been granted.
func (o *objects) renew(ctx context.Context, name string, own mark, owner string) (mark, error) {
	is, err := o.put(ctx, name, own, owner)
	if errors.Is(err, errLost) {
		is, err = o.still(ctx, name, owner+"\n")
	}
	return is, err
}

// give leaves the object there: removing it could remove what another has just taken.
func (o *objects) give(ctx context.Context, name string, own mark, owner string) error {
	_, err := o.put(ctx, name, own, freed)
	if errors.Is(err, errLost) { // or a renewal that was given up was granted
		if own, err = o.still(ctx, name, owner+"\n"); err == nil {
			_, err = o.put(ctx, name, own, freed)
		}
	}
	return err
}

// lock is a lease: a process that was killed has it until that has stood still for long
// enough.
func (o *objects) lock(ctx context.Context, silence time.Duration) (io.Closer, error) {
	l := newLeases(o, silence)
	first, err := o.look(ctx, lockFile)
	for err == nil {
		var release func()
		var ok bool
		if release, ok, err = l.take(ctx, lockFile); ok {
			return held{l, release}, nil
		}
		var now mark
		if err == nil {
			now, err = o.look(ctx, lockFile)
		}
		if err == nil && now != first && !now.free {
			err = o.busy(ctx)
		}
		if err == nil {
			err = pause(ctx, silence/16)
		}
	}
	l.stop()
	return nil, err
}

// busy says who has the lock.
func (o *objects) busy(ctx context.Context) error {
	p, _, err := o.read(ctx, lockFile)
	who, _, _ := strings.Cut(string(p), "\n")
	return errors.Join(err, &atomicfile.BusyError{Path: o.String() + "/" + lockFile, Holder: strings.Trim(fmt.Sprintf("%q", who), `"`)})
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

// held is a lease that is given back when it is closed.
type held struct {
	*leases
	release func()
}

func (h held) Close() error {
	h.stop()
	h.release()
	return nil
}

// discard removes nothing where another process has taken the lock over.
func (o *objects) discard(ctx context.Context, lock io.Closer) error {
	if h, ok := lock.(held); ok {
		err := h.keep(ctx, lockFile)
		if errors.Is(err, errLost) {
			err = o.busy(ctx)
		}
		if err != nil {
			return errors.Join(err, lock.Close())
		}
	}
	list, err := o.list(ctx)
	for _, name := range list {
		if err == nil && name != journal && name != lockFile {
			err = o.remove(ctx, name)
		}
	}
	if err == nil {
		err = o.asked(ctx, "", func() error { return o.abort(ctx) })
	}
	if err == nil {
		err = o.remove(ctx, journal)
	}
	err = errors.Join(err, lock.Close())
	if err == nil {
		err = o.remove(ctx, lockFile)
	}
	return err
}

// abort ends uploads that were begun by processes that are dead: their parts take room that
// no list shows.
func (o *objects) abort(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*soon)
	defer cancel()
	for x := range o.s3.ListIncompleteUploads(ctx, o.Name, o.Prefix+"/", true) {
		if x.Err != nil {
			return x.Err
		}
		if _, ok := o.name(x.Key); !ok {
			continue
		}
		if err := o.s3.AbortMultipartUpload(ctx, o.Name, x.Key, x.UploadID); err != nil && minio.ToErrorResponse(err).StatusCode != 404 {
			return err
		}
	}
	return nil
}

func (o *objects) near() string { return o.temp.Path() }

func (o *objects) poll() time.Duration { return time.Second }

func (o *objects) close() error { return o.temp.Close() }
