package pipeline

import (
	"context"
	"errors"

	"github.com/nstf/nstf/calibrate"
	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/ledger"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/runtime/device"
	"github.com/nstf/nstf/runtime/eval"
	"github.com/nstf/nstf/runtime/exec"
)

// Measured is what fitted tensors cost on windows that nothing was fitted on.
type Measured struct {
	KLD        ledger.Figure // of the fitted model, as it runs, from the source in float32
	Perplexity ledger.Figure
	Original   ledger.Figure // the source's perplexity
	Top1       ledger.Figure
	Floor      ledger.Figure // KLD of the source as it runs
	Drift      []float64     // behind each block: mean squared difference over the mean square
}

// Bound returns what the divergence stays below with some certainty: the mean
// and two standard errors.
func (m *Measured) Bound() float64 { return m.KLD.Mean + 2*m.KLD.SE }

// MeasureOptions say how fitted tensors are measured.
type MeasureOptions struct {
	Threads int          // 0: all
	On      *exec.Opened // the device that measures; nil: the processor does
	// Progress is called with what is done and all there is; nil: nobody.
	Progress func(done, total int64)
}

// Measure measures fitted tensors of a model on held-out windows.
func Measure(ctx context.Context, m *model.Model, tensors map[string]formats.Tensor, held [][]int32, options MeasureOptions) (*Measured, error) {
	var steps int64 // of three walks
	o, progress := eval.CompareOptions{Threads: options.Threads, On: options.On}, options.Progress
	if progress != nil {
		o.Progress = func(done, total int64) { progress(steps*total+done, 3*total) }
	}
	r, err := eval.Compare(ctx, m.With(tensors), m, held, o)
	if err != nil {
		return nil, err
	}
	steps++
	floor, err := eval.Compare(ctx, m, m, held, o)
	if err != nil {
		return nil, err
	}
	steps++
	out := &Measured{KLD: figure(r.Ref.KL), Perplexity: figure(r.Perplexity), Original: figure(r.Ref.Perplexity),
		Top1: figure(r.Ref.Top1), Floor: figure(floor.Ref.KL)}
	out.Drift, err = drift(ctx, m, tensors, held, options)
	if progress != nil {
		progress(3, 3)
	}
	return out, err
}

func figure(e eval.Estimate) ledger.Figure { return ledger.Figure{Mean: e.Value, SE: e.StdErr} }

// sides are hidden states of the original, and of what is compressed.
type sides [2]*calibrate.Hidden

func (s *sides) close() error { return errors.Join(s[0].Close(), s[1].Close()) }

// distance returns the squared difference of the second from the first over the square
// of that.
func (s *sides) distance() (float64, error) {
	var d, sum float64
	for i := range s[0].Windows() {
		a, err := s[0].Window(i)
		if err != nil {
			return 0, err
		}
		b, err := s[1].Window(i)
		if err != nil {
			return 0, err
		}
		for j, v := range a {
			off := float64(b[j]) - float64(v)
			d += off * off
			sum += float64(v) * float64(v)
		}
	}
	if sum == 0 {
		return 0, nil
	}
	return d / sum, nil
}

// drift walks the windows through the source and through the fitted tensors
// side by side.
func drift(ctx context.Context, m *model.Model, tensors map[string]formats.Tensor, held [][]int32, o MeasureOptions) ([]float64, error) {
	both := [2]*model.Model{m, m.With(tensors)}
	var hidden sides
	defer hidden.close()
	out := make([]float64, len(m.Graph.Blocks))
	for i := range out {
		for side, of := range both {
			if err := through(ctx, of, &hidden[side], i, held, o); err != nil {
				return nil, err
			}
		}
		var err error
		if out[i], err = hidden.distance(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// through moves hidden states through a block, and makes them before the first.
func through(ctx context.Context, m *model.Model, h **calibrate.Hidden, block int, windows [][]int32, o MeasureOptions) error {
	run := func(span device.Span, f func(walk *exec.Walker) error) error {
		walk, err := exec.NewWalker(m.Path, m.Graph, m.Tensor, span, walkOptions(windows, o.Threads, o.On))
		if err != nil {
			return err
		}
		return errors.Join(f(walk), walk.Close())
	}
	if *h == nil {
		keep, err := keepOn(m, windows, o.On)
		if err != nil {
			return err
		}
		err = run(device.Embedding(), func(walk *exec.Walker) (err error) {
			*h, err = calibrate.NewHidden(ctx, walk, m.Graph, windows, keep)
			return err
		})
		if err != nil {
			return err
		}
	}
	return run(device.Block(block), func(walk *exec.Walker) error { return (*h).Through(ctx, walk, true) })
}
