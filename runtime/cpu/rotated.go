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

// rotatedWork is the matrix in progress.
type rotatedWork struct {
	m    *matrix
	x    []float32 // turned
	y    []float32
	t    int
	acts kernels.Activations
}

// rotatedFew is the largest T that is multiplied with codewords in place, row
// by row of activations; more are worth decoding rows of weights for.
const rotatedFew = 8

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

// multiplyRotated computes one target y = W x + b for x[t][k].
func (e *Engine) multiplyRotated(t int, x []float32, g target) {
	w := &e.pass.rotated
	m := g.w
	w.m, w.y, w.t = m, g.y, t
	w.x = fit(w.x, t*m.k)
	copy(w.x, x[:t*m.k])
	if m.rotated.few(t) {
		w.acts.Reset(t, m.k, 32)
	}
	e.eachRow(t, e.part.turn)
	e.pool.RunWorkers((m.n+rotatedPart-1)/rotatedPart, e.part.rotated)
}

// few reports whether t rows of activations are multiplied as bytes.
func (r *rotated) few(t int) bool { return !r.exact && t <= rotatedFew && r.codes.Tuned() }

func (e *Engine) turnRow(row int) {
	w := &e.pass.rotated
	k := w.m.k
	x := w.x[row*k : (row+1)*k]
	kernels.RotateIn(x, w.m.rotated.TCQ, w.m.rotated.in)
	if w.m.rotated.few(w.t) {
		e.set.QuantizeRow(&w.acts, row, x)
	}
}

func (e *Engine) rotatedPart(worker, part int) {
	w := &e.pass.rotated
	m, r := w.m, w.m.rotated
	n0 := part * rotatedPart
	n1 := min(n0+rotatedPart, m.n)
	if r.few(w.t) {
		for i := range w.t {
			r.codes.MatVec(w.y[i*m.n:(i+1)*m.n], &w.acts, i, n0, n1)
		}
	} else {
		e.set.Gemm(w.y, m.n, w.x, m.k, w.t, n0, n1, m.k, r.codes.Row, &e.local[worker].gemm)
	}
	for i := range w.t {
		y := w.y[i*m.n+n0 : i*m.n+n1]
		kernels.RotateOut(y, r.TCQ, r.out, n0)
		if m.bias != nil {
			e.set.Add(y, m.bias[n0:n1])
		}
	}
}
