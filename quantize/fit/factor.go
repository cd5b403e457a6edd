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
// M is found in panels of factorPanel rows, cut into squares, with ones on the
// diagonal and zeros behind it. Where M is wanted whole all squares stay; else
// those on the diagonal do, and the others are rounded for products.
type factor struct {
	k       int
	share   float64 // of the diagonal's mean: the damping
	damping float64
	d       []float32
	squares [][][]float32 // [panel][panel up to it], rows at distance squareStride
	answers [][]cpu.Fixed // [panel][panel before it]
}

// squareStride is the distance of rows of squares, and of what is owed to them.
const squareStride = factorPanel + rowGap

// own returns the square of panel p that lies on the diagonal.
func (f *factor) own(p int) []float32 { return f.squares[p][p] }

// row copies the columns of row c of a whole M up to the diagonal.
func (f *factor) row(dst []float32, c int) {
	for q, square := range f.squares[c/factorPanel] {
		copy(dst[q*factorPanel:c+1], square[c%factorPanel*squareStride:][:factorPanel])
	}
}

// rowGap sets rows apart whose length is a multiple of a page, since a cache
// keeps few lines at the same place of a page.
const rowGap = 16

// factorPanel is the number of rows that are eliminated together: products of
// the rest take so many terms at a time.
const factorPanel = cpu.FixedBlock

