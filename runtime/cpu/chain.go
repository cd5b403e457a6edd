package cpu

import (
	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/form"
)

// A chain is a tensor train: docs/forms/train.md has its formula.
type chain struct {
	cores []form.TrainCore
	rows  []*matrix // the cores' rows, [RankIn][Columns][RankOut] each
}

// chainWork is the product in progress: each part is a row of the first core.
type chainWork struct {
	c    *chain
	x, y []float32
	t, n int
}

// openChain opens a tensor train.
func (l *loader) openChain(m *matrix, t *formats.Tensor) {
	c := &chain{cores: form.ParseTrain(t)}
	for i := range t.Factors {
		c.rows = append(c.rows, l.factor(t, t.Factors[i].Name))
	}
	m.formed.chain = c
	if l.err != nil {
		return
	}
	w, err := form.Open(t) // looked up by one goroutine at a time
	if err != nil {
		l.fail(err)
		return
	}
	m.rows = func(dst []float32, row int) { w.DecodeRow(dst, int64(row)) }
}

// multiplyChain computes y[t][n] = W x[t][k].
func (e *Engine) multiplyChain(t int, x []float32, g target) {
	e.pass.formed.chain = chainWork{c: g.w.formed.chain, x: x, y: g.y, t: t, n: g.w.n}
	e.pool.RunWorkers(int(g.w.formed.chain.cores[0].Rows), e.part.chain)
	if g.w.bias != nil {
		for r := range t {
			e.set.Add(g.y[r*g.w.n:(r+1)*g.w.n], g.w.bias)
		}
	}
}

// chainPart computes the outputs of one row of the first core.
func (e *Engine) chainPart(worker, part int) {
	w := &e.pass.formed.chain
	k := len(w.x) / w.t
	s := &e.local[worker].chain
	for r := range w.t {
		e.contract(s, 0, part, 0, w.x[r*k:(r+1)*k], w.y[r*w.n:(r+1)*w.n])
	}
}

// chainLocal is the work space of a worker: a core's row and what is left of x
// behind it, for each core.
type chainLocal struct {
	row, left [4][]float32
}

func (c *chainLocal) bytes() int64 {
	var n int
	for i := range c.row {
		n += cap(c.row[i]) + cap(c.left[i])
	}
	return int64(n) * 4
}

// contract multiplies x[RankIn][Columns][rest] with row v of a core,
//
//	left[s][rest] = sum over r and j of G[r][j][s] x[r][j][rest]
//
// and goes on with each row of the next core. first is the number that the
// digits of the cores before make. The last core gives outputs.
func (e *Engine) contract(s *chainLocal, core, v, first int, x, y []float32) {
	w := &e.pass.formed.chain
	c := w.c.cores[core]
	index := first*int(c.Rows) + v
	if index >= w.n && core+1 == len(w.c.cores) {
		return // beyond the table
	}
	s.row[core] = fit(s.row[core], int(c.RankIn*c.Columns*c.RankOut))
	g := s.row[core]
	w.c.rows[core].rows(g, v)
	if core+1 == len(w.c.cores) {
		y[index] = e.set.Dot(g, x)
		return
	}
	rest := len(x) / int(c.RankIn*c.Columns)
	s.left[core] = fit(s.left[core], int(c.RankOut)*rest)
	left := s.left[core]
	clear(left)
	for i := range int(c.RankIn * c.Columns) {
		for r := range int(c.RankOut) {
			e.set.Axpy(left[r*rest:(r+1)*rest], g[i*int(c.RankOut)+r], x[i*rest:(i+1)*rest])
		}
	}
	for next := range int(w.c.cores[core+1].Rows) {
		e.contract(s, core+1, next, index, left, y)
	}
}
