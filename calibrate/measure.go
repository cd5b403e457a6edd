package calibrate

import (
	"context"
	"path/filepath"
	goruntime "runtime"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/stats"
	"github.com/nstf/nstf/formats/tensor"
	"github.com/nstf/nstf/runtime/exec"
)

// Options say how a model is measured.
type Options struct {
	Threads int // 0: all
	// Memory is how many bytes hidden states and finished moments may take;
	// what is beyond lies in a temporary file. 0: no limit.
	Memory int64
	Dir    string // of temporary files; "": the system's
	// Text, Seed and Tool go into the result's source.
	Text string
	Seed uint64
	Tool string
	// Progress is called with the blocks done and all there are; nil: nobody.
	Progress func(done, total int64)
}

func (o *Options) threads() int {
	if o.Threads > 0 {
		return o.Threads
	}
	return goruntime.GOMAXPROCS(0)
}

// Measure runs windows through a model, block by block, and returns what its
// linears read: all but the sensitivities. The caller closes the result. Errors
// are those of the model's tensors, of temporary files, the context's, and a
// FormatError where a number is not finite.
func Measure(ctx context.Context, m *model.Model, windows [][]int32, o Options) (*stats.File, error) {
	w := walker{m: m, o: o, windows: windows, out: &stats.File{Inputs: map[string]*stats.Input{}, Experts: map[string][]*stats.Input{}, Sensitivity: map[string]float64{}}}
	if err := w.run(ctx); err != nil {
		w.out.Close()
		return nil, err
	}
	return w.out, nil
}

// A walker carries hidden states through a model.
type walker struct {
	m       *model.Model
	o       Options
	windows [][]int32
	out     *stats.File
	hidden  *Hidden
	held    int64    // bytes of hidden states and moments in memory
	moments *scratch // of inputs that do not fit it; nil: none yet
}

func (w *walker) run(ctx context.Context) error {
	if err := w.source(); err != nil {
		return err
	}
	g := w.m.Graph
	if err := w.stage(0, 0, nil, func(s *exec.Stage) error { return w.embed(ctx, s) }); err != nil {
		return err
	}
	defer w.hidden.Close()
	for i := range g.Blocks {
		if err := w.gather(ctx, i, 1, func(s *exec.Stage) error { return w.hidden.Through(ctx, s, true) }); err != nil {
			return err
		}
		if w.o.Progress != nil {
			w.o.Progress(int64(i+1), int64(len(g.Blocks)))
		}
	}
	return w.gather(ctx, len(g.Blocks), 0, func(s *exec.Stage) error { return w.hidden.Normalize(ctx, s, false) })
}

// embed makes the hidden states, in memory where they take at most half of it.
func (w *walker) embed(ctx context.Context, s *exec.Stage) (err error) {
	width := int(w.m.Graph.Width)
	size := Bytes(w.out.Source.Tokens, int64(width))
	if w.o.Memory > 0 && size > w.o.Memory/2 {
		w.hidden, err = NewStoredHidden(ctx, s, width, w.windows, w.o.Dir)
		return err
	}
	w.held = size
	w.hidden, err = NewHidden(ctx, s, width, w.windows)
	return err
}

// input keeps the moments of one input: in memory as long as there is some.
func (w *walker) input(m *Moments) (*stats.Input, error) {
	size := 2 * int64(m.K) * int64(m.K+1)
	if m.Tokens == 0 || w.o.Memory <= 0 || w.held+size <= w.o.Memory {
		w.held += size
		return m.Input(), nil
	}
	if w.moments == nil {
		file, err := newScratch(w.o.Dir)
		if err != nil {
			return nil, err
		}
		w.moments = file
		w.out.Owns(file)
	}
	raw := make([]byte, size)
	if err := tensor.FromFloat32(raw, m.packed(), tensor.F32); err != nil {
		return nil, err
	}
	at, err := w.moments.append(raw)
	return stats.NewStoredInput(m.K, m.Tokens, tensor.NewBlob(w.moments, at, size), m.AbsMax), err
}

// source says what is measured.
func (w *walker) source() error {
	hash, err := stats.Fingerprint(w.m)
	if err != nil {
		return err
	}
	s := &w.out.Source
	*s = stats.Source{Model: filepath.Base(w.m.Path), ModelHash: hash, Text: filepath.Base(w.o.Text), TextHash: stats.HashWindows(w.windows),
		Windows: len(w.windows), Seed: w.o.Seed, Tool: w.o.Tool}
	for _, ids := range w.windows {
		s.Tokens += int64(len(ids))
		s.Context = max(s.Context, len(ids))
	}
	return nil
}

// gather measures what n blocks from first on read while f runs them.
func (w *walker) gather(ctx context.Context, first, n int, f func(s *exec.Stage) error) error {
	g := NewGatherer(w.o.threads())
	g.PerExpert = true
	err := w.stage(first, n, g, f)
	g.Close()
	if err != nil {
		return placed(w.m.Path, err)
	}
	if err := g.Err(); err != nil {
		return Blame(ctx, w.m, placed(w.m.Path, err))
	}
	w.out.Source.Level = g.Level()
	for name, m := range g.Inputs {
		if w.out.Inputs[name], err = w.input(m); err != nil {
			return err
		}
	}
	for name, list := range g.Experts {
		if w.out.Experts[name], err = w.experts(first, name, list); err != nil {
			return err
		}
	}
	return nil
}

// experts returns the inputs of a mixture's experts, all of them.
func (w *walker) experts(block int, name string, list []*Moments) (_ []*stats.Input, err error) {
	out := make([]*stats.Input, w.m.Graph.Blocks[block].MoE.Experts)
	for i := range out {
		if i >= len(list) || list[i] == nil {
			out[i] = &stats.Input{K: w.out.Inputs[name].K}
		} else if out[i], err = w.input(list[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// stage opens n blocks from first on in float32 arithmetic.
func (w *walker) stage(first, n int, g *Gatherer, f func(s *exec.Stage) error) error {
	o := exec.Options{Threads: w.o.threads(), Exact: true}
	if g != nil {
		o.Hook = g.Hook
	}
	s, err := exec.NewStage(w.m.Path, w.m.Graph, w.m.Tensor, first, n, o)
	if err != nil {
		return err
	}
	defer s.Close()
	return f(s)
}

// placed names the file that an error of a format comes from.
func placed(file string, err error) error {
	if f, ok := err.(*formats.FormatError); ok && f.File == "" {
		f.File = file
	}
	return err
}
