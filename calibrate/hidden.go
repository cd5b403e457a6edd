package calibrate

import (
	"context"

	"github.com/nstf/nstf/runtime/exec"
)

// Hidden is the hidden states of all windows, on their way through a model.
type Hidden struct {
	windows [][]int32
	states  [][]float32 // [T][D] of each window
}

// NewHidden embeds windows by a stage that begins a model of width D.
func NewHidden(ctx context.Context, s *exec.Stage, width int, windows [][]int32) (*Hidden, error) {
	h := &Hidden{windows: windows}
	for _, w := range windows {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		x := make([]float32, len(w)*width)
		if err := s.Embed(x, w); err != nil {
			return nil, err
		}
		h.states = append(h.states, x)
	}
	return h, nil
}

// HiddenOf returns hidden states that were kept: those of each window, [T][D],
// as [Hidden.States] gave them. They belong to the result.
func HiddenOf(windows [][]int32, states [][]float32) *Hidden {
	return &Hidden{windows: windows, states: states}
}

// States returns the hidden states of each window, [T][D]. They change with
// the next block.
func (h *Hidden) States() [][]float32 { return h.states }

// Bytes returns the memory that hidden states of so many tokens take.
func Bytes(tokens, width int64) int64 { return 4 * tokens * width }

// Through runs a stage over the states. Where keep is false they stay as they
// were: the stage's hook has seen what its linears read, and that was all.
func (h *Hidden) Through(ctx context.Context, s *exec.Stage, keep bool) error {
	return h.each(ctx, keep, s.Transform)
}

// Normalize applies the model's last norm; what comes out is the head's input.
func (h *Hidden) Normalize(ctx context.Context, s *exec.Stage, keep bool) error {
	return h.each(ctx, keep, s.Normalize)
}

func (h *Hidden) each(ctx context.Context, keep bool, f func(x []float32) error) error {
	var copied []float32
	for _, x := range h.states {
		if err := ctx.Err(); err != nil {
			return err
		}
		if !keep {
			copied = append(copied[:0], x...)
			x = copied
		}
		if err := f(x); err != nil {
			return err
		}
	}
	return nil
}

// clone copies the states.
func (h *Hidden) clone() *Hidden {
	out := &Hidden{windows: h.windows}
	for _, x := range h.states {
		out.states = append(out.states, append([]float32(nil), x...))
	}
	return out
}
