package cpu

import (
	"github.com/nstf/nstf/formats/scheme"
	kernels "github.com/nstf/nstf/kernels/cpu"
)

// rotated is what a matrix of the scheme tcq has beside its codewords: W x is
// Out(C In(x)), so activations are turned once for a matrix, multiplied with
// codewords, and the sums turned back.
type rotated struct {
	scheme.TCQ
	codes   *kernels.TCQ
	in, out []float32 // scales of columns and rows, or nil
	exact   bool      // multiply in float32 alone
}

// rotatedWork is the matrices in progress, which turn their input alike.
type rotatedWork struct {
	group  [maxGroup]target
	starts [maxGroup + 1]int // first part of each
	n      int
	x      []float32 // turned
	t      int
	acts   kernels.Activations
}

// rotatedPart is the outputs of one part: a multiple of every block.
const rotatedPart = scheme.TCQMaxRotate

// useRotation reads the parts of the scheme tcq for multiplication.
func (m *matrix) useRotation(set *kernels.Set, w *scheme.Matrix, exact bool) {
	r := &rotated{TCQ: scheme.ParseTCQ(w.Params), exact: exact}
	r.codes = set.NewTCQ(r.TCQ, m.n, m.k, w.Data(0), w.Data(1))
	next := 2
	if r.OutScales {
		r.out = tcqScales(set, w.Data(next), m.n)
		next++
	}
	if r.InScales {
		r.in = tcqScales(set, w.Data(next), m.k)
	}
	m.rotated = r
}

func tcqScales(set *kernels.Set, data []byte, n int) []float32 {
	v := make([]float32, n)
	set.DecodeF16(v, data)
	return v
}

// turnsLike reports whether two matrices turn their input alike: so do those of
// a package that read one, and the factors that correct them.
func (m *matrix) turnsLike(o *matrix) bool {
	a, b := m.rotated, o.rotated
	return a != nil && b != nil && a.in == nil && b.in == nil && a.RotateIn == b.RotateIn && a.Seed == b.Seed && m.k == o.k &&
		a.exact == b.exact && a.codes.Tuned() == b.codes.Tuned()
}

// multiplyTurned computes a group in which first has a rotation: those that turn
// x as it does in one go, and then the others.
func (e *Engine) multiplyTurned(t int, x []float32, group []target, first *matrix) {
	w := &e.pass.rotated
	var rest [maxGroup]target
	w.n = 0
	left := 0
	for _, g := range group {
		if g.w != first && !g.w.turnsLike(first) {
			rest[left] = g
			left++
			continue
		}
		w.group[w.n] = g
		w.n++
		w.starts[w.n] = w.starts[w.n-1] + (g.w.n+rotatedPart-1)/rotatedPart
	}
	w.t, w.x = t, fit(w.x, t*first.k)
	copy(w.x, x[:t*first.k])
	if e.asBytes(first.rotated) {
		w.acts.Reset(t, first.k, 32, false)
	}
	e.eachRow(t, e.part.turn)
	if e.whole(first) {
		for _, g := range w.group[:w.n] {
			e.multiplyWhole(t, w.x, g, g.w.rotated.codes.Row)
			e.eachRow(t, func(row int) {
				for n0 := 0; n0 < g.w.n; n0 += rotatedPart {
					e.turnBack(&g, row, n0, min(n0+rotatedPart, g.w.n))
				}
			})
		}
	} else {
		e.pool.RunWorkers(w.starts[w.n], e.part.rotated)
	}
	if left > 0 {
		e.multiplyDense(t, x, rest[:left])
	}
}

// asBytes reports whether rows of activations are rounded to bytes, and multiplied with
// codewords in place; many are worth decoding rows of weights for.
func (e *Engine) asBytes(r *rotated) bool { return !r.exact && !e.pass.many && r.codes.Tuned() }

func (e *Engine) turnRow(row int) {
	w := &e.pass.rotated
	m := w.group[0].w
	x := w.x[row*m.k : (row+1)*m.k]
	kernels.RotateIn(x, m.rotated.TCQ, m.rotated.in)
	if e.asBytes(m.rotated) {
		e.set.QuantizeRow(&w.acts, row, x)
	}
}

func (e *Engine) rotatedPart(worker, part int) {
	w := &e.pass.rotated
	at := 0
	for part >= w.starts[at+1] {
		at++
	}
	m, out := w.group[at].w, w.group[at].y
	r := m.rotated
	n0 := (part - w.starts[at]) * rotatedPart
	n1 := min(n0+rotatedPart, m.n)
	switch {
	case e.asBytes(r):
		for i := range w.t {
			r.codes.MatVec(out[i*m.n:(i+1)*m.n], &w.acts, i, n0, n1)
		}
	case e.pass.many:
		e.set.GemmMany(out, m.n, w.x, m.k, w.t, n0, n1, m.k, r.codes.Row, &e.local[worker].gemm)
	default:
		e.set.Gemm(out, m.n, w.x, m.k, w.t, n0, n1, m.k, r.codes.Row, &e.local[worker].gemm)
	}
	for i := range w.t {
		e.turnBack(&w.group[at], i, n0, n1)
	}
}

// turnBack rotates outputs n0 to n1 of a row.
func (e *Engine) turnBack(g *target, row, n0, n1 int) {
	m, r := g.w, g.w.rotated
	y := g.y[row*m.n+n0 : row*m.n+n1]
	kernels.RotateOut(y, r.TCQ, r.out, n0)
	if m.bias != nil {
		e.set.Add(y, m.bias[n0:n1])
	}
}
