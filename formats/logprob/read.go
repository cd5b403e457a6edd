package logprob

import (
	"bytes"
	"io"
	"math"

	"github.com/zeebo/blake3"

	"github.com/nstf/nstf/formats"
)

// A Reader reads a file window by window, in any order.
type Reader struct {
	Header
	name string
	src  io.ReaderAt
	file io.Closer // nil where the caller owns src
	buf  []byte
}

// Is reports whether a file begins with the format's magic.
func Is(path string) bool {
	p, err := formats.ReadHead(path, len(Magic))
	return err == nil && string(p) == Magic
}

// Open opens a file and checks its header and size.
func Open(path string) (*Reader, error) {
	f, err := formats.OpenFile(path)
	if err != nil {
		return nil, err
	}
	r, err := NewReader(path, f, f.Size())
	if err != nil {
		f.Close()
		return nil, err
	}
	r.file = f
	return r, nil
}

// NewReader reads a file of size bytes through src; name is for messages.
func NewReader(name string, src io.ReaderAt, size int64) (*Reader, error) {
	if size < headerSize {
		return nil, formats.Errorf(name, "", "%d bytes, less than the header's %d", size, headerSize)
	}
	p := make([]byte, headerSize)
	if _, err := src.ReadAt(p, 0); err != nil && err != io.EOF {
		return nil, err
	}
	if !bytes.HasPrefix(p, []byte(Magic)) {
		return nil, formats.ErrorAt(name, "", 0, "not stored log-probabilities: starts with %q", p[:8])
	}
	if v := le.Uint32(p[8:]); v != version {
		return nil, formats.Unsupportedf(name, "", "version %d of stored log-probabilities", v)
	}
	if sum := blake3.Sum256(p[:headerSize-hashSize]); !bytes.Equal(sum[:], p[headerSize-hashSize:]) {
		return nil, formats.ErrorAt(name, "", 0, "the header is damaged: its hash is another")
	}
	r := &Reader{name: name, src: src}
	if err := r.decode(p); err != nil {
		return nil, err
	}
	if err := r.check(name, size-headerSize); err != nil {
		return nil, err
	}
	if r.Size() != size {
		return nil, formats.Errorf(name, "", "%d bytes where the header says %d", size, r.Size())
	}
	return r, nil
}

func (r *Reader) decode(p []byte) error {
	r.Protocol = le.Uint32(p[12:])
	vocab, window, rows := le.Uint32(p[16:]), le.Uint32(p[20:]), le.Uint32(p[24:])
	windows := le.Uint64(p[32:])
	copy(r.Tokens[:], p[40:])
	if vocab > maxVocab || window > maxWindow || windows > maxWindows {
		return formats.ErrorAt(r.name, "", 16, "vocabulary %d, window %d, %d windows: beyond the limits", vocab, window, windows)
	}
	if le.Uint32(p[28:]) != 0 || bytes.Count(p[72:96], []byte{0}) != 24 {
		return formats.ErrorAt(r.name, "", 28, "reserved bytes are not zero")
	}
	r.Vocab, r.Window, r.Rows, r.Windows = int(vocab), int(window), int(min(rows, maxWindow)), int64(windows)
	return nil
}

// Read returns the rows of a window, which are valid until the next call. It
// panics where there is no such window.
func (r *Reader) Read(window int64) ([]Row, error) {
	if window < 0 || window >= r.Windows {
		panic("logprob: no such window")
	}
	if r.buf == nil {
		r.buf = make([]byte, r.windowSize())
	}
	at := headerSize + window*r.windowSize()
	if n, err := r.src.ReadAt(r.buf, at); n < len(r.buf) {
		return nil, err
	}
	data := r.buf[:len(r.buf)-hashSize]
	if sum := blake3.Sum256(data); !bytes.Equal(sum[:], r.buf[len(data):]) {
		return nil, formats.ErrorAt(r.name, "", at, "window %d is damaged: its hash is another", window)
	}
	rows := make([]Row, r.Rows)
	size := int(r.rowSize())
	for i := range rows {
		p := data[i*size : (i+1)*size]
		rows[i] = Row{
			Max:    math.Float32frombits(le.Uint32(p)),
			Step:   math.Float32frombits(le.Uint32(p[4:])),
			Target: math.Float32frombits(le.Uint32(p[8:])),
			Argmax: int32(le.Uint32(p[12:])),
			codes:  p[rowHead:],
		}
		if err := r.checkRow(&rows[i], at+int64(i*size)); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// checkRow refuses numbers that a writer cannot have written.
func (r *Reader) checkRow(row *Row, at int64) error {
	finite := func(x float32) bool { return !math.IsNaN(float64(x)) && !math.IsInf(float64(x), 0) }
	if !finite(row.Max) || !finite(row.Step) || !finite(row.Target) || row.Step < 0 || row.Argmax < 0 || int(row.Argmax) >= r.Vocab {
		return formats.ErrorAt(r.name, "", at, "a row of largest %v, step %v, target %v, token %d", row.Max, row.Step, row.Target, row.Argmax)
	}
	return nil
}

// Close closes the file.
func (r *Reader) Close() error {
	if r.file == nil {
		return nil
	}
	return r.file.Close()
}
