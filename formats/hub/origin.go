package hub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/atomicfile"
)

// An origin is a file on a hub, which gives out ranges of it.
type origin struct {
	*Client
	s    *Snapshot
	file File

	held   sync.Mutex
	direct string // address that the hub sent us to
	// etags are what each host calls the contents, for who may not see two contents in one
	// run; nil for who holds the whole to its hash anyhow.
	etags map[string]string
}

// address is where the hub has the file.
func (o *origin) address() string {
	segments := strings.Split(o.file.Path, "/")
	for i, s := range segments {
		segments[i] = url.PathEscape(s)
	}
	return o.Endpoint + "/" + o.s.Repo + "/resolve/" + o.s.Commit + "/" + strings.Join(segments, "/")
}

// piece writes the bytes from first up to end and returns how many came.
func (o *origin) piece(ctx context.Context, first, end int64, to io.Writer) (int64, error) {
	if first == end { // an empty file
		return 0, nil
	}
	resp, err := o.ranged(ctx, first, end)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusPartialContent:
		if want := fmt.Sprintf("bytes %d-%d/%d", first, end-1, o.file.Size); resp.Header.Get("Content-Range") != want {
			return 0, fmt.Errorf("the hub sends %q, not %q", resp.Header.Get("Content-Range"), want)
		}
	case http.StatusOK: // who does not know ranges sends everything
		if resp.ContentLength >= 0 && resp.ContentLength != o.file.Size {
			return 0, fmt.Errorf("the hub sends %d bytes of %d", resp.ContentLength, o.file.Size)
		}
	case http.StatusRequestedRangeNotSatisfiable:
		return 0, fmt.Errorf("the hub has fewer bytes than the %d that it said", o.file.Size)
	default:
		return 0, o.refused(resp)
	}
	if err := o.same(resp); err != nil {
		return 0, err
	}
	if resp.StatusCode == http.StatusOK {
		if _, err := io.CopyN(io.Discard, resp.Body, first); err != nil {
			return 0, unexpected(err)
		}
	}
	n, err := io.CopyBuffer(to, io.LimitReader(resp.Body, end-first), make([]byte, 256<<10))
	var full *atomicfile.DiskFullError
	switch {
	case errors.As(err, &full):
		return n, err
	case err == nil && n < end-first, err != nil && passing(err) && n > 0:
		return n, errShort
	}
	return n, err
}

// ranged asks for the bytes from first up to end where the hub sent us, or has us sent
// anew where that address is no longer good.
func (o *origin) ranged(ctx context.Context, first, end int64) (*http.Response, error) {
	o.held.Lock()
	addr := o.direct
	o.held.Unlock()
	if addr != "" {
		resp, err := o.get(ctx, addr, first, end-1)
		if err != nil || resp.StatusCode < 400 || resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests {
			return resp, err
		}
		resp.Body.Close()
		o.held.Lock()
		o.direct = ""
		o.held.Unlock()
	}
	resp, err := o.get(ctx, o.address(), first, end-1)
	if err == nil && resp.StatusCode < 300 {
		o.held.Lock()
		o.direct = resp.Request.URL.String()
		o.held.Unlock()
	}
	return resp, err
}

// same refuses contents that are not those of the answers before.
func (o *origin) same(resp *http.Response) error {
	if o.etags == nil {
		return nil
	}
	for q := resp.Request; q.Response != nil; q = q.Response.Request {
		if tag := etag(q.Response.Header.Get("X-Linked-Etag")); tag != "" && tag != o.file.Etag {
			return o.changed(o.file.Etag, tag)
		}
	}
	tag, host := etag(resp.Header.Get("ETag")), resp.Request.URL.Host
	o.held.Lock()
	defer o.held.Unlock()
	was, ok := o.etags[host]
	if !ok {
		o.etags[host] = tag
		return nil
	}
	if was != tag {
		return o.changed(was, tag)
	}
	return nil
}

// changed says that a file became another one while it was read.
func (o *origin) changed(was, is string) error {
	return &Error{What: o.s.Repo + ", " + o.file.Path, Reason: fmt.Sprintf("changed on the hub while it was read: its ETag was %q and is %q", formats.Brief(was, 100), formats.Brief(is, 100))}
}

// etag is what an ETag says without its quotes, weak or not.
func etag(s string) string { return strings.Trim(strings.TrimPrefix(s, "W/"), `"`) }
