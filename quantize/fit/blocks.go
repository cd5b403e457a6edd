package fit

import (
	"context"
	"math"
	"sync"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
	"github.com/nstf/nstf/kernels/cpu"
)

// How ways to fit a matrix are compared: on compared rows, and one that is
// better by sure standard errors of the mean difference of a row is taken
// without fitting the whole matrix by the others. Were differences Gaussian,
// that would be wrong once in a billion matrices.
const (
	compared = 64
	sure     = 6
)

// A blockJob fits rows of a matrix to a scheme of blocks.
type blockJob struct {
	name   string
	s      *scheme.Scheme
	layout *layout
	in     *Input
	f      *factor // nil: errors are not answered
	set    *cpu.Set
	o      Options
	turns  int
	n, k   int
}

func newBlockJob(name string, n, k int, s *scheme.Scheme, in *Input, o Options) (*blockJob, error) {
	j := &blockJob{name: name, s: s, layout: fitters[s.Name].layout, in: in, set: cpu.Best(), o: o, turns: turns(o.Effort), n: n, k: k}
	if in != nil && j.turns > 0 {
		var err error
		if j.f, err = in.factor(j.set, o.threads()); err != nil {
			return nil, formats.Errorf("", name, "%v", err)
		}
	}
	return j, nil
}

func (j *blockJob) check(w []float32) error { return fitters[j.s.Name].check(j.s, w, nil, j.k) }

// diagonal reports whether errors are weighed by the moments' diagonal alone.
func (j *blockJob) diagonal() bool { return j.in != nil && j.f == nil }

func (j *blockJob) losses(ctx context.Context, e []float32) ([]float64, error) {
	if j.diagonal() {
		return j.in.diagonalErrors(ctx, e, j.o)
	}
	return j.in.losses(ctx, e, j.k, j.o)
}

func (j *blockJob) measured() (spans, bool) {
	if j.diagonal() {
		return spans{{0, j.n}}, false
	}
	return j.in.measured(j.n)
}

// turns is how often a block is searched, 0 where errors are not answered.
func turns(effort int) int {
	if effort == 0 {
		effort = 3
	}
	return min(effort-1, 8)
}

// methods returns the ways that the whole matrix is to be fitted by.
func (j *blockJob) methods(ctx context.Context, rows Rows) ([]string, error) {
	all := []string{MethodPlain, MethodWeighted, MethodFeedback}
	switch {
	case j.in == nil:
		return all[:1], nil
	case j.turns == 0:
		return all[1:2], nil
	case j.o.sample:
		return all[2:], nil
	case j.n <= compared:
		return all, nil
	}
	some := tiles(j.n, compared)
	w, err := some.from(rows)
	if err == nil {
		err = some.blamed(j.check(w))
	}
	if err != nil {
		return nil, err
	}
	var losses [3][]float64
	for i, m := range all {
		if _, losses[i], err = j.fit(ctx, w, m); err != nil {
			return nil, err
		}
	}
	if better(losses[2], losses[0]) && better(losses[2], losses[1]) {
		return all[2:], nil
	}
	return all, nil
}

// better reports whether the losses of rows are surely lower on average.
func better(a, b []float64) bool {
	n := float64(len(a))
	var mean, square float64
	for i, v := range a {
		d := b[i] - v
		mean += d / n
		square += float64(d*d) / n
	}
	variance := max(0, square-float64(mean*mean)) / n
	return mean > 0 && mean >= sure*math.Sqrt(variance)
}

// fit fits rows by one method and returns their calibrated errors too.
func (j *blockJob) fit(ctx context.Context, w []float32, method string) (t formats.Tensor, loss []float64, err error) {
	n, rowBytes := len(w)/j.k, j.k/j.s.Block*j.s.BlockBytes
	dst := make([]byte, n*rowBytes)
	if method == MethodFeedback {
		loss, err = answer(ctx, dst, w, n, j.k, j.s, j.layout, j.f, j.set, j.o)
	} else {
		loss, err = j.rounded(ctx, dst, w, n, method)
	}
	if err != nil {
		return t, nil, err
	}
	t, err = scheme.New(j.name, j.s, []int64{int64(n), int64(j.k)}, nil, tensor.BytesBlob(dst))
	return t, loss, err
}

// rounded fits rows without answers.
func (j *blockJob) rounded(ctx context.Context, dst []byte, w []float32, n int, method string) ([]float64, error) {
	rowBytes := len(dst) / n
	var importance []float32
	if method == MethodWeighted {
		importance = j.in.diagonal
	}
	e := make([]float32, len(w))
	err := spread(ctx, n, j.o, func() func(from, to int) {
		b := newBand(j.s, j.layout, j.set, 1)
		return func(from, to int) {
			for r := from; r < to; r += lanes {
				rows := min(lanes, to-r)
				b.rounded(dst[r*rowBytes:], w[r*j.k:(r+rows)*j.k], e[r*j.k:], importance, rows, j.k)
			}
		}
	})
	if err != nil {
		return nil, err
	}
	return j.losses(ctx, e)
}

// spread calls what start returns, once in each of some goroutines, for whole
// batches of n rows.
func spread(ctx context.Context, n int, o Options, start func() func(from, to int)) error {
	step := batches(n, o.threads())
	count := (n + step - 1) / step
	work := make(chan int, count)
	for i := range count {
		work <- i
	}
	close(work)
	var wait sync.WaitGroup
	for range min(o.threads(), count) {
		wait.Go(func() {
			f := start()
			o.Turn.take()
			defer o.Turn.give()
			for i := range work {
				if ctx.Err() != nil {
					return
				}
				o.Turn.pass()
				f(i*step, min((i+1)*step, n))
			}
		})
	}
	wait.Wait()
	return ctx.Err()
}

// batchRows is the number of rows that one goroutine takes through all columns:
// enough for a product with a panel of the factor to pay for reading that.
const batchRows = 256

// batches returns the rows of a batch: all threads have some, whole bands.
func batches(n, threads int) int {
	step := (n + threads - 1) / threads
	return max(lanes, min(batchRows, (step+lanes-1)/lanes*lanes))
}
