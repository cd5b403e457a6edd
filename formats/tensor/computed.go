package tensor

import (
	"fmt"
	"io"
)

// Computed returns a Blob of size bytes that compute makes on demand: a
// transposed or repacked copy of something stored otherwise. compute is
// called once for every [Blob.Bytes] or [Blob.WriteTo], so nothing stays in
// memory between them; it must return size bytes, the same every time.
func Computed(size int64, compute func() ([]byte, error)) Blob {
	return NewBlob(&computed{make: compute, size: size}, 0, size)
}

type computed struct {
	make func() ([]byte, error)
	size int64
}

// once keeps the computed bytes last met, for runs of spans of one source.
type once struct {
	of    *computed
	bytes memory
}

// source returns r, or the bytes of r where they are computed.
func (o *once) source(r io.ReaderAt) (io.ReaderAt, error) {
	c, ok := r.(*computed)
	if !ok {
		return r, nil
	}
	if o.of != c {
		all, err := c.bytes()
		if err != nil {
			return nil, err
		}
		o.of, o.bytes = c, all
	}
	return o.bytes, nil
}

// LargestComputed returns the size of the largest computed piece that some of
// the Blob comes from: reading any part of such a piece makes all of it.
func (b Blob) LargestComputed() int64 {
	var size int64
	for _, s := range b.spans {
		if c, ok := s.src.(*computed); ok {
			size = max(size, c.size)
		}
	}
	return size
}

func (c *computed) bytes() ([]byte, error) {
	p, err := c.make()
	if err != nil {
		return nil, err
	}
	if int64(len(p)) != c.size {
		panic(fmt.Sprintf("tensor: computed blob made %d bytes, not %d", len(p), c.size))
	}
	return p, nil
}

// ReadAt computes everything for every call: prefer Bytes or WriteTo.
func (c *computed) ReadAt(p []byte, off int64) (int, error) {
	all, err := c.bytes()
	if err != nil {
		return 0, err
	}
	return memory(all).ReadAt(p, off)
}
