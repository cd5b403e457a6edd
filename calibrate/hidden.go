package calibrate

import (
	"context"
	"errors"
	"os"

	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/tensor"
	"github.com/nstf/nstf/runtime/device"
	"github.com/nstf/nstf/runtime/exec"
)

// A Keep says where hidden states are kept: on an opened device as long as there is room
// beside Reserve, the rest in memory, or in a temporary file.
type Keep struct {
	On      *exec.Opened
	Reserve int64  // bytes of the device that are left for stages
	Most    int64  // bytes of memory for the rest, else it lies in a file; 0: no limit
	Dir     string // of the file; "": the system's
}

// Hidden is the hidden states of all windows, on their way through a model: those of the
// first windows on a device, those of the others in memory, or in a temporary file that
// is read and written a window at a time.
type Hidden struct {
	keep    Keep
	windows [][]int32
	width   int   // of a row: the hidden state, and what blocks read of others before them
	states  int   // numbers of a hidden state
	at      []int // first row of each window, and the end of the last
	groups  []int // first of the windows that a device is given at once, and the end

	near   device.Rows // nil: none
	n      int         // windows that are near
	far    []float32   // of the others [T][D], where they are in memory
	file   *scratch    // nil: they are in memory
	buffer []float32
	narrow []float32
	raw    []byte
}

// NewHidden embeds windows by a walker of a span that embeds. Close gives what holds
// them back, before the device is closed.
func NewHidden(ctx context.Context, walk *exec.Walker, g *graph.Graph, windows [][]int32, keep Keep) (*Hidden, error) {
	return newHidden(int(g.WidestRow()), int(g.Width), windows, keep, func(h *Hidden) error {
		return h.each(ctx, func(lo, hi int) error {
			return h.change(lo, hi, false, func(p exec.Part) error { return walk.Embed(p, windows[lo:hi]) })
		})
	})
}

