package nstf

import (
	"context"
	"errors"
	"io"
	"runtime"
	"slices"
	"sync"

	"github.com/zeebo/blake3"
	"golang.org/x/sync/errgroup"

	"github.com/nstf/nstf/formats"
)

// Verify reads the whole file and checks the hash of every tensor and every
// attached file, that attached files decode to their size, and that padding
// is zero. It reads in order of place, on all cores, 1 MiB at a time each,
// and maps nothing.
//
// All damage is collected: the error joins a [*formats.FormatError] for each
// damaged piece by ascending offset, with its name and its place in the file.
// An error of reading, or the context's, ends it at once.
func (p *Package) Verify(ctx context.Context, progress func(done, total int64)) error {
	checks := p.checks()
	v := &verifier{p: p, ctx: ctx, total: p.size - p.headerEnd, progress: progress}
	found := make([]error, len(checks))
	next := make(chan int)
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		defer close(next)
		for i := range checks {
			select {
			case next <- i:
			case <-gctx.Done():
				return context.Cause(gctx)
			}
		}
		return nil
	})
	for range runtime.GOMAXPROCS(0) {
		g.Go(func() error {
			w := &worker{verifier: v, buf: make([]byte, min(chunk, p.size)), hash: blake3.New()}
			for i := range next {
				damage, err := checks[i](w)
				if err != nil {
					return err
				}
				found[i] = damage
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return errors.Join(found...)
}

// A check looks at one piece of the file. damage is what is wrong with it,
// err what kept it from finding out.
type check func(w *worker) (damage, err error)

// checks lists everything behind the header by ascending offset.
func (p *Package) checks() []check {
	var out []check
	at := p.headerEnd
	piece := func(begin, end int64, c check) {
		if at < begin {
			out = append(out, zeros(at, begin))
		}
		if c != nil {
			out = append(out, c)
		}
		at = end
	}
	for _, e := range p.header.extents() {
		begin, end := p.dataStart+e.begin, p.dataStart+e.end
		if e.file >= 0 {
			piece(begin, end, attachedFile(&p.header.files[e.file]))
			continue
		}
		r := &p.header.tensors[e.tensor]
		piece(begin, begin, storedTensor(r, begin))
		for i, part := range r.Parts {
			off := p.dataStart + r.offsets[i]
			piece(off, off+part.Data.Len(), nil)
		}
	}
	piece(p.size, p.size, nil)
	return out
}

// storedTensor checks a tensor's hash.
func storedTensor(r *tensorRecord, begin int64) check {
	return func(w *worker) (damage, err error) {
		w.hash.Reset()
		for i, part := range r.Parts {
			if err := w.read(w.p.dataStart+r.offsets[i], part.Data.Len(), func(p []byte) { w.hash.Write(p) }); err != nil {
				return nil, err
			}
		}
		var got Hash
		if w.hash.Sum(got[:0]); got != r.hash {
			return damaged(w.p.path, r.Name, begin, r.Size(), got, r.hash), nil
		}
		return nil, nil
	}
}

// attachedFile checks a file's hash and that it decodes.
func attachedFile(f *fileRecord) check {
	return func(w *worker) (damage, err error) {
		if err := context.Cause(w.ctx); err != nil {
			return nil, err
		}
		if f.unknown != "" {
			_, err = w.p.readStored(f) // all that can be checked
		} else {
			_, err = w.p.readFile(f)
		}
		w.step(f.size)
		var format *formats.FormatError
		if errors.As(err, &format) {
			return err, nil
		}
		return nil, err
	}
}

// zeros checks padding.
func zeros(begin, end int64) check {
	return func(w *worker) (damage, err error) {
		at := begin
		err = w.read(begin, end-begin, func(p []byte) {
			if i := slices.IndexFunc(p, func(b byte) bool { return b != 0 }); i >= 0 && damage == nil {
				damage = formats.ErrorAt(w.p.path, "", at+int64(i), "padding byte %#02x is not 0", p[i])
			}
			at += int64(len(p))
		})
		return damage, err
	}
}

// A worker does one check after the other.
type worker struct {
	*verifier
	buf  []byte
	hash *blake3.Hasher
}

// A verifier is what the workers share.
type verifier struct {
	p        *Package
	ctx      context.Context
	total    int64
	progress func(done, total int64)

	mu   sync.Mutex
	done int64
}

// read gives size bytes from off on to each, in runs of len(buf).
func (w *worker) read(off, size int64, each func([]byte)) error {
	for size > 0 {
		if err := context.Cause(w.ctx); err != nil {
			return err
		}
		q := w.buf[:min(int64(len(w.buf)), size)]
		if n, err := w.p.src.ReadAt(q, off); n < len(q) {
			if err == io.EOF {
				err = formats.ErrorAt(w.p.path, "", off+int64(n), "file became shorter while it was read")
			}
			return err
		}
		each(q)
		off += int64(len(q))
		size -= int64(len(q))
		w.step(int64(len(q)))
	}
	return nil
}

// step reports progress, one call at a time.
func (v *verifier) step(n int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.done += n
	if v.progress != nil {
		v.progress(v.done, v.total)
	}
}
