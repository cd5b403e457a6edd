package cpu

import (
	"github.com/nstf/nstf/formats/tensor"
	kernels "github.com/nstf/nstf/kernels/cpu"
)

// A target is one matrix of a group that shares an input, and where its
// output goes: y[T][n].
type target struct {
	w *matrix
	y []float32
}

// minPart divides the outputs of every part. Parts depend on shapes and on
// [kernels.Tiles] alone, so that results do not depend on the number of threads.
const minPart = 16

// maxGroup is the most matrices that share an input in one call: queries, keys,
// values and gates with a factor each.
const maxGroup = 8

// noExpert is a place that is not in an expert.
const noExpert = -1

// linearWork is the group in progress.
type linearWork struct {
	x       []float32
	t       int
	group   [maxGroup]target
	starts  [maxGroup + 1]int // first part of each target
	n       int
	acts    [2]kernels.Activations // x in int8 where targets want it, in groups of 16 and of 32
	filling *kernels.Activations
}

// linear computes y = W x + b for each target, x[t][k] being their common
// input; expert says whose it is, noExpert where it is no expert's.
func (e *Engine) linear(t int, x []float32, expert int, group ...target) {
	if t == 0 {
		return
	}
	if e.gathering != nil {
		for _, g := range group {
			e.gathering.see(g.w.linear, expert, x[:t*g.w.k], t)
		}
	}
	e.multiplied(t, x, group)
}

// multiplied is linear of what was gathered.
func (e *Engine) multiplied(t int, x []float32, group []target) {
	if e.activations != ActivationsLlamaCPP {
		e.multiply(t, x, group)
		return
	}
	for i := range group { // the weights of each decide what it reads
		e.multiply(t, e.asPeer(t, x, group[i].w), group[i:i+1])
	}
}

// multiply computes the targets of one input.
func (e *Engine) multiply(t int, x []float32, group []target) {
	for i := range group {
		if group[i].w.formed != nil {
			e.multiplyFormed(t, x, group)
			return
		}
	}
	e.multiplyDense(t, x, group)
}

// multiplyDense computes targets that are one matrix each.
func (e *Engine) multiplyDense(t int, x []float32, group []target) {
	for i := range group {
		if group[i].w.rotated != nil {
			e.multiplyTurned(t, x, group, group[i].w)
			return
		}
	}
	w := &e.pass.linear
	w.x, w.t, w.n, w.starts[0] = x, t, 0, 0
	for _, g := range group {
		if e.whole(g.w) {
			e.multiplyWhole(t, x, g, g.w.rows)
			continue
		}
		i := w.n
		w.n++
		w.group[i] = g
		rows := g.w.partRows(e.pass.many, &e.tiles)
		w.starts[i+1] = w.starts[i] + (g.w.n+rows-1)/rows
	}
	if w.n == 0 {
		return
	}
	e.quantize()
	e.pool.RunApart(w.starts[w.n], e.part.linear)
}

// whole reports whether many rows are multiplied with a matrix on the processor's matrix
// unit.
func (e *Engine) whole(m *matrix) bool {
	return e.walks && e.pass.many && m.coded == nil && e.set.Whole()
}

// multiplyWhole computes a target of which rows are decoded to float32.
func (e *Engine) multiplyWhole(t int, x []float32, g target, rows kernels.RowDecoder) {
	m := g.w
	e.set.GemmWhole(e.pool, g.y, m.n, x, m.k, t, m.n, m.k, rows, &e.parts)
	if m.bias == nil || m.rotated != nil {
		return
	}
	e.eachRow(t, func(row int) { e.set.Add(g.y[row*m.n:(row+1)*m.n], m.bias) })
}

// quantize rounds the input of the group to int8, once for all targets that take
// it in the same groups of neighbours.
func (e *Engine) quantize() {
	w := &e.pass.linear
	var done [len(w.acts)]bool
	for i := range w.n {
		m := w.group[i].w
		if m.coded == nil || done[m.acts()] {
			continue
		}
		w.filling, done[m.acts()] = &w.acts[m.acts()], true
		w.filling.Reset(w.t, m.k, m.coded.Group(), e.pass.many)
		e.eachRow(w.t, e.part.quantize)
	}
}

// acts returns which of linearWork.acts a coded matrix takes.
func (m *matrix) acts() int { return m.coded.Group() / 32 }

func (e *Engine) quantizeRow(row int) {
	w := &e.pass.linear
	k := w.filling.K()
	e.set.QuantizeRow(w.filling, row, w.x[row*k:(row+1)*k])
}

// partRows returns the outputs of one part.
func (m *matrix) partRows(many bool, tiles *kernels.Tiles) int {
	if many {
		return tiles.PartRows
	}
	size := 4 * m.k
	switch {
	case m.coded != nil:
		size = m.coded.RowBytes()
	case m.dtype != tensor.Invalid:
		size = m.dtype.Bits() * m.k / 8
	}
	return max(tiles.PartBytes/size/minPart*minPart, minPart)
}

// linearPart multiplies one part of the group in progress.
func (e *Engine) linearPart(worker, part int) {
	w := &e.pass.linear
	i := 0
	for part >= w.starts[i+1] {
		i++
	}
	m, y := w.group[i].w, w.group[i].y
	rows := m.partRows(e.pass.many, &e.tiles)
	n0 := (part - w.starts[i]) * rows
	n1 := min(n0+rows, m.n)
	if m.coded != nil {
		m.coded.MatMul(y, m.n, &w.acts[m.acts()], n0, n1, &e.local[worker].integer)
	} else {
		e.floats(worker, m, y, w.x, w.t, n0, n1)
	}
	if m.bias != nil {
		for r := range w.t {
			e.set.Add(y[r*m.n+n0:r*m.n+n1], m.bias[n0:n1])
		}
	}
}

// floats multiplies outputs n0 to n1 of a dense matrix in float32: y[t][n] = W x[t][k].
// Of few rows each output is a dot product, be its weights read where they lie or
// decoded once for all rows.
func (e *Engine) floats(worker int, m *matrix, y, x []float32, t, n0, n1 int) {
	gemm := &e.local[worker].gemm
	switch {
	case e.pass.many:
		e.set.GemmMany(y, m.n, x, m.k, t, n0, n1, m.k, m.rows, gemm)
	case m.dots != nil:
		m.dots(y[n0:], m.n, x, m.k, t, n0, n1, gemm)
	case t <= directRows && m.dtype != tensor.Invalid:
		for r := range t {
			m.dot(e.set, y[r*m.n+n0:r*m.n+n1], x[r*m.k:(r+1)*m.k], n0, n1)
		}
	default:
		e.set.Gemm(y, m.n, x, m.k, t, n0, n1, m.k, m.rows, gemm)
	}
}

// directRows is the most rows that read plain weights where they lie, each again.
const directRows = 4

// dot computes y = W[n0:n1] x from plain weights.
func (m *matrix) dot(set *kernels.Set, y, x []float32, n0, n1 int) {
	switch m.dtype {
	case tensor.F32:
		set.MatVecF32(y, m.floats[n0*m.k:n1*m.k], x)
	case tensor.F16:
		set.MatVecF16(y, m.bytes[2*n0*m.k:2*n1*m.k], x)
	case tensor.BF16:
		set.MatVecBF16(y, m.bytes[2*n0*m.k:2*n1*m.k], x)
	}
}
