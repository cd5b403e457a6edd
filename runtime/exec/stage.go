package exec

import (
	"slices"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/runtime/cpu"
	"github.com/nstf/nstf/runtime/device"
)

// A Stage is a run of a model's blocks that takes hidden states and gives
// hidden states, so that a model can be walked block by block with the work
// space of one: for calibration, and for measuring behind blocks that have been
// compressed already. It runs on the processor and serves one goroutine at a
// time.
type Stage struct {
	engine *cpu.Engine
	g      *model.Graph
}

// NewStage opens n blocks from first on. tensor returns the stored tensors by
// the names that the graph gives them; those of other blocks are not asked
// for. Of the options, Context and Device have no meaning here. A hook sees the
// numbers that blocks have in the whole graph. Errors are those of [New].
func NewStage(file string, g *model.Graph, tensor func(string) formats.Tensor, first, n int, o Options) (*Stage, error) {
	if err := check(file, g); err != nil {
		return nil, err
	}
	part := *g
	part.Blocks = slices.Clone(g.Blocks[first : first+n])
	hook := o.Hook
	if hook != nil {
		hook = func(in device.Input) {
			if in.Block >= 0 {
				in.Block += first
			}
			o.Hook(in)
		}
	}
	e, err := cpu.New(&part, tensor, cpu.Options{Threads: o.Threads, Level: o.Level, KV: o.KV, Exact: o.Exact, Pin: o.Pin, Hook: hook})
	if err != nil {
		return nil, placed(file, err)
	}
	return &Stage{engine: e, g: g}, nil
}

// Close ends the stage's threads.
func (s *Stage) Close() error { return s.engine.Close() }

// Embed writes the hidden states before the first block of the model to
// x[T][D], for the tokens of one sequence.
func (s *Stage) Embed(x []float32, tokens []int32) error {
	for i, id := range tokens {
		if id < 0 || int64(id) >= s.g.Vocab {
			return formats.Errorf("", "", "token %d at position %d is not below the vocabulary of %d", id, i, s.g.Vocab)
		}
	}
	return s.engine.Embed(x, tokens)
}

// Transform runs the stage's blocks over x[T][D], the hidden states of one
// sequence from its first position on, in place.
func (s *Stage) Transform(x []float32) error { return s.engine.Transform(x) }

// Normalize applies the model's last norm to x[T][D] in place, and shows the
// result to the hook as the head's input.
func (s *Stage) Normalize(x []float32) error { return s.engine.Normalize(x) }

// Head writes the logits of normalised hidden states x[T][D] to dst[T][Vocab].
func (s *Stage) Head(dst, x []float32) error { return s.engine.Head(dst, x) }