// HiddenOf returns hidden states that were kept: read fills in the rows of window i, as
// [Hidden.Rows] gave them.
func HiddenOf(g *graph.Graph, windows [][]int32, keep Keep, read func(i int, x []float32) error) (*Hidden, error) {
	width := int(g.WidestRow())
	return newHidden(width, int(g.Width), windows, keep, func(h *Hidden) error {
		for i, w := range windows {
			x := make([]float32, len(w)*width)
			err := read(i, x)
			if err == nil {
				err = h.change(i, i+1, false, func(p exec.Part) error { return p.Rows.Store(p.At, len(w), device.Host(x)) })
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// newHidden finds places, which fill fills.
func newHidden(width, states int, windows [][]int32, keep Keep, fill func(h *Hidden) error) (*Hidden, error) {
	h := &Hidden{keep: keep, windows: windows, width: width, states: states, at: make([]int, 1, len(windows)+1)}
	for _, w := range windows {
		h.at = append(h.at, h.at[len(h.at)-1]+len(w))
	}
	h.group()
	err := h.place()
	if err == nil {
		err = fill(h)
	}
	if err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return h, nil
}

// group divides the windows: one by one for the processor, some together for a device,
// wherever they lie, since what it computes may depend on what goes through together.
func (h *Hidden) group() {
	for i := range h.windows {
		if n := len(h.groups); n == 0 || h.keep.On == nil || h.at[i+1]-h.at[h.groups[n-1]] > atOnce {
			h.groups = append(h.groups, i)
		}
	}
	h.groups = append(h.groups, len(h.windows))
}

func (h *Hidden) place() (err error) {
	room, err := h.keep.On.Room(h.width, h.keep.Reserve)
	if err != nil {
		return err
	}
	for _, end := range h.groups {
		if int64(h.at[end]) <= room {
			h.n = end
		}
	}
	if h.at[h.n] > 0 {
		h.near, err = h.keep.On.NewRows(h.at[h.n], h.width)
		if exec.Full(err) { // of pieces that are free
			h.near, h.n, err = nil, 0, nil
		}
	}
	switch rest := h.end() - h.at[h.n]; {
	case err != nil || rest == 0:
	case h.keep.Most > 0 && Bytes(int64(rest), int64(h.width)) > h.keep.Most:
		h.file, err = newScratch(h.keep.Dir)
	default:
		h.far = make([]float32, rest*h.width)
	}
	return err
}

// end is the number of all rows.
func (h *Hidden) end() int { return h.at[len(h.at)-1] }

// Close gives back what holds the states.
func (h *Hidden) Close() error {
	if h == nil {
		return nil
	}
	var errs []error
	if h.near != nil {
		errs = append(errs, h.near.Release())
	}
	if h.file != nil {
		errs = append(errs, h.file.Close())
	}
	h.near, h.file, h.far = nil, nil, nil
	return errors.Join(errs...)
}

// Held returns the bytes of the processor's memory that the states take.
func (h *Hidden) Held() int64 { return 4 * int64(len(h.far)) }

// Bytes returns the memory that hidden states of so many tokens take.
func Bytes(tokens, width int64) int64 { return 4 * tokens * width }

// Through takes a walker over the states. Where keep is false they stay as they were: what
// linears read was gathered, and that was all.
func (h *Hidden) Through(ctx context.Context, walk *exec.Walker, keep bool) error {
	return h.ThroughSome(ctx, walk, 0, len(h.windows), keep)
}

// ThroughSome is [Hidden.Through] of windows lo to hi, which are whole groups of [Keep.Groups].
func (h *Hidden) ThroughSome(ctx context.Context, walk *exec.Walker, lo, hi int, keep bool) error {
	return h.some(ctx, lo, hi, func(lo, hi int) error {
		if !keep {
			from, err := h.part(lo, hi, true)
			if err != nil {
				return err
			}
			return walk.Transform(exec.Part{}, from, h.windows[lo:hi])
		}
		return h.change(lo, hi, true, func(p exec.Part) error { return walk.Transform(p, p, h.windows[lo:hi]) })
	})
}

// Show has a walker of the head see the states of windows lo to hi, which are whole groups of
// [Keep.Groups].
func (h *Hidden) Show(ctx context.Context, walk *exec.Walker, lo, hi int) error {
	return h.some(ctx, lo, hi, func(lo, hi int) error {
		from, err := h.part(lo, hi, true)
		if err != nil {
			return err
		}
		return walk.Show(from, h.windows[lo:hi])
	})
}

// Behind returns what a walker makes of the states, which stay as they were: kept as
// they are.
func (h *Hidden) Behind(ctx context.Context, walk *exec.Walker) (*Hidden, error) {
	return newHidden(h.width, h.states, h.windows, h.keep, func(out *Hidden) error {
		return h.each(ctx, func(lo, hi int) error {
			from, err := h.part(lo, hi, true)
			if err != nil {
				return err
			}
			return out.change(lo, hi, false, func(to exec.Part) error { return walk.Transform(to, from, h.windows[lo:hi]) })
		})
	})
}

// Groups says where the windows are cut, see [Keep.Groups].
func (h *Hidden) Groups() []int { return h.keep.Groups(h.windows) }

// Windows returns the windows.
func (h *Hidden) Windows() [][]int32 { return h.windows }

// Window returns the states of one window, [T][D], valid until the next call.
func (h *Hidden) Window(i int) ([]float32, error) {
	x, err := h.Rows(i)
	if err != nil || h.states == h.width {
		return x, err
	}
	rows := len(h.windows[i])
	h.narrow = sized(h.narrow, rows*h.states)
	for r := range rows {
		copy(h.narrow[r*h.states:(r+1)*h.states], x[r*h.width:])
	}
	return h.narrow, nil
}

// Rows returns the rows of one window, of [graph.Graph.WidestRow] numbers, valid until
// the next call.
func (h *Hidden) Rows(i int) ([]float32, error) {
	p, err := h.part(i, i+1, true)
	if err != nil {
		return nil, err
	}
	rows := len(h.windows[i])
	if x, ok := p.Rows.(device.HostRows); ok {
		return x.X[p.At*h.width : (p.At+rows)*h.width], nil
	}
	h.buffer = sized(h.buffer, rows*h.width)
	return h.buffer, p.Rows.Slice(p.At, p.At+rows).Read(h.buffer)
}

// atOnce is how many rows a device is given at once, of several windows.
const atOnce = 2048

// each calls f with the windows that go through together.
func (h *Hidden) each(ctx context.Context, f func(lo, hi int) error) error {
	return h.some(ctx, 0, len(h.windows), f)
}

// some is each for windows from to end.
func (h *Hidden) some(ctx context.Context, from, end int, f func(lo, hi int) error) error {
	for i, hi := range h.groups[1:] {
		lo := h.groups[i]
		if lo < from || hi > end {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := f(lo, hi); err != nil {
			return err
		}
	}
	return nil
}

// part returns where windows lie that are all near or all far: those of a file in
// memory, with what they are where they are to be read.
func (h *Hidden) part(lo, hi int, read bool) (exec.Part, error) {
	switch {
	case hi <= h.n:
		return exec.Part{Rows: h.near, At: h.at[lo], Width: h.width}, nil
	case h.file == nil:
		return exec.Part{Rows: device.HostRows{X: h.far, Width: h.width}, At: h.at[lo] - h.at[h.n], Width: h.width}, nil
	}
	n := (h.at[hi] - h.at[lo]) * h.width
	h.buffer = sized(h.buffer, n)
	p := exec.Part{Rows: device.HostRows{X: h.buffer, Width: h.width}, Width: h.width}
	if !read {
		return p, nil
	}
	h.raw = sized(h.raw, 4*n)
	if _, err := h.file.ReadAt(h.raw, h.offset(lo)); err != nil {
		return p, err
	}
	return p, tensor.ToFloat32(h.buffer, h.raw, tensor.F32)
}

// offset is where a window lies in the file.
func (h *Hidden) offset(i int) int64 { return Bytes(int64(h.at[i]-h.at[h.n]), int64(h.width)) }

// change has f write windows.
func (h *Hidden) change(lo, hi int, read bool, f func(p exec.Part) error) error {
	p, err := h.part(lo, hi, read)
	if err == nil {
		err = f(p)
	}
	if err != nil || h.file == nil || hi <= h.n {
		return err
	}
	h.raw = sized(h.raw, 4*len(h.buffer))
	if err := tensor.FromFloat32(h.raw, h.buffer, tensor.F32); err != nil {
		return err
	}
	_, err = h.file.WriteAt(h.raw, h.offset(lo))
	return err
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
