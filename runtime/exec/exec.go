package exec

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/runtime/cpu"
	"github.com/nstf/nstf/runtime/device"
)

// Options say how a model is executed.
type Options struct {
	Threads int    // 0: as many as Go runs at once (GOMAXPROCS)
	Context int64  // positions of a sequence; 0: what the model was made for
	Level   string // SIMD level by its name; "": the best this machine runs
	// KV is how keys and values are kept: f32, f16 (relative error 2^-12) or q8
	// (a signed byte each, with scales: see kernels/cpu.KVQ8); "": f16, or f32
	// where Exact is set.
	KV string
	// Exact asks for float32 throughout: activations, and keys and values where
	// KV does not say otherwise.
	Exact bool
	// Activations is how they are rounded: "" for what Exact says, or
	// cpu.ActivationsLlamaCPP, which means nothing on a GPU.
	Activations string
	// Pin keeps each worker thread on a processor of its own. Linux only.
	Pin bool
	// Hook sees the input of every linear, for calibration; nil: none. All
	// rows are computed then, wanted or not. The processor's only.
	Hook device.Hook
	// Device is where the model runs. On a GPU, Threads, Level and Pin mean
	// nothing, and a Context of 0 is what fits where the model's does not.
	Device Device
}

// An Executor is a model ready to run.
type Executor struct {
	g       *model.Graph
	context int64

	mu      sync.Mutex // one pass at a time
	backend device.Backend
	maxRows int // the backend's
	batch   device.Batch
	rows    []float32 // logits of several rows
}

// New opens a model's weights: on the processor they are mapped, not read, to
// a GPU they are copied. Errors name the tensor. Close ends what it started; the
// model is the caller's to close, afterwards.
func New(m *model.Model, o Options) (*Executor, error) {
	return newExecutor(m.Path, m.Graph, m.Tensor, o)
}

func newExecutor(file string, g *model.Graph, tensor func(string) formats.Tensor, o Options) (*Executor, error) {
	if err := check(file, g); err != nil {
		return nil, err
	}
	b, context, err := newBackend(g, tensor, &o)
	if err != nil {
		return nil, placed(file, err)
	}
	return &Executor{g: g, context: context, backend: b, maxRows: b.MaxRows()}, nil
}

// placed names the file in an error that has none.
func placed(file string, err error) error {
	var f *formats.FormatError
	var u *formats.UnsupportedError
	switch {
	case errors.As(err, &f) && f.File == "":
		f.File = file
	case errors.As(err, &u) && u.File == "":
		u.File = file
	}
	return err
}

// Close ends the executor's threads, or gives the GPU's memory back.
func (e *Executor) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.backend.Close()
}

// Meter returns what measures the device, nil for the processor. No pass may be
// running while it does.
func (e *Executor) Meter() device.Meter {
	m, _ := e.backend.(device.Meter)
	return m
}

// Activations returns what Options.Activations came to, "" on a GPU.
func (e *Executor) Activations() string {
	if c, ok := e.backend.(*cpu.Engine); ok {
		return c.Activations()
	}
	return ""
}

// MaxRows returns the most tokens that one pass takes.
func (e *Executor) MaxRows() int { return e.maxRows }

// Graph returns the graph that is executed.
func (e *Executor) Graph() *model.Graph { return e.g }

// Context returns the positions of a sequence.
func (e *Executor) Context() int64 { return e.context }

// Memory returns the bytes of weights and work space.
func (e *Executor) Memory() device.Memory {
	e.mu.Lock()
	defer e.mu.Unlock()
	m := e.backend.Memory()
	m.Scratch += int64(cap(e.rows)) * 4
	return m
}

// CacheBytes returns what the keys and values of so many positions take, or an
// error where the number overflows.
func (e *Executor) CacheBytes(positions int64) (int64, error) {
	return e.backend.CacheBytes(positions)
}

// NewSequence returns an empty sequence of up to [Executor.Context] positions.
// Its memory grows with its length.
func (e *Executor) NewSequence() (*Sequence, error) {
	c, err := e.backend.NewCache(e.context)
	if err != nil {
		return nil, err
	}
	return &Sequence{e: e, cache: c, logits: make([]float32, e.g.Vocab)}, nil
}

// StepBatch appends tokens[i] to seqs[i], all in one pass that reads the
// weights once, and returns the logits that follow each, valid until the next
// call on that sequence. Where a sequence is full or a token unknown, no
// sequence has changed. It panics where a sequence occurs twice or belongs to
// another executor.
func (e *Executor) StepBatch(seqs []*Sequence, tokens []int32) ([][]float32, error) {
	if len(seqs) != len(tokens) {
		panic(fmt.Sprintf("exec: %d sequences with %d tokens", len(seqs), len(tokens)))
	}
	for i, s := range seqs {
		if s.e != e || slices.Index(seqs[:i], s) >= 0 {
			panic(fmt.Sprintf("exec: sequence %d of the batch is another executor's or occurs twice", i))
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, s := range seqs {
		if err := s.admit(tokens[i : i+1]); err != nil {
			return nil, err
		}
	}
	out := make([][]float32, len(seqs))
	for i, s := range seqs {
		if err := s.rejoin(s.cache.Len() + 1); err != nil {
			return nil, err
		}
		out[i] = s.logits
	}
	for lo := 0; lo < len(seqs); lo += e.maxRows {
		if err := e.stepRows(seqs[lo:min(lo+e.maxRows, len(seqs))], tokens[lo:]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (e *Executor) stepRows(seqs []*Sequence, tokens []int32) error {
	e.batch.From, e.batch.Segments = 0, e.batch.Segments[:0]
	for i, s := range seqs {
		e.batch.Segments = append(e.batch.Segments, device.Segment{Cache: s.cache, Tokens: tokens[i : i+1], Length: s.cache.Len() + 1})
	}
	if err := e.backend.Forward(&e.batch); err != nil {
		return err
	}
	for i, s := range seqs {
		s.append(tokens[i:i+1], s.cache.Len())
	}
	return e.eachLogits(0, len(seqs), func(row int, logits []float32) error {
		copy(seqs[row].logits, logits)
		return nil
	})
}

// forward runs new tokens of one sequence and records them.
func (e *Executor) forward(s *Sequence, tokens []int32, from int, length int64) error {
	e.batch.From = from
	e.batch.Segments = append(e.batch.Segments[:0], device.Segment{Cache: s.cache, Tokens: tokens, Length: length})
	if err := e.backend.Forward(&e.batch); err != nil {
		return err
	}
	s.append(tokens, length)
	return nil
}

// headFloats bounds the logits that are held at once.
const headFloats = 8 << 20

// eachLogits computes the logits of rows lo to hi of the last pass, some rows
// at a time, and calls f with each.
func (e *Executor) eachLogits(lo, hi int, f func(row int, logits []float32) error) error {
	vocab := int(e.g.Vocab)
	step := min(max(headFloats/vocab, 8), hi-lo)
	if cap(e.rows) < step*vocab {
		e.rows = make([]float32, step*vocab)
	}
	for ; lo < hi; lo += step {
		n := min(step, hi-lo)
		if err := e.backend.Logits(lo, lo+n, e.rows[:n*vocab]); err != nil {
			return err
		}
		for i := range n {
			if err := f(lo+i, e.rows[i*vocab:(i+1)*vocab]); err != nil {
				return err
			}
		}
	}
	return nil
}
