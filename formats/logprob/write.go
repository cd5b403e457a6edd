package logprob

import (
	"fmt"
	"math"

	"github.com/zeebo/blake3"

	"github.com/nstf/nstf/formats/atomicfile"
)

// A Writer writes a file window by window; it appears under its name at
// Close. Abort, deferred, leaves nothing after a failure.
type Writer struct {
	f    *atomicfile.File
	h    Header
	buf  []byte
	done int64
}

// Create starts a file after checking that the disk has room for it.
func Create(out *atomicfile.Output, h Header) (*Writer, error) {
	if err := h.check(out.Path(), math.MaxInt64-headerSize); err != nil {
		return nil, err
	}
	f, err := out.Create(h.Size())
	if err != nil {
		return nil, err
	}
	w := &Writer{f: f, h: h, buf: make([]byte, h.windowSize())}
	if _, err := f.WriteAt(h.encode(), 0); err != nil {
		f.Abort()
		return nil, err
	}
	return w, nil
}

func (h *Header) encode() []byte {
	p := make([]byte, headerSize)
	copy(p, Magic)
	le.PutUint32(p[8:], version)
	le.PutUint32(p[12:], h.Protocol)
	le.PutUint32(p[16:], uint32(h.Vocab))
	le.PutUint32(p[20:], uint32(h.Window))
	le.PutUint32(p[24:], uint32(h.Rows))
	le.PutUint64(p[32:], uint64(h.Windows))
	copy(p[40:], h.Tokens[:])
	sum := blake3.Sum256(p[:headerSize-hashSize])
	copy(p[headerSize-hashSize:], sum[:])
	return p
}

// Put encodes one row of the window in progress: log-probabilities [V] and
// the token that follows. Rows of one window may be put from several
// goroutines; all of them before Flush.
func (w *Writer) Put(row int, logp []float64, target int) {
	if len(logp) != w.h.Vocab {
		panic(fmt.Sprintf("logprob: a row of %d where the vocabulary has %d", len(logp), w.h.Vocab))
	}
	size := w.h.rowSize()
	encode(w.buf[int64(row)*size:int64(row+1)*size], logp, target)
}

// Flush writes the window in progress.
func (w *Writer) Flush() error {
	rows := w.buf[:int64(len(w.buf))-hashSize]
	sum := blake3.Sum256(rows)
	copy(w.buf[len(rows):], sum[:])
	_, err := w.f.WriteAt(w.buf, headerSize+w.done*w.h.windowSize())
	w.done++
	return err
}

// Close gives the file its name. It fails where windows are missing.
func (w *Writer) Close() error {
	if w.done != w.h.Windows {
		w.f.Abort()
		return fmt.Errorf("logprob: %d windows written of %d", w.done, w.h.Windows)
	}
	return w.f.Commit()
}

// Abort removes what was written. After Close it does nothing.
func (w *Writer) Abort() { w.f.Abort() }
