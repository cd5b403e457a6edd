package fit

import (
	"fmt"
	"math"
	"slices"

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
	share   float64 // of the diagonal's mean: the damping
	damping float64
	d       []float32
	panels  [][]float32 // rows at distance stride
}

// rowGap sets rows apart whose length is a multiple of a page, since a cache
// keeps few lines at the same place of a page.
const rowGap = 16

// factorPanel is the number of rows that are eliminated together: products of
// the rest take so many terms at a time.
const factorPanel = 256

// bounds returns the rows of panel p; it ends at the length of its rows.
func (f *factor) bounds(p int) (from, to int) {
	return p * factorPanel, min((p+1)*factorPanel, f.k)
}

// stride is the distance of rows of panel p.
func (f *factor) stride(p int) int {
	_, to := f.bounds(p)
	return to + rowGap
}

// moments are second moments h[k][k] as a factor wants them: of columns in
// reversed order, or of an input rotated in blocks (see [TCQ]).
type moments struct {
	h        []float64
	k        int
	reversed bool
	rotate   int // 1: not
	seed     int64
}

// rows writes rows from to to, factorPanel at most and none but the last panel
// shorter, of the whole matrix.
func (m *moments) rows(dst []float64, from, to int) {
	first := from
	if m.reversed {
		first = m.k - to
	}
	copy(dst, m.h[first*m.k:(first+to-from)*m.k])
	rotateTiles(dst, to-from, m.k, m.rotate, m.seed)
	if m.reversed {
		slices.Reverse(dst)
	}
}

// factored factors moments plus a share of the diagonal's mean, doubled until
// the result is positive definite. All sums have one order: float32 with fused
// products, float64 within a panel.
func factored(m *moments, share float64, set *cpu.Set, pool *cpu.Pool) (*factor, error) {
	var mean float64
	for i := range m.k { // rotations leave it as it is
		mean += m.h[i*m.k+i] / float64(m.k)
	}
	if mean == 0 {
		mean = 1 // nothing reached this matrix: all errors count alike
	}
	for ; share < 1e6; share *= 2 {
		f := &factor{k: m.k, share: share, damping: share * mean, d: make([]float32, m.k)}
		f.fill(m, pool)
		if f.eliminate(set, pool) {
			return f, nil
		}
	}
	return nil, fmt.Errorf("second moments of %d columns are not positive, however much is added to their diagonal", m.k)
}

// fill copies the lower triangle.
func (f *factor) fill(m *moments, pool *cpu.Pool) {
	f.panels = make([][]float32, (f.k+factorPanel-1)/factorPanel)
	buffers := make([][]float64, pool.Threads())
	pool.RunWorkers(len(f.panels), func(worker, p int) {
		if buffers[worker] == nil {
			buffers[worker] = make([]float64, factorPanel*f.k)
		}
		h := buffers[worker]
		from, to := f.bounds(p)
		m.rows(h[:(to-from)*f.k], from, to)
		ld := f.stride(p)
		x := make([]float32, (to-from)*ld)
		for i := range to - from {
			row := x[i*ld:]
			for j, v := range h[i*f.k : i*f.k+from+i] {
				row[j] = float32(v)
			}
			row[from+i] = float32(h[i*f.k+from+i] + f.damping)
		}
		f.panels[p] = x
	})
}

// eliminate turns moments into M and D, panel by panel from the last, and
// reports whether they were positive definite.
func (f *factor) eliminate(set *cpu.Set, pool *cpu.Pool) bool {
	scratch := make([]cpu.GemmScratch, pool.Threads())
	// Column j of a panel's rows on the left as row j, what H owes there, and that
	// over -D: the rows of M, which leave the rest.
	const ld = factorPanel + rowGap
	left, owed, gone := make([]float32, f.k*ld), make([]float32, f.k*ld), make([]float32, f.k*ld)
	for p := len(f.panels) - 1; p >= 0; p-- {
		from, to := f.bounds(p)
		width := to - from
		inverse, ok := f.diagonal(p)
		if !ok {
			return false
		}
		panel, stride := f.panels[p], f.stride(p)
		pool.RunWorkers(p, func(worker, part int) {
			lo, hi := f.bounds(part)
			x, y := left[lo*ld:hi*ld], owed[lo*ld:hi*ld]
			transpose(x, ld, panel[lo:], stride, width, hi-lo)
			clear(y)
			set.GemmFusedAdd(y, ld, x, ld, hi-lo, 0, width, width,
				func(dst []float32, n int) { copy(dst, inverse[n*width:(n+1)*width]) }, &scratch[worker])
			z := gone[lo*ld : hi*ld]
			for j := 0; j < len(z); j += ld {
				for i, d := range f.d[from:to] {
					m := y[j+i] / d
					x[j+i], z[j+i] = m, -m // the columns are no longer needed
				}
			}
			transpose(panel[lo:], stride, x, ld, hi-lo, width)
		})
		pool.RunWorkers(p, func(worker, part int) {
			q := p - 1 - part // the longest first
			lo, hi := f.bounds(q)
			set.GemmFusedAdd(f.panels[q], f.stride(q), owed[lo*ld:], ld, hi-lo, 0, hi, width,
				func(dst []float32, n int) { copy(dst, gone[n*ld:]) }, &scratch[worker])
		})
	}
	return true
}

// transpose writes dst[cols][rows] from src[rows][cols], both with rows at some
// distance, in squares that stay in the cache.
func transpose(dst []float32, dstStride int, src []float32, srcStride, rows, cols int) {
	const side = 16
	for i0 := 0; i0 < rows; i0 += side {
		for j0 := 0; j0 < cols; j0 += side {
			for i := i0; i < min(i0+side, rows); i++ {
				for j, v := range src[i*srcStride+j0 : i*srcStride+min(j0+side, cols)] {
					dst[(j0+j)*dstStride+i] = v
				}
			}
		}
	}
}

// diagonal eliminates the square at the end of a panel in float64 and returns
// the inverse of its M', upper triangular, [width][width].
func (f *factor) diagonal(p int) (inverse []float32, ok bool) {
	from, to := f.bounds(p)
	w, ld := to-from, f.stride(p)
	a := make([]float64, w*w)
	panel := f.panels[p]
	for i := range w {
		for j := range i + 1 {
			a[i*w+j] = float64(panel[i*ld+from+j])
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
			panel[i*ld+from+j] = float32(a[i*w+j])
		}
		clear(panel[i*ld+from+i+1 : (i+1)*ld])
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
