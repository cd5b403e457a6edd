package calibrate

import (
	"context"
	"errors"
	"path/filepath"
	goruntime "runtime"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/stats"
	"github.com/nstf/nstf/formats/tensor"
	"github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/runtime/device"
	"github.com/nstf/nstf/runtime/exec"
)

// Options say how a model is measured.
type Options struct {
	Threads int // 0: all
	// On is the opened device that measures; nil: the processor does.
	On *exec.Opened
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

// keep says where hidden states of windows are kept on the way through a model by stages
// of the options.
func (o *Options) keep(m *model.Model, windows [][]int32, gather bool) (Keep, error) {
	reserve, err := o.On.Need(m, exec.Walk{Context: longest(windows), Gather: gather})
	if !gather {
		reserve = 2*reserve + Beside(m) // one with what is stored, one with errors
	}
	return Keep{On: o.On, Reserve: reserve, Most: o.Memory / 2, Dir: o.Dir}, err
}

// walk returns the options of a walk that windows are run through, in float32.
func (o *Options) walk(windows [][]int32) exec.Options {
	return exec.Options{Threads: o.threads(), Exact: true, On: o.On, Context: int64(longest(windows))}
}

// level names what computes: the processor's instruction set, or the device.
func (o *Options) level() string {
	if o.On != nil {
		return o.On.String()
	}
	return cpu.Best().Arithmetic()
}

func longest(windows [][]int32) (n int) {
	for _, w := range windows {
		n = max(n, len(w))
	}
	return n
}

// Measure runs windows through a model, block by block, and returns what its
// linears read: all but the sensitivities. The caller closes the result. Errors
// are those of the model's tensors, of temporary files, the context's, and a
// FormatError where a number is not finite.
func Measure(ctx context.Context, m *model.Model, windows [][]int32, o Options) (*stats.File, error) {
	w := measurement{m: m, o: o, windows: windows, out: stats.New()}
	if err := w.run(ctx); err != nil {
		w.out.Close()
		return nil, err
	}
	return w.out, nil
}

// A measurement carries hidden states through a model and collects what its linears read.
type measurement struct {
	m       *model.Model
	o       Options
	windows [][]int32
	out     *stats.File
	hidden  *Hidden
	held    int64    // bytes of hidden states and moments in memory
	moments *scratch // of inputs that do not fit it; nil: none yet
}

func (w *measurement) run(ctx context.Context) error {
	var err error
	if w.out.Source, err = Source(w.m, w.windows, w.o); err != nil {
		return err
	}
	g := w.m.Graph
	if err := w.walk(device.Embedding(), func(walk *exec.Walker) error { return w.embed(ctx, walk) }); err != nil {
		return err
	}
	defer w.hidden.Close()
	for i := range g.Blocks {
		if err := w.gather(ctx, device.Block(i), func(walk *exec.Walker, lo, hi int, last bool) error {
			return w.hidden.ThroughSome(ctx, walk, lo, hi, last)
		}); err != nil {
			return err
		}
		if w.o.Progress != nil {
			w.o.Progress(int64(i+1), int64(len(g.Blocks)))
		}
	}
	return w.gather(ctx, device.Head(g), func(walk *exec.Walker, lo, hi int, _ bool) error { return w.hidden.Show(ctx, walk, lo, hi) })
}

// embed makes the hidden states, in memory where they take at most half of it.
func (w *measurement) embed(ctx context.Context, walk *exec.Walker) error {
	keep, err := w.o.keep(w.m, w.windows, true)
	if err != nil {
		return err
	}
	if w.hidden, err = NewHidden(ctx, walk, w.m.Graph, w.windows, keep); err == nil {
		w.held = w.hidden.Held()
	}
	return err
}

// input keeps the moments of one input: in memory as long as there is some.
func (w *measurement) input(m *Moments) (*stats.Input, error) {
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

// Source says what is measured of a model.
func Source(m *model.Model, windows [][]int32, o Options) (stats.Source, error) {
	hash, err := stats.Fingerprint(m)
	s := stats.Source{Model: filepath.Base(m.Path), ModelHash: hash, Text: filepath.Base(o.Text), TextHash: stats.HashWindows(windows),
		Windows: len(windows), Seed: o.Seed, Level: o.level(), Tool: o.Tool}
	for _, ids := range windows {
		s.Tokens += int64(len(ids))
		s.Context = max(s.Context, len(ids))
	}
	return s, err
}

// Pack returns what was gathered of a span as statistics without a source. It shares nothing
// with the sums.
func Pack(m *model.Model, span device.Span, g *Gathered) (*stats.File, error) {
	w := measurement{m: m, out: stats.New()}
	return w.out, w.pack(span, g)
}

// gather measures what a span reads while f runs windows lo to hi, for the last time with last.
func (w *measurement) gather(ctx context.Context, span device.Span, f func(walk *exec.Walker, lo, hi int, last bool) error) error {
	var g *Gathered
	err := w.walk(span, func(walk *exec.Walker) (err error) {
		g, err = Gather(ctx, w.m, walk, w.hidden.Groups(), func(lo, hi int, last bool) error { return f(walk, lo, hi, last) })
		return err
	})
	if err != nil {
		return formats.In(w.m.Path, err)
	}
	return w.pack(span, g)
}

// pack puts what was gathered of a span into the statistics.
func (w *measurement) pack(span device.Span, g *Gathered) (err error) {
	for name, m := range g.Inputs {
		if w.out.Inputs[name], err = w.input(m); err != nil {
			return err
		}
	}
	for name, list := range g.Experts {
		if w.out.Experts[name], err = w.experts(span.Lo, name, list); err != nil {
			return err
		}
	}
	return nil
}

// experts returns the inputs of a stack's matrices, all of them.
func (w *measurement) experts(block int, name string, list []*Moments) (_ []*stats.Input, err error) {
	b, n := &w.m.Graph.Blocks[block], int64(0)
	for _, p := range b.Parts(w.m.Graph.Width) {
		if p.Linear != nil && p.Linear.Input == name {
			n = max(n, p.Experts)
		}
	}
	out := make([]*stats.Input, n)
	for i := range out {
		if i >= len(list) || list[i] == nil {
			out[i] = &stats.Input{K: w.out.Inputs[name].K}
		} else if out[i], err = w.input(list[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// walk runs f on a span in float32 arithmetic.
func (w *measurement) walk(span device.Span, f func(walk *exec.Walker) error) error {
	walk, err := exec.NewWalker(w.m.Path, w.m.Graph, w.m.Tensor, span, w.o.walk(w.windows))
	if err != nil {
		return err
	}
	return errors.Join(f(walk), walk.Close())
}