// bounds returns the rows of panel p.
func (f *factor) bounds(p int) (from, to int) {
	return p * factorPanel, min((p+1)*factorPanel, f.k)
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
// the result is positive definite; whole keeps all squares of M. What panels do
// to the rest is computed in words of 16 bits, at twice the speed of float32, but
// for squares where that is too coarse: it costs 1e-5 of the loss (TestFactor).
// Where the result is not positive definite, float32 is tried everywhere. All sums have one order: whole
// numbers, float32 with fused products, float64 within a panel.
func factored(m *moments, share float64, whole bool, set *cpu.Set, pool *cpu.Pool) (*factor, error) {
	var mean float64
	for i := range m.k { // rotations leave it as it is
		mean += m.h[i*m.k+i] / float64(m.k)
	}
	if mean == 0 {
		mean = 1 // nothing reached this matrix: all errors count alike
	}
	for ; share < 1e6; share *= 2 {
		for _, exact := range []bool{false, true} {
			f := &factor{k: m.k, share: share, damping: share * mean, d: make([]float32, m.k)}
			f.fill(m, pool)
			e := newEliminator(f, whole, exact, set, pool)
			if e.run() {
				return f, nil
			}
		}
	}
	return nil, fmt.Errorf("second moments of %d columns are not positive, however much is added to their diagonal", m.k)
}

// fill copies the lower triangle.
func (f *factor) fill(m *moments, pool *cpu.Pool) {
	f.squares = make([][][]float32, (f.k+factorPanel-1)/factorPanel)
	buffers := make([][]float64, pool.Threads())
	pool.RunWorkers(len(f.squares), func(worker, p int) {
		if buffers[worker] == nil {
			buffers[worker] = make([]float64, factorPanel*f.k)
		}
		h := buffers[worker]
		from, to := f.bounds(p)
		m.rows(h[:(to-from)*f.k], from, to)
		f.squares[p] = make([][]float32, p+1)
		for q := range f.squares[p] {
			lo, hi := f.bounds(q)
			x := make([]float32, (to-from)*squareStride)
			for i := range to - from {
				row := x[i*squareStride:]
				for j, v := range h[i*f.k+lo : i*f.k+min(hi, from+i+1)] {
					row[j] = float32(v)
				}
				if p == q {
					row[i] = float32(h[i*f.k+from+i] + f.damping)
				}
			}
			f.squares[p][q] = x
		}
	})
}

// An eliminator turns moments into M and D, panel by panel from the last.
type eliminator struct {
	*factor
	whole, exact bool
	set          *cpu.Set
	pool         *cpu.Pool
	scratch      []cpu.GemmScratch
	rows         []cpu.Fixed // of a worker
	// Of panels before the one that is eliminated: column j of its rows as row j,
	// what H owes there, and that over -D, the rows of M, which leave the rest.
	left, owed, gone     []float32
	owedFixed, goneFixed []cpu.Fixed
}

func newEliminator(f *factor, whole, exact bool, set *cpu.Set, pool *cpu.Pool) *eliminator {
	n, threads := len(f.squares), pool.Threads()
	e := &eliminator{factor: f, whole: whole, exact: exact, set: set, pool: pool,
		scratch: make([]cpu.GemmScratch, threads), rows: make([]cpu.Fixed, threads),
		left: make([]float32, f.k*squareStride), owed: make([]float32, f.k*squareStride), gone: make([]float32, f.k*squareStride)}
	if !exact {
		e.owedFixed, e.goneFixed = make([]cpu.Fixed, n), make([]cpu.Fixed, n)
	}
	if !whole {
		f.answers = make([][]cpu.Fixed, n)
	}
	return e
}

// run reports whether the moments were positive definite.
func (e *eliminator) run() bool {
	last := len(e.squares) - 1
	inverse, ok := e.diagonal(last)
	for p := last; p >= 0 && ok; p-- {
		if !e.whole {
			e.answers[p] = make([]cpu.Fixed, p)
		}
		e.pool.RunWorkers(p, func(worker, part int) { e.solve(p, part, inverse, worker) })
		var next []float32
		e.pool.RunWorkers(p, func(worker, part int) {
			e.update(p, p-1-part, worker) // the longest first, whose end others would wait for
			if part == 0 {
				next, ok = e.diagonal(p - 1)
			}
		})
		inverse = next
	}
	return ok
}

// solve finds the columns of panel p that lie in an earlier panel.
func (e *eliminator) solve(p, part int, inverse []float32, worker int) {
	from, to := e.bounds(p)
	lo, hi := e.bounds(part)
	width, ld := to-from, squareStride
	square := e.squares[p][part]
	x, y, z := e.left[lo*ld:hi*ld], e.owed[lo*ld:hi*ld], e.gone[lo*ld:hi*ld]
	transpose(x, ld, square, ld, width, hi-lo)
	clear(y)
	e.set.GemmFusedAdd(y, ld, x, ld, hi-lo, 0, width, width,
		func(dst []float32, n int) { copy(dst, inverse[n*width:(n+1)*width]) }, &e.scratch[worker])
	for j := 0; j < len(z); j += ld {
		for i, d := range e.d[from:to] {
			m := y[j+i] / d
			x[j+i], z[j+i] = m, -m // the columns are no longer needed
		}
	}
	transpose(square, ld, x, ld, hi-lo, width)
	rows := &e.rows[worker]
	if !e.whole {
		e.set.FixLeft(rows, square, ld, width, hi-lo)
		e.set.FixRight(&e.answers[p][part], rows)
		e.squares[p][part] = nil
	}
	if !e.exact {
		e.set.FixLeft(rows, z, ld, hi-lo, width)
		e.set.FixRight(&e.goneFixed[part], rows)
		e.set.FixLeft(&e.owedFixed[part], y, ld, hi-lo, width)
	}
}

// roundingShare of the damping may be off in an element. Where few channels have
// most of the trace and move together, as some do in language models, the squares
// of their panels are beyond that: of what such channels weigh little is left.
const roundingShare = 1.0 / 64

// update takes panel p out of an earlier one.
func (e *eliminator) update(p, q, worker int) {
	lo, hi := e.bounds(q)
	for part := range q + 1 {
		if !e.exact && cpu.FixedError(&e.owedFixed[q], &e.goneFixed[part]) <= e.damping*roundingShare {
			e.set.FixedAdd(e.squares[q][part], squareStride, &e.owedFixed[q], &e.goneFixed[part])
			continue
		}
		from, to := e.bounds(p)
		first, last := e.bounds(part)
		e.set.GemmFusedAdd(e.squares[q][part], squareStride, e.owed[lo*squareStride:], squareStride, hi-lo, 0, last-first, to-from,
			func(dst []float32, n int) { copy(dst, e.gone[(first+n)*squareStride:]) }, &e.scratch[worker])
	}
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
	const ld = squareStride
	w := to - from
	a := make([]float64, w*w)
	square := f.own(p)
	for i := range w {
		for j := range i + 1 {
			a[i*w+j] = float64(square[i*ld+j])
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
			square[i*ld+j] = float32(a[i*w+j])
		}
		clear(square[i*ld+i+1 : (i+1)*ld])
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
