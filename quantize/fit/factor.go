package fit

import (
	"fmt"
	"math"

	"github.com/nstf/nstf/kernels/cpu"
)

// A factor is damped second moments as products:
//
//	H + Damping I = M' D M
//
// with M unit lower triangular and D diagonal. An error matrix E then costs
//
//	tr(E (H + Damping I) E') = sum over columns k of D_k |E_k + sum over i < k of E_i M_ki|^2
//
// so that columns chosen from first to last best aim at W_k plus what the sum
// says of the errors before (LDLQ: Chee et al., QuIP, 2023, arXiv 2307.13304),
// and D says what an error there costs. A factor is immutable.
//
// M is stored in panels of factorPanel rows, each row from column 0 to the end
// of its panel, with ones on the diagonal and zeros behind them.
type factor struct {
	k       int
	damping float64
	d       []float32
	panels  [][]float32
}

// factorPanel is the number of rows that are eliminated together: products of
// the rest take so many terms at a time.
const factorPanel = 256

// bounds returns the rows of panel p; it ends at the length of its rows.
func (f *factor) bounds(p int) (from, to int) {
	return p * factorPanel, min((p+1)*factorPanel, f.k)
}

// factored factors h[k][k] plus damping times the diagonal's mean, doubled
// until the result is positive definite. All sums have one order: float32 with
// fused products, float64 within a panel.
func factored(h []float64, k int, damping float64, set *cpu.Set, pool *cpu.Pool) (*factor, error) {
	var mean float64
	for i := range k {
		mean += h[i*k+i] / float64(k)
	}
	if mean == 0 {
		mean = 1 // nothing reached this matrix: all errors count alike
	}
	for ; damping < 1e6; damping *= 2 {
		f := &factor{k: k, damping: damping * mean, d: make([]float32, k)}
		f.fill(h, pool)
		if f.eliminate(set, pool) {
			return f, nil
		}
	}
	return nil, fmt.Errorf("second moments of %d columns are not positive, however much is added to their diagonal", k)
}

// fill copies the lower triangle.
func (f *factor) fill(h []float64, pool *cpu.Pool) {
	f.panels = make([][]float32, (f.k+factorPanel-1)/factorPanel)
	pool.Run(len(f.panels), func(p int) {
		from, to := f.bounds(p)
		x := make([]float32, (to-from)*to)
		for i := from; i < to; i++ {
			row := x[(i-from)*to : (i-from+1)*to]
			for j, v := range h[i*f.k : i*f.k+i+1] {
				row[j] = float32(v)
			}
			row[i] = float32(h[i*f.k+i] + f.damping)
		}
		f.panels[p] = x
	})
}

// eliminate turns moments into M and D, panel by panel from the last, and
// reports whether they were positive definite.
func (f *factor) eliminate(set *cpu.Set, pool *cpu.Pool) bool {
	scratch := make([]cpu.GemmScratch, pool.Threads())
	for p := len(f.panels) - 1; p >= 0; p-- {
		from, to := f.bounds(p)
		width := to - from
		inverse, ok := f.diagonal(p)
		if !ok {
			return false
		}
		if p == 0 {
			break
		}
		// Column j of the panel's rows on the left, as row j of left[from][width].
		left, owed := make([]float32, from*width), make([]float32, from*width)
		panel := f.panels[p]
		pool.RunWorkers(p, func(worker, part int) {
			lo, hi := f.bounds(part)
			transpose(left[lo*width:hi*width], panel[lo:], width, hi-lo, to)
			set.GemmFusedAdd(owed[lo*width:], width, left[lo*width:], width, hi-lo, 0, width, width,
				func(dst []float32, n int) { copy(dst, inverse[n*width:(n+1)*width]) }, &scratch[worker])
		})
		// The rows of M are those of owed over D; what they explain leaves the rest.
		reciprocal := make([]float32, width)
		for i := range reciprocal {
			reciprocal[i] = -1 / f.d[from+i]
		}
		pool.RunWorkers(p, func(worker, part int) {
			q := p - 1 - part // the longest first
			lo, hi := f.bounds(q)
			set.GemmFusedAdd(f.panels[q], hi, owed[lo*width:], width, hi-lo, 0, hi, width, func(dst []float32, n int) {
				for i, v := range owed[n*width : (n+1)*width] {
					dst[i] = v * reciprocal[i]
				}
			}, &scratch[worker])
		})
		pool.Run(p, func(part int) {
			lo, hi := f.bounds(part)
			for i := range width {
				row, r := panel[i*to:], -reciprocal[i]
				for j := lo; j < hi; j++ {
					row[j] = owed[j*width+i] * r
				}
			}
		})
	}
	return true
}

// transpose writes dst[cols][rows] from src[rows][cols] with rows at distance ld.
func transpose(dst, src []float32, rows, cols, ld int) {
	for i := range rows {
		for j, v := range src[i*ld : i*ld+cols] {
			dst[j*rows+i] = v
		}
	}
}

// diagonal eliminates the square at the end of a panel in float64 and returns
// the inverse of its M', upper triangular, [width][width].
func (f *factor) diagonal(p int) (inverse []float32, ok bool) {
	from, to := f.bounds(p)
	w := to - from
	a := make([]float64, w*w)
	panel := f.panels[p]
	for i := range w {
		for j := range i + 1 {
			a[i*w+j] = float64(panel[i*to+from+j])
		}
	}
	for k := w - 1; k >= 0; k-- {
		row := a[k*w : k*w+k+1]
		d := row[k]
		// What is left of a column is no less than what was added, or rounding ate it.
		if !(d > f.damping/2 && d <= math.MaxFloat32) {
			return nil, false
		}
		f.d[from+k] = float32(d)
		for i, v := range row[:k] {
			m := v / d
			to := a[i*w : i*w+i+1]
			for j, u := range row[:i+1] {
				to[j] -= float64(m * u)
			}
		}
		for i := range row[:k] {
			row[i] /= d
		}
		row[k] = 1
	}
	for i := range w {
		for j := range i + 1 {
			panel[i*to+from+j] = float32(a[i*w+j])
		}
		clear(panel[i*to+from+i+1 : (i+1)*to])
	}
	// T = M'^-1 A from the last row up: T_k = A_k - sum over i > k of M_ik T_i.
	x := make([]float64, w*w)
	for k := w - 1; k >= 0; k-- {
		row := x[k*w : (k+1)*w]
		row[k] = 1
		for i := k + 1; i < w; i++ {
			m := a[i*w+k]
			for j, v := range x[i*w+i : (i+1)*w] {
				row[i+j] -= float64(m * v)
			}
		}
	}
	inverse = make([]float32, w*w)
	for i, v := range x {
		inverse[i] = float32(v)
	}
	return inverse, true
}
