package tensor

import (
	"cmp"
	"fmt"
	"io"
	"slices"
)

// A Blob is a lazily read, immutable run of bytes: a range of a file, rows
// picked out of one, the concatenation of several, or bytes in memory.
//
// Slicing, joining and reordering cost a few words per piece and read
// nothing, so a fused projection splits, experts stack and rotary rows
// permute without a copy. The zero Blob is empty.
type Blob struct {
	spans []span
	size  int64
}

// A span is size bytes of src from off on.
type span struct {
	src  io.ReaderAt
	off  int64
	size int64
}

// A Mapper is an io.ReaderAt whose bytes also lie in memory. Map returns
// them without a copy; the caller must not write to them, and they die with
// the file.
type Mapper interface {
	io.ReaderAt
	Map(off, size int64) ([]byte, error)
}

// A Checker is a Mapper that knows what its bytes must be, and fails to read and to map
// what is something else.
type Checker interface {
	Mapper
	Check() error           // reads what it must to know; nil: the bytes are what was written
	Unchecked() io.ReaderAt // the same bytes, unchecked
	// Beside checks bytes that were read unchecked at an offset, while who read them goes
	// on; p is used until wait returns, which says what ReadAt would have said.
	Beside(p []byte, off int64) (wait func() error)
}

// NewBlob returns size bytes of src from off on. The caller has checked that
// they exist.
func NewBlob(src io.ReaderAt, off, size int64) Blob {
	if off < 0 || size < 0 {
		panic(fmt.Sprintf("tensor: blob at %d of %d bytes", off, size))
	}
	if size == 0 {
		return Blob{}
	}
	return Blob{spans: []span{{src, off, size}}, size: size}
}

// BytesBlob returns a Blob over p, which must not change afterwards.
func BytesBlob(p []byte) Blob { return NewBlob(memory(p), 0, int64(len(p))) }

// Len returns the size in bytes.
func (b Blob) Len() int64 { return b.size }

// Pieces returns the number of separate runs the Blob is made of.
func (b Blob) Pieces() int { return len(b.spans) }

// Slice returns size bytes from off on. It panics outside the Blob.
func (b Blob) Slice(off, size int64) Blob {
	if off < 0 || size < 0 || off > b.size-size {
		panic(fmt.Sprintf("tensor: slice [%d:+%d] of a blob of %d bytes", off, size, b.size))
	}
	out := Blob{size: size}
	for _, s := range b.spans {
		if size == 0 {
			break
		}
		if off >= s.size {
			off -= s.size
			continue
		}
		n := min(size, s.size-off)
		out.spans = append(out.spans, span{s.src, s.off + off, n})
		size -= n
		off = 0
	}
	return out
}

// Concat joins blobs end to end. Neighbouring runs of one source become one.
func Concat(blobs ...Blob) Blob {
	var out Blob
	for _, b := range blobs {
		for _, s := range b.spans {
			if n := len(out.spans); n > 0 {
				if last := &out.spans[n-1]; sameSource(last.src, s.src) && last.off+last.size == s.off {
					last.size += s.size
					continue
				}
			}
			out.spans = append(out.spans, s)
		}
		out.size += b.size
	}
	return out
}

// sameSource reports whether two readers are one file, one computation or
// the same bytes in memory.
func sameSource(a, b io.ReaderAt) bool {
	switch a := a.(type) {
	case *File:
		return b == io.ReaderAt(a)
	case *computed:
		return b == io.ReaderAt(a)
	case *strided:
		return b == io.ReaderAt(a)
	case Checker:
		return b == io.ReaderAt(a)
	case memory:
		m, ok := b.(memory)
		return ok && len(a) == len(m) && (len(a) == 0 || &a[0] == &m[0])
	}
	return false
}

// PickRows returns rows of rowSize bytes in the order of index.
func (b Blob) PickRows(rowSize int64, index []int64) Blob {
	rows := make([]Blob, len(index))
	for i, r := range index {
		rows[i] = b.Slice(r*rowSize, rowSize)
	}
	return Concat(rows...)
}

// ReadAt implements io.ReaderAt over the Blob's own offsets.
func (b Blob) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fmt.Errorf("tensor: read at %d", off)
	}
	done := 0
	var made once
	for _, s := range b.spans {
		if done == len(p) {
			return done, nil
		}
		if off >= s.size {
			off -= s.size
			continue
		}
		src, err := made.source(s.src)
		if err != nil {
			return done, err
		}
		n := int(min(int64(len(p)-done), s.size-off))
		m, err := src.ReadAt(p[done:done+n], s.off+off)
		done += m
		if m < n {
			return done, err
		}
		off = 0
	}
	if done < len(p) {
		return done, io.EOF
	}
	return done, nil
}

