package calibrate

import (
	"context"
	"errors"
	"os"

	"github.com/nstf/nstf/formats/tensor"
	"github.com/nstf/nstf/runtime/exec"
)

// Hidden is the hidden states of all windows, on their way through a model: in
// memory, or in a temporary file that is read and written a window at a time.
type Hidden struct {
	windows [][]int32
	states  [][]float32 // [T][D] of each window; nil: they lie in file
	file    *scratch
	at      []int64 // where each window's lie in file, and their end
	buffer  []float32
	raw     []byte
}

// NewHidden embeds windows by a stage that begins a model of width D.
func NewHidden(ctx context.Context, s *exec.Stage, width int, windows [][]int32) (*Hidden, error) {
	return embedded(ctx, s, width, &Hidden{windows: windows, states: make([][]float32, len(windows))})
}

// NewStoredHidden is NewHidden with the states in a temporary file in a folder
// ("": the system's), which Close removes.
func NewStoredHidden(ctx context.Context, s *exec.Stage, width int, windows [][]int32, dir string) (*Hidden, error) {
	file, err := newScratch(dir)
	if err != nil {
		return nil, err
	}
	h := &Hidden{windows: windows, file: file, at: offsets(windows, width)}
	if _, err := embedded(ctx, s, width, h); err != nil {
		h.Close()
		return nil, err
	}
	return h, nil
}

func offsets(windows [][]int32, width int) []int64 {
	at := make([]int64, 1, len(windows)+1)
	for _, w := range windows {
		at = append(at, at[len(at)-1]+Bytes(int64(len(w)), int64(width)))
	}
	return at
}

func embedded(ctx context.Context, s *exec.Stage, width int, h *Hidden) (*Hidden, error) {
	for i, w := range h.windows {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		x := make([]float32, len(w)*width)
		if err := s.Embed(x, w); err != nil {
			return nil, err
		}
		if err := h.put(i, x); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// Close removes what lies in a file.
func (h *Hidden) Close() error {
	if h.file == nil {
		return nil
	}
	return h.file.Close()
}

// HiddenOf returns hidden states that were kept: those of each window, [T][D],
// as [Hidden.States] gave them. They belong to the result.
func HiddenOf(windows [][]int32, states [][]float32) *Hidden {
	return &Hidden{windows: windows, states: states}
}

// States returns the hidden states of each window, [T][D], or nil where they lie
// in a file. They change with the next block.
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
	for i := range h.windows {
		if err := ctx.Err(); err != nil {
			return err
		}
		x, err := h.window(i, !keep)
		if err == nil {
			err = f(x)
		}
		if err == nil && keep {
			err = h.put(i, x)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// window returns the states of one window, [T][D], valid until the next call: a
// copy where they are asked for to be changed without being put back.
func (h *Hidden) window(i int, private bool) ([]float32, error) {
	if h.file == nil {
		if !private {
			return h.states[i], nil
		}
		h.buffer = append(h.buffer[:0], h.states[i]...)
		return h.buffer, nil
	}
	n := int(h.at[i+1] - h.at[i])
	h.raw, h.buffer = sized(h.raw, n), sized(h.buffer, n/4)
	if _, err := h.file.ReadAt(h.raw, h.at[i]); err != nil {
		return nil, err
	}
	return h.buffer, tensor.ToFloat32(h.buffer, h.raw, tensor.F32)
}

// put stores the states of one window.
func (h *Hidden) put(i int, x []float32) error {
	if h.file == nil {
		h.states[i] = x
		return nil
	}
	h.raw = sized(h.raw, 4*len(x))
	if err := tensor.FromFloat32(h.raw, x, tensor.F32); err != nil {
		return err
	}
	_, err := h.file.WriteAt(h.raw, h.at[i])
	return err
}

// through returns what a stage makes of the states, which stay as they were:
// stored as they are.
func (h *Hidden) through(ctx context.Context, s *exec.Stage, dir string) (*Hidden, error) {
	out := &Hidden{windows: h.windows, at: h.at}
	if h.file == nil {
		out.states = make([][]float32, len(h.windows))
	} else {
		file, err := newScratch(dir)
		if err != nil {
			return nil, err
		}
		out.file = file
	}
	for i := range h.windows {
		err := ctx.Err()
		var x []float32
		if err == nil {
			x, err = h.window(i, true)
		}
		if err == nil && h.file == nil {
			x = append([]float32(nil), x...)
		}
		if err == nil {
			err = s.Transform(x)
		}
		if err == nil {
			err = out.put(i, x)
		}
		if err != nil {
			out.Close()
			return nil, err
		}
	}
	return out, nil
}

func sized[T any](v []T, n int) []T {
	if cap(v) < n {
		return make([]T, n)
	}
	return v[:n]
}

// A scratch is a temporary file, whose name is gone at once where the system
// lets an open file lose it.
type scratch struct {
	*os.File
	named bool
	end   int64 // of what append has written
}

func newScratch(dir string) (*scratch, error) {
	f, err := os.CreateTemp(dir, ".nstf-calibrate-*")
	if err != nil {
		return nil, err
	}
	return &scratch{File: f, named: os.Remove(f.Name()) != nil}, nil
}

// append writes at the end, and returns where that was.
func (s *scratch) append(p []byte) (int64, error) {
	at := s.end
	_, err := s.WriteAt(p, at)
	s.end += int64(len(p))
	return at, err
}

// Close closes and removes it.
func (s *scratch) Close() error {
	err := s.File.Close()
	if s.named {
		err = errors.Join(err, os.Remove(s.Name()))
	}
	return err
}
