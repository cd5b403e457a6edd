package nstf

import (
	"io"
	"sync"
	"sync/atomic"

	"github.com/zeebo/blake3"

	"github.com/nstf/nstf/formats/tensor"
)

// A guard is what the Blobs of one stored tensor read: it checks the tensor's hash on
// the way. Whoever reads the tensor from its first byte to its last, in order, pays for
// the hash alone, and learns at the last byte; whoever begins elsewhere, or maps it,
// waits until the whole tensor was read once. So nobody turns damaged weights into a new
// file with new and valid hashes.
//
// All methods may be called from several goroutines.
type guard struct {
	at     *origin
	record *tensorRecord
	good   atomic.Bool
	found  atomic.Pointer[finding] // nil before anything was read
}

// An origin is what the guards of one package share.
type origin struct {
	src   io.ReaderAt
	path  string
	start int64 // of the data section in the file
}

// A finding is what a guard knows so far.
type finding struct {
	mu   sync.Mutex
	err  error // damage, or what kept it from finding out
	hash *blake3.Hasher
	done int64 // bytes of the parts, end to end, that were hashed
}

// state returns the finding, locked.
func (g *guard) state() *finding {
	if g.found.Load() == nil {
		g.found.CompareAndSwap(nil, &finding{hash: blake3.New()})
	}
	f := g.found.Load()
	f.mu.Lock()
	return f
}

// ReadAt implements io.ReaderAt by offsets of the file, inside one part.
func (g *guard) ReadAt(p []byte, off int64) (int, error) {
	if g.good.Load() {
		return g.at.src.ReadAt(p, off)
	}
	n, err := g.at.src.ReadAt(p, off)
	if n < len(p) {
		return n, err
	}
	if cerr := g.pass(p, off); cerr != nil {
		return 0, cerr
	}
	return n, err
}

// Map implements tensor.Mapper.
func (g *guard) Map(off, size int64) ([]byte, error) {
	if err := g.Check(); err != nil {
		return nil, err
	}
	return g.mapped(off, size)
}

func (g *guard) mapped(off, size int64) ([]byte, error) {
	m, ok := g.at.src.(tensor.Mapper)
	if !ok {
		return nil, io.ErrUnexpectedEOF
	}
	return m.Map(off, size)
}

// Check implements tensor.Checker: it reads the whole tensor, unless that was done.
func (g *guard) Check() error {
	if g.good.Load() {
		return nil
	}
	f := g.state()
	defer f.mu.Unlock()
	return g.all(f)
}

// Unchecked implements tensor.Checker.
func (g *guard) Unchecked() io.ReaderAt { return g.at.src }

// Beside implements tensor.Checker.
func (g *guard) Beside(p []byte, off int64) func() error {
	if g.good.Load() {
		return func() error { return nil }
	}
	done := make(chan error, 1)
	go func() { done <- g.pass(p, off) }()
	return func() error { return <-done }
}

// pass hashes bytes that were read, where they are the next ones.
func (g *guard) pass(p []byte, off int64) error {
	f := g.state()
	defer f.mu.Unlock()
	if f.err != nil || g.good.Load() {
		return f.err
	}
	if g.position(off) != f.done {
		return g.all(f)
	}
	f.hash.Write(p)
	if f.done += int64(len(p)); f.done < g.record.Size() {
		return nil
	}
	return g.judge(f)
}

// position returns where a byte of the file lies in the parts, end to end.
func (g *guard) position(off int64) (at int64) {
	for i, p := range g.record.Parts {
		begin := g.at.start + g.record.offsets[i]
		if off >= begin && off-begin < p.Data.Len() {
			return at + off - begin
		}
		at += p.Data.Len()
	}
	return -1
}

// all reads the whole tensor and hashes it.
func (g *guard) all(f *finding) error {
	if f.err != nil || g.good.Load() {
		return f.err
	}
	f.hash.Reset()
	m, mapped := g.at.src.(tensor.Mapper)
	buf := make([]byte, min(chunk, g.record.Size()))
	for i, p := range g.record.Parts {
		begin := g.at.start + g.record.offsets[i]
		if mapped && p.Data.Len() > 0 { // in place: who asks for this goes on to use the mapping
			if all, err := m.Map(begin, p.Data.Len()); err == nil {
				f.hash.Write(all)
				continue
			}
		}
		r := io.NewSectionReader(g.at.src, begin, p.Data.Len())
		for left := p.Data.Len(); left > 0; {
			q := buf[:min(left, int64(len(buf)))]
			if _, err := io.ReadFull(r, q); err != nil {
				f.err = err
				return err
			}
			f.hash.Write(q)
			left -= int64(len(q))
		}
	}
	return g.judge(f)
}

// copyOf returns the guard of a stored tensor all of whose bytes, in their order, are those
// of r, nil where there is none.
func copyOf(r *tensorRecord) *guard {
	src, _, _ := r.Parts[0].Data.Source()
	g, ok := src.(*guard)
	if !ok || len(r.Parts) != len(g.record.Parts) {
		return nil
	}
	for i, p := range r.Parts {
		if p.Data.Len() != g.record.Parts[i].Data.Len() {
			return nil
		}
		if src, off, ok := p.Data.Source(); p.Data.Len() > 0 && (!ok || src != g || off != g.at.start+g.record.offsets[i]) {
			return nil
		}
	}
	return g
}

// passed compares the hash of all bytes, which somebody else hashed as they were read.
func (g *guard) passed(got Hash) error {
	f := g.state()
	defer f.mu.Unlock()
	if f.err != nil {
		return f.err
	}
	return g.compare(f, got)
}

// judge compares the hash of all bytes that were read.
func (g *guard) judge(f *finding) error {
	var got Hash
	f.hash.Sum(got[:0])
	f.hash = nil
	return g.compare(f, got)
}

func (g *guard) compare(f *finding, got Hash) error {
	if got == g.record.hash {
		g.good.Store(true)
		return nil
	}
	f.err = damaged(g.at.path, g.record.Name, g.at.start+g.record.offsets[0], g.record.Size(), got, g.record.hash)
	return f.err
}