// ReadBeside reads all bytes into p for who goes on with them while they are checked. p
// stays as it is until wait returns, which says what ReadAt would have said.
func (b Blob) ReadBeside(p []byte) (wait func() error, err error) {
	if src, off, ok := b.Source(); ok {
		if c, ok := src.(Checker); ok {
			if n, err := c.Unchecked().ReadAt(p[:b.size], off); int64(n) < b.size {
				return nil, cmp.Or(err, io.ErrUnexpectedEOF)
			}
			return c.Beside(p[:b.size], off), nil
		}
	}
	_, err = b.ReadAt(p[:b.size], 0)
	return func() error { return nil }, err
}

// Check reads what it must to know that the bytes are those that were written, where
// their container says what that is. A computed piece checks what it reads when it is
// made.
func (b Blob) Check() error {
	for _, s := range b.spans {
		var err error
		switch c := s.src.(type) {
		case Checker:
			err = c.Check()
		case *strided:
			err = c.of.Check()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Source returns the reader and the place of the bytes where they are one run of it, and
// false elsewhere.
func (b Blob) Source() (src io.ReaderAt, off int64, ok bool) {
	if len(b.spans) != 1 {
		return nil, 0, false
	}
	return b.spans[0].src, b.spans[0].off, true
}

// Unchecked returns the same bytes for who runs a model, and maps it to start at once.
func (b Blob) Unchecked() Blob {
	out := Blob{spans: slices.Clone(b.spans), size: b.size}
	for i := range out.spans {
		switch c := out.spans[i].src.(type) {
		case Checker:
			out.spans[i].src = c.Unchecked()
		case *strided:
			own := *c
			own.of = c.of.Unchecked()
			out.spans[i].src = &own
		}
	}
	return out
}

// Mapped returns the bytes without a copy where they are one run of a
// [Mapper], and false elsewhere.
func (b Blob) Mapped() ([]byte, bool) {
	if b.size == 0 {
		return nil, true
	}
	if len(b.spans) != 1 {
		return nil, false
	}
	m, ok := b.spans[0].src.(Mapper)
	if !ok {
		return nil, false
	}
	p, err := m.Map(b.spans[0].off, b.size)
	return p, err == nil
}

// Bytes returns all bytes: mapped where possible, otherwise a fresh copy.
func (b Blob) Bytes() ([]byte, error) {
	if p, ok := b.Mapped(); ok {
		return p, nil
	}
	p := make([]byte, 0, b.size)
	w := appender{p}
	if _, err := b.WriteTo(&w); err != nil {
		return nil, err
	}
	return w.p, nil
}

// appender is an io.Writer into memory.
type appender struct{ p []byte }

func (a *appender) Write(q []byte) (int, error) {
	a.p = append(a.p, q...)
	return len(q), nil
}

// Reader returns a sequential reader of the whole Blob.
func (b Blob) Reader() io.Reader { return io.NewSectionReader(b, 0, b.size) }

// memory is a Mapper over bytes in memory.
type memory []byte

func (m memory) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off > int64(len(m)) {
		return 0, io.EOF
	}
	n := copy(p, m[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (m memory) Map(off, size int64) ([]byte, error) {
	if off < 0 || size < 0 || off > int64(len(m))-size {
		return nil, io.ErrUnexpectedEOF
	}
	return m[off : off+size : off+size], nil
}

// WriteTo implements io.WriterTo: files are streamed in chunks of 1 MiB
// without being mapped, computed pieces are made once each.
func (b Blob) WriteTo(w io.Writer) (int64, error) {
	var done int64
	var buf []byte
	var made once
	for _, s := range b.spans {
		src, err := made.source(s.src)
		if err != nil {
			return done, err
		}
		if m, ok := src.(memory); ok {
			_, err = w.Write(m[s.off : s.off+s.size])
		} else {
			if buf == nil {
				buf = make([]byte, min(b.size, 1<<20))
			}
			err = copySpan(w, src, s, buf)
		}
		if err != nil {
			return done, err
		}
		done += s.size
	}
	return done, nil
}

// copySpan streams a span; a source that ends before it is an error.
func copySpan(w io.Writer, src io.ReaderAt, s span, buf []byte) error {
	if c, ok := src.(Checker); ok {
		return copyChecked(w, c, s, buf)
	}
	n, err := io.CopyBuffer(writerOnly{w}, readerOnly{io.NewSectionReader(src, s.off, s.size)}, buf)
	if err == nil && n < s.size {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// copyChecked writes what it has read while that is checked.
func copyChecked(w io.Writer, c Checker, s span, buf []byte) error {
	src := c.Unchecked()
	for s.size > 0 {
		p := buf[:min(int64(len(buf)), s.size)]
		if n, err := src.ReadAt(p, s.off); n < len(p) {
			return cmp.Or(err, io.ErrUnexpectedEOF)
		}
		wait := c.Beside(p, s.off)
		_, err := w.Write(p)
		if checked := wait(); err == nil {
			err = checked
		}
		if err != nil {
			return err
		}
		s.off += int64(len(p))
		s.size -= int64(len(p))
	}
	return nil
}

// writerOnly and readerOnly hide ReadFrom and WriteTo, so that CopyBuffer
// uses its buffer.
type writerOnly struct{ io.Writer }
type readerOnly struct{ io.Reader }
