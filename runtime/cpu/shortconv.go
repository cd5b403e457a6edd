package cpu

import (
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/runtime/load"
)

// A shortConv is the weights of a gated short convolution.
type shortConv struct {
	in, out *matrix
	conv    convolution
}

func newShortConv(w *load.Weights[*matrix, *norm, []float32], g *graph.ShortConv, at int) *shortConv {
	return &shortConv{in: w.Linear(&g.In), out: w.Linear(&g.Out), conv: newConvolution(w, g.Conv, g.ConvBias, g.Kernel, at)}
}

// runShortConv computes e.s.a of the rows from lo on.
func (e *Engine) runShortConv(i int, h []float32, lo int) {
	p, s, n := &e.pass, &e.s, e.blocks[i].shortConv
	t, c := p.rows, n.conv.channels()
	e.linear(t, h, noExpert, target{n.in, s.z[:t*3*c]})
	e.eachRow(t, e.part.multiply)
	p.rowWork.base = lo
	e.eachRow(t-lo, e.part.weigh)
	for j := range p.segments {
		n.conv.keep(e, &p.segments[j])
	}
	if lo < t {
		e.linear(t-lo, s.turned[lo*c:t*c], noExpert, target{n.out, s.a[:(t-lo)*int(e.g.Width)]})
	}
}

// multiplyRow makes what the convolution reads: the product of the first and the third
// run.
func (e *Engine) multiplyRow(row int) {
	s, c := &e.s, e.blocks[e.pass.layer].shortConv.conv.channels()
	z, m := s.z[row*3*c:(row+1)*3*c], s.mixed[row*c:(row+1)*c]
	copy(m, z[:c])
	e.set.Mul(m, z[2*c:])
}

// weighRow convolves a row, from rowWork.base on, and multiplies it with the second run.
func (e *Engine) weighRow(row int) {
	row += e.pass.rowWork.base
	n := &e.blocks[e.pass.layer].shortConv.conv
	s, c := &e.s, n.channels()
	x := s.turned[row*c : (row+1)*c]
	n.row(e, x, row)
	e.set.Mul(x, s.z[(3*row+1)*c:(3*row+2)*c])
}
