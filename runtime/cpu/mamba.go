package cpu

import (
	"math"

	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/kernels/ops"
	"github.com/nstf/nstf/runtime/load"
)

// A mamba is the weights of a state space.
type mamba struct {
	*graph.Mamba
	z, xbc, dt, out     *matrix
	conv                convolution
	decay, dtBias, skip []float32 // of each head; decay is A
	norm                *norm     // or nil
	at                  int       // of S of the first head in what a sequence remembers
}

// newMamba takes the weights of a state space, whose numbers in a sequence's memory
// begin at the given one: columns, then S of each head.
func newMamba(w *load.Weights[*matrix, *norm, []float32], g *graph.Mamba, at int) *mamba {
	return &mamba{Mamba: g, z: w.Linear(&g.Z), xbc: w.Linear(&g.XBC), dt: w.Linear(&g.DT), out: w.Linear(&g.Out),
		conv: newConvolution(w, g.Conv, g.ConvBias, g.Kernel, at), decay: decays(w.Vector(g.Decay), g.DecayLog), dtBias: w.Vector(g.DTBias),
		skip: w.Vector(g.Skip), norm: w.Norm(g.Norm), at: at + int(g.Columns())}
}

// decays returns A of each head.
func decays(stored []float32, log bool) []float32 {
	if !log {
		return stored
	}
	out := make([]float32, len(stored))
	for i, v := range stored {
		out[i] = float32(-math.Exp(float64(v)))
	}
	return out
}

// runMamba computes e.s.a of the rows from lo on, by the step as runDelta does.
func (e *Engine) runMamba(i int, h []float32, lo int) {
	p, s, n := &e.pass, &e.s, e.blocks[i].mamba
	t, c, v, heads := p.rows, int(n.Channels()), int(n.Values()), int(n.Heads)
	e.linear(t, h, noExpert, target{n.z, s.z[:t*v]}, target{n.xbc, s.mixed[:t*c]}, target{n.dt, s.rate[:t*heads]})
	e.eachRow(t, e.part.choose)
	e.pool.RunWorkers(len(p.segments)*heads, e.part.scan)
	if lo == t {
		return
	}
	p.rowWork.base = lo
	e.eachRow(t-lo, e.part.open)
	e.linear(t-lo, s.z[lo*v:t*v], noExpert, target{n.out, s.a[:(t-lo)*int(e.g.Width)]})
}

// selectRow makes what the heads of a row read: x, b and c, their step, and how they
// fade.
func (e *Engine) selectRow(row int) {
	s, n := &e.s, e.blocks[e.pass.layer].mamba
	c, heads := int(n.Channels()), int(n.Heads)
	x := s.turned[row*c : (row+1)*c]
	n.conv.row(e, x, row)
	e.set.Activate(ops.SiLU, x, x)
	fade, rate := s.fade[row*heads:(row+1)*heads], s.rate[row*heads:(row+1)*heads]
	for a := range heads {
		step := min(max(softplus(float64(rate[a]+n.dtBias[a])), float64(n.MinStep)), float64(n.Longest()))
		rate[a], fade[a] = float32(step), float32(math.Exp(float64(n.decay[a])*step))
	}
}

// scanPart takes one head of one segment through its rows. The first head also keeps
// the columns that the next pass's convolution needs.
func (e *Engine) scanPart(_, part int) {
	p, s, n := &e.pass, &e.s, e.blocks[e.pass.layer].mamba
	c, v, dim, size, heads := int(n.Channels()), int(n.Values()), int(n.HeadDim), int(n.State), int(n.Heads)
	segment, head := &p.segments[part/heads], part%heads
	group := head / (heads / int(n.Groups))
	memory, b, skip := segment.state.matrix(n.at, head, n.State*n.HeadDim), v+group*size, n.skip[head]
	for row := segment.first; row < segment.first+segment.rows; row++ {
		x := s.turned[row*c : (row+1)*c]
		at := row*heads + head
		e.set.ScanStep(memory, x[b+int(n.Groups)*size:][:size], x[b:b+size], x[head*dim:(head+1)*dim], s.fade[at], s.rate[at], skip)
	}
	if head == 0 {
		n.conv.keep(e, segment)
	}
}

// openRow lets z decide what goes on of a row, from rowWork.base on, and normalises it.
func (e *Engine) openRow(row int) {
	s, n := &e.s, e.blocks[e.pass.layer].mamba
	row += e.pass.rowWork.base
	c, v := int(n.Channels()), int(n.Values())
	z := s.z[row*v : (row+1)*v]
	e.set.ActivateMul(ops.SiLU, z, z, s.turned[row*c:row*c+v])
	if n.norm == nil {
		return
	}
	for each, at := v/int(n.Groups), 0; at < v; at += each {
		e.set.RMSNorm(z[at:at+each], z[at:at+each], n.norm.weight[at:at+each], n.norm.eps, 0)
	}
}
