package fit

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/kernels/cpu"
)

// batchRows is the number of rows that one worker takes through all columns:
// enough for a product with a panel of the factor to pay for reading that.
const batchRows = 256

// answer fits w[n][k] to dst with feedback: columns from first to last, each
// aiming at its weights plus what errors before it owe. It returns the
// calibrated error of each row.
func answer(ctx context.Context, dst []byte, w []float32, n, k int, s *scheme.Scheme, l *layout, f *factor, set *cpu.Set, threads, turns int) ([]float64, error) {
	loss := make([]float64, n)
	step := batches(n, threads)
	count := (n + step - 1) / step
	var next atomic.Int64
	var wait sync.WaitGroup
	for range min(threads, count) {
		wait.Go(func() {
			a := newAnswerer(s, l, f, set, step, turns)
			for i := int(next.Add(1)) - 1; i < count && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				from, to := i*step, min((i+1)*step, n)
				a.fit(dst[len(dst)/n*from:len(dst)/n*to], w[from*k:to*k], loss[from:to])
			}
		})
	}
	wait.Wait()
	return loss, ctx.Err()
}

// batches returns the rows of a batch: all threads have some, whole bands.
func batches(n, threads int) int {
	step := (n + threads - 1) / threads
	return max(lanes, min(batchRows, (step+lanes-1)/lanes*lanes))
}

// An answerer is the work space of one goroutine.
type answerer struct {
	f       *factor
	set     *cpu.Set
	band    *band
	errors  []float32 // [rows][K]: weights, and errors of the columns chosen
	owed    []float32 // [rows][factorPanel]
	scratch cpu.GemmScratch
}

func newAnswerer(s *scheme.Scheme, l *layout, f *factor, set *cpu.Set, rows, turns int) *answerer {
	return &answerer{f: f, set: set, band: newBand(s, l, set, turns), errors: make([]float32, rows*f.k), owed: make([]float32, rows*factorPanel)}
}

// fit fits some rows, whose number may be any: bands are filled with zeros.
func (a *answerer) fit(dst []byte, w []float32, loss []float64) {
	n, k := len(loss), a.f.k
	whole := (n + lanes - 1) / lanes * lanes
	copy(a.errors, w)
	clear(a.errors[len(w) : whole*k])
	rowBytes := len(dst) / n
	clear(loss)
	for p := range a.f.panels {
		from, to := a.f.bounds(p)
		owe(a.owed, a.errors, whole, a.f, p, a.set, &a.scratch)
		for r := 0; r < n; r += lanes {
			rows := min(lanes, n-r)
			load(a.band.e, a.errors[r*k+from:], lanes, to-from, k)
			load(a.band.z, a.owed[r*factorPanel:], lanes, to-from, factorPanel)
			a.band.loss = [lanes]float64{}
			a.band.answered(dst[r*rowBytes+from/a.band.scheme.Block*a.band.scheme.BlockBytes:], rowBytes, rows, a.f, p)
			for l := range rows {
				row := a.errors[(r+l)*k+from : (r+l)*k+to]
				for c := range row {
					row[c] = a.band.e[c][l]
				}
				loss[r+l] += a.band.loss[l]
			}
		}
	}
	a.f.undamp(loss, a.errors)
}

// owe computes what errors e[rows][K] before panel p owe to its columns.
func owe(owed, e []float32, rows int, f *factor, p int, set *cpu.Set, scratch *cpu.GemmScratch) {
	from, to := f.bounds(p)
	clear(owed[:rows*factorPanel])
	if from == 0 {
		return
	}
	panel := f.panels[p]
	set.GemmFusedAdd(owed, factorPanel, e, f.k, rows, 0, to-from, from, func(dst []float32, n int) { copy(dst, panel[n*to:]) }, scratch)
}

// undamp takes what the damping costs out of errors by row.
func (f *factor) undamp(loss []float64, e []float32) {
	for r := range loss {
		var sum float64
		for _, v := range e[r*f.k : (r+1)*f.k] {
			sum += float64(float64(v) * float64(v))
		}
		loss[r] = max(0, loss[r]-float64(f.damping*sum))
	}
}

// errorsOf returns e H e' of each row of e[n][K], n a multiple of 16.
func (f *factor) errorsOf(e []float32, set *cpu.Set, scratch *cpu.GemmScratch) []float64 {
	n := len(e) / f.k
	loss := make([]float64, n)
	owed := make([]float32, n*factorPanel)
	z := make([]cpu.Lane, factorPanel)
	for p, panel := range f.panels {
		from, to := f.bounds(p)
		owe(owed, e, n, f, p, set, scratch)
		_ = panel
		_ = z
		for r := range n {
			row := e[r*f.k+from : r*f.k+to]
			for c, v := range row {
				t := float64(v) + float64(owed[r*factorPanel+c])
				for i, u := range row[:c] {
					t += float64(float64(panel[c*to+from+i]) * float64(u))
				}
				loss[r] += float64(float64(f.d[from+c]) * float64(t*t))
			}
		}
	}
	f.undamp(loss, e)
	return loss
}
