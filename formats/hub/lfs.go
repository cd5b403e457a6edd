package hub

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/nstf/nstf/formats"
)

// The interface is Git LFS's (https://github.com/git-lfs/git-lfs/blob/main/docs/api/batch.md),
// with the hub's own transfer in parts (huggingface_hub 2.4, lfs.py).

const lfsType = "application/vnd.git-lfs+json"

// An action says where to send contents, or nothing where they are there.
type action struct {
	OID     string `json:"oid"`
	Size    int64  `json:"size"`
	Actions *struct {
		Upload *target `json:"upload"`
		Verify *target `json:"verify"`
	} `json:"actions"`
	Error *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

// A target is an address. Header has, where contents are wanted in parts, "chunk_size" and
// under the number of each part its address.
type target struct {
	Href   string         `json:"href"`
	Header map[string]any `json:"header"`
}

// contents sends what the storage has not, and returns the bytes of it.
func (p *push) contents(ctx context.Context, files []planned) (sent int64, err error) {
	type object struct {
		OID  string `json:"oid"`
		Size int64  `json:"size"`
	}
	ask := struct {
		Operation string            `json:"operation"`
		Transfers []string          `json:"transfers"`
		Objects   []object          `json:"objects"`
		Algorithm string            `json:"hash_algo"`
		Ref       map[string]string `json:"ref"`
	}{"upload", []string{"basic", "multipart"}, nil, "sha256", map[string]string{"name": p.Revision}}
	for _, f := range files {
		if f.Mode == "lfs" {
			ask.Objects = append(ask.Objects, object{f.sum, f.Data.Size()})
		}
	}
	if len(ask.Objects) == 0 {
		return 0, nil
	}
	var answer struct {
		Objects []action `json:"objects"`
	}
	at := p.Endpoint + "/" + p.Repo + ".git/info/lfs/objects/batch"
	if err := p.postAs(ctx, at, lfsType, ask, &answer); err != nil {
		return 0, err
	}
	for i := range files {
		f := &files[i]
		if f.Mode != "lfs" {
			continue
		}
		j := slices.IndexFunc(answer.Objects, func(a action) bool { return a.OID == f.sum })
		if j < 0 {
			return sent, formats.Errorf(at, f.Path, "the hub says nothing of it")
		}
		a := &answer.Objects[j]
		switch {
		case a.Error != nil:
			return sent, &Error{What: p.Repo + ", " + f.Path, Reason: "the hub refuses it: " + a.Error.Message}
		case a.Actions == nil || a.Actions.Upload == nil:
			p.step(f.Data.Size())
			continue
		}
		n, err := p.object(ctx, f, a.Actions.Upload)
		sent += n
		if err == nil && a.Actions.Verify != nil {
			err = p.post(ctx, p.own(a.Actions.Verify.Href), object{f.sum, f.Data.Size()}, nil)
		}
		if err != nil {
			return sent, err
		}
	}
	return sent, nil
}

// own puts the address of the hub that is asked into addresses that name Hugging Face's.
func (p *push) own(addr string) string {
	if rest, ok := strings.CutPrefix(addr, DefaultEndpoint+"/"); ok {
		return p.Endpoint + "/" + rest
	}
	return addr
}

// object sends the contents of a file, whole or in parts.
func (p *push) object(ctx context.Context, f *planned, to *target) (sent int64, err error) {
	chunk, err := strconv.ParseInt(fmt.Sprint(cmp.Or(to.Header["chunk_size"], any("0"))), 10, 64)
	if f, ok := to.Header["chunk_size"].(float64); ok {
		chunk, err = int64(f), nil
	}
	if err != nil || chunk < 0 || chunk > maxSize {
		return 0, formats.Errorf(p.Repo, f.Path, "the hub asks for parts of %v bytes", to.Header["chunk_size"])
	}
	if chunk == 0 {
		_, err := p.part(ctx, f, to.Href, 0, f.Data.Size())
		return f.Data.Size(), err
	}
	if f.Data.Size()/chunk > int64(len(to.Header)) {
		return 0, formats.Errorf(p.Repo, f.Path, "the hub asks for parts of %d bytes and has %d addresses", chunk, len(to.Header))
	}
	m := &parts{Href: to.Href, Chunk: chunk, Parts: make([]sentPart, (f.Data.Size()+chunk-1)/chunk)}
	for i := range m.Parts {
		m.Parts[i].Addr, _ = to.Header[fmt.Sprint(i+1)].(string)
		if m.Parts[i].Addr == "" { // numbers may have zeros in front
			for k, v := range to.Header {
				if n, err := strconv.Atoi(k); err == nil && n == i+1 {
					m.Parts[i].Addr, _ = v.(string)
				}
			}
		}
		if m.Parts[i].Addr == "" {
			return 0, formats.Errorf(p.Repo, f.Path, "the hub has no address for part %d of %d", i+1, len(m.Parts))
		}
	}
	if old := p.begun(f); old != nil {
		sent, err := p.multipart(ctx, f, old)
		if err == nil || !final(err) {
			return sent, err
		}
		p.note("%s: what an earlier push sent is no longer kept there: it is sent anew", f.Path)
	}
	return p.multipart(ctx, f, m)
}

// multipart sends the parts that are not there yet, and has them joined.
func (p *push) multipart(ctx context.Context, f *planned, m *parts) (sent int64, err error) {
	defer m.Close()
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(p.parallel())
	var mu sync.Mutex
	for i := range m.Parts {
		first, end := int64(i)*m.Chunk, min(int64(i+1)*m.Chunk, f.Data.Size())
		if m.Parts[i].ETag != "" {
			p.step(end - first)
			continue
		}
		group.Go(func() error {
			tag, err := p.part(gctx, f, m.Parts[i].Addr, first, end)
			if err != nil {
				return err
			}
			if tag == "" {
				return formats.Errorf(p.Repo, f.Path, "the storage names no ETag for part %d", i+1)
			}
			mu.Lock()
			defer mu.Unlock()
			m.Parts[i].ETag = tag
			sent += end - first
			return p.remember(f, m, i)
		})
	}
	if err := group.Wait(); err != nil {
		return sent, err
	}
	type done struct {
		Number int    `json:"partNumber"`
		ETag   string `json:"etag"`
	}
	all := make([]done, len(m.Parts))
	for i, part := range m.Parts {
		all[i] = done{i + 1, part.ETag}
	}
	err = p.postAs(ctx, p.own(m.Href), lfsType, map[string]any{"oid": f.sum, "parts": all}, nil)
	if err == nil || final(err) {
		m.Close() // before it goes: not every system removes an open file
		p.forget(f)
	}
	return sent, err
}

// part sends bytes of a file to an address of the storage.
func (p *push) part(ctx context.Context, f *planned, addr string, first, end int64) (tag string, err error) {
	err = p.again(ctx, f.Path, func() (bool, error) {
		body := &told{r: io.NewSectionReader(f.Data, first, end-first), p: p}
		resp, err := p.send(ctx, http.MethodPut, p.own(addr), "", body, end-first)
		if err == nil && resp.StatusCode/100 != 2 {
			err = p.refused(resp)
		}
		if err != nil {
			p.step(-body.close())
			return false, err
		}
		tag = resp.Header.Get("ETag")
		return false, resp.Body.Close()
	})
	return tag, err
}

// A told reader tells of what was read, until it is closed: a transport may read on after
// it has answered.
type told struct {
	r io.Reader
	p *push

	mu     sync.Mutex
	n      int64
	closed bool
}

// Read implements io.Reader.
func (t *told) Read(b []byte) (int, error) {
	n, err := t.r.Read(b)
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed {
		t.n += int64(n)
		t.p.step(int64(n))
	}
	return n, err
}

// close returns the bytes that were told of.
func (t *told) close() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	return t.n
}
