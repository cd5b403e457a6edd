package pipeline

import (
	"context"
	"math"

	"github.com/nstf/nstf/calibrate"
	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/ledger"
	"github.com/nstf/nstf/formats/model"
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

// Measure measures fitted tensors of a model on held-out windows.
func Measure(ctx context.Context, m *model.Model, tensors map[string]formats.Tensor, held [][]int32, threads int, progress func(done, total int64)) (*Measured, error) {
	var steps int64 // of three walks
	o := eval.CompareOptions{Threads: threads}
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
	out.Drift, err = drift(ctx, m, tensors, held, threads)
	if progress != nil {
		progress(3, 3)
	}
	return out, err
}

func figure(e eval.Estimate) ledger.Figure { return ledger.Figure{Mean: e.Value, SE: e.StdErr} }

// drift walks the windows through the source and through the fitted tensors
// side by side.
func drift(ctx context.Context, m *model.Model, tensors map[string]formats.Tensor, held [][]int32, threads int) ([]float64, error) {
	sides := [2]*model.Model{m, m.With(tensors)}
	var hidden [2]*calibrate.Hidden
	out := make([]float64, len(m.Graph.Blocks))
	for i := range out {
		for side, of := range sides {
			if err := through(ctx, of, &hidden[side], i, held, threads); err != nil {
				return nil, err
			}
		}
		out[i] = distance(hidden[0].States(), hidden[1].States())
	}
	return out, nil
}

// through moves hidden states through a block, and makes them before the first.
func through(ctx context.Context, m *model.Model, h **calibrate.Hidden, block int, windows [][]int32, threads int) error {
	s, err := exec.NewStage(m.Path, m.Graph, m.Tensor, block, 1, exec.Options{Threads: threads, Exact: true})
	if err != nil {
		return err
	}
	defer s.Close()
	if *h == nil {
		if *h, err = calibrate.NewHidden(ctx, s, int(m.Graph.Width), windows); err != nil {
			return err
		}
	}
	return (*h).Through(ctx, s, true)
}

// distance returns the squared difference of b from a over the square of a.
func distance(a, b [][]float32) float64 {
	var d, sum float64
	for i := range a {
		for j, v := range a[i] {
			d += math.Pow(float64(b[i][j])-float64(v), 2)
			sum += float64(v) * float64(v)
		}
	}
	if sum == 0 {
		return 0
	}
	return d / sum
}
