// Package device says what runtime/exec asks of a device: run the rows of a
// [Batch] through a graph, remember their keys and values, and give logits.
//
// A [Backend] holds one model. It sees whole passes, not single operations,
// so that each device fuses, captures and orders them as suits it. Tokens come
// in, logits go out as float32; hidden states stay on the device. Why passes:
// docs/decisions/0005-a-backend-runs-passes.md.
//
// Invariants: for one graph all backends give the same logits within the
// tolerance that their tests state, and one backend gives the same bits
// whatever its number of threads. A Backend is used by one goroutine at a
// time; its caches belong to it.
//
// Compatibility: experimental.
package device

import (
	"context"

	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/runtime/sample"
)

// A Backend executes one model on one kind of device.
type Backend interface {
	// NewCache returns an empty cache for a sequence of up to capacity
	// positions. It reserves no memory beyond bookkeeping.
	NewCache(capacity int64) (Cache, error)

	// Forward runs all rows of the batch through the blocks and appends their
	// keys and values to the segments' caches. Where it fails (memory for a
	// cache cannot be had, the device is lost) nothing was appended.
	Forward(b *Batch) error

	// Logits computes the logits of rows lo to hi of the last Forward into
	// dst[hi-lo][Vocab]. The rows must lie at or after the batch's From; it
	// panics elsewhere, and fails only where the device does.
	Logits(lo, hi int, dst []float32) error

	// MaxRows returns the most rows that a batch may have. It bounds the work
	// space; weights are read once per pass.
	MaxRows() int

	// Memory returns the bytes of the weights and of the work space.
	Memory() Memory

	// CacheBytes returns what a cache of the given number of positions takes,
	// or an error where that number of bytes does not fit an int64.
	CacheBytes(positions int64) (int64, error)

	Close() error
}

// A Decoder is a Backend that can choose tokens by itself, so that nothing but
// their ids leaves the device while it decodes.
type Decoder interface {
	// Decode begins to choose tokens as the sampler does, the first from the
	// logits of the last row of the last Forward, whose last segment was c's.
	// history is the tokens that a repetition penalty looks at. It returns nil
	// where the device does not do what the sampler's options ask for.
	Decode(c Cache, s *sample.Sampler, history []int32) (Decoding, error)
}

// A Meter is a Backend that measures what its device can do: the processor's
// limits are runtime/place's to measure.
type Meter interface {
	Name() string // of the device
	// CopyRate copies device memory far beyond its caches once and returns the
	// bytes read and written in a second.
	CopyRate() (float64, error)
	// Profile times the kernels of a pass of so many rows, up to the last row's
	// logits: one such pass, or a Decode for one row, has been made before. The
	// whole pass comes first, then the largest.
	Profile(rows int) ([]KernelTime, error)
}

// A KernelTime is what the launches of one kernel take in a pass.
type KernelTime struct {
	Name         string  `json:"name"`
	Calls        int     `json:"calls"`
	Microseconds float64 `json:"us"` // of all calls
}

// A Tuner is a Backend that looks for the divisions of its work that are fastest
// on its device.
type Tuner interface {
	// Tune tries them on the model's weights, tells done about each operation, and
	// keeps what it found for all later Backends on such a device; the file is
	// returned, "" where there is no place. A pass, and a Decode, have been made
	// before.
	Tune(ctx context.Context, done func(Tuned)) (file string, err error)
}

// A Tuned is what was found for one operation of a pass. Times are in
// microseconds, of all calls.
type Tuned struct {
	Operation string  `json:"operation"`
	Rows      int     `json:"rows"` // of the pass
	Calls     int     `json:"calls"`
	Usual     float64 `json:"usual_us"`
	Best      float64 `json:"best_us"`
	Choice    string  `json:"choice"`
}

// A Decoding is tokens in the making. Until Stop nothing else may be asked of
// its backend.
type Decoding interface {
	// Next returns the next token. From the second call on, the token returned
	// before becomes a part of the cache first; there is room for it.
	Next() (int32, error)
	// Stop ends it; a second time it does nothing. The cache holds what it did
	// after the last Next.
	Stop() error
}

// A Cache holds the keys and values of one sequence.
type Cache interface {
	Len() int64       // positions held
	Truncate(n int64) // forget all positions from n on
	Bytes() int64     // memory held
}

// A Batch is the rows of one pass: new tokens of one or more sequences, one
// segment after the other. Row r of the batch is the r-th token counted
// through all segments.
type Batch struct {
	Segments []Segment
	// From is the first row whose hidden state is wanted. Of the rows before
	// it only keys and values are.
	From int
}

// A Segment is new tokens of one sequence. They follow the positions that the
// cache holds.
type Segment struct {
	Cache  Cache
	Tokens []int32
	// Length chooses the frequencies of rotary embeddings that depend on the
	// length of the sequence (see model.Rope.Frequencies): that of the pass
	// which the tokens are a part of, the last position plus one.
	Length int64
}

// Rows returns the number of rows.
func (b *Batch) Rows() int {
	n := 0
	for i := range b.Segments {
		n += len(b.Segments[i].Tokens)
	}
	return n
}

// Memory says how many bytes a backend uses, caches aside.
type Memory struct {
	Mapped   int64 // weights read from the mapped file, shared with the page cache
	Resident int64 // weights and tables copied into memory
	Scratch  int64 // work space, at its largest so far
}

// An Input is what one linear reads in one pass: X[T][K], rows without gaps,
// valid during the call. It is made for calibration.
type Input struct {
	Linear *model.Linear
	Block  int // -1 for the head
	Expert int // -1 outside a mixture's experts; T then counts the tokens routed to it
	X      []float32
	T      int
}

// A Hook sees the input of every linear before it is multiplied. Linears that
// share an input are shown one after the other, in the order of execution.
type Hook func(Input)
