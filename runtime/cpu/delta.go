package cpu

import (
	"math"

	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/kernels/ops"
	"github.com/nstf/nstf/runtime/load"
)

// A deltaNet is the weights of a gated delta net.
type deltaNet struct {
	*graph.Delta
	qkv, z, beta, alpha, out *matrix
	za, alphaA               *matrix // or nil
	conv                     convolution
	decay                    []float32 // A of each head
	dtBias                   []float32
	norm                     *norm
	// What makes a norm by the mean of squares give a query and a key their length.
	toQuery, toKey []float32
	at             int // of S of the first head in what a sequence remembers
}

// newDeltaNet takes the weights of a delta net, whose numbers in a sequence's memory
// begin at the given one: columns, then S of each head.
func newDeltaNet(w *load.Weights[*matrix, *norm, []float32], g *graph.Delta, at int) *deltaNet {
	n := &deltaNet{Delta: g, qkv: w.Linear(&g.QKV), z: w.Linear(&g.Z), beta: w.Linear(&g.Beta), alpha: w.Linear(&g.Alpha), out: w.Linear(&g.Out),
		za: w.Linear(g.ZA), alphaA: w.Linear(g.AlphaA),
		conv: newConvolution(w, g.Conv, "", g.Kernel, at), decay: decays(w.Vector(g.Decay), g.DecayLog),
		dtBias: w.Vector(g.DTBias), norm: w.Norm(g.Norm), at: at + int(g.Columns())}
	// x/sqrt(sum x^2 + eps) = x/sqrt(mean x^2 + eps/d) / sqrt(d)
	unit := 1 / math.Sqrt(float64(g.KeyDim))
	for range g.KeyDim {
		n.toQuery, n.toKey = append(n.toQuery, float32(unit*unit)), append(n.toKey, float32(unit))
	}
	return n
}

// runDelta computes e.s.a of the rows from lo on. Heads go through the rows of a
// segment one by one, a prompt's too: a step reads and writes S, which stays in a
// core's cache, and is small beside the products of a row, so that taking rows by
// the chunk has little to win, and bits depend on no cut
// (docs/decisions/0018-delta-nets-by-the-step.md).
func (e *Engine) runDelta(i int, h []float32, lo int) {
	p, s, n := &e.pass, &e.s, e.blocks[i].delta
	t, v, heads := p.rows, int(n.Values()), int(n.Heads)
	e.deltaInputs(n, h)
	e.eachRow(t, e.part.convolve)
	e.pool.RunWorkers(len(p.segments)*heads, e.part.delta)
	if lo == t {
		return
	}
	p.rowWork.base = lo
	e.eachRow(t-lo, e.part.finish)
	e.linear(t-lo, s.z[lo*v:t*v], noExpert, target{n.out, s.a[:(t-lo)*int(e.g.Width)]})
}

// deltaInputs multiplies h[T][D] with all matrices of a delta net but the last. What lies
// between two lies where the convolution writes later.
func (e *Engine) deltaInputs(n *deltaNet, h []float32) {
	s, t := &e.s, e.pass.rows
	z, alpha := target{n.z, s.z[:t*n.z.n]}, target{n.alpha, s.fade[:t*n.alpha.n]}
	firstZ, firstAlpha, between := z, alpha, s.turned
	if n.za != nil {
		firstZ, between = target{n.za, between[:t*n.za.n]}, between[t*n.za.n:]
	}
	if n.alphaA != nil {
		firstAlpha = target{n.alphaA, between[:t*n.alphaA.n]}
	}
	e.linear(t, h, noExpert, target{n.qkv, s.mixed[:t*n.qkv.n]}, firstZ, target{n.beta, s.rate[:t*n.beta.n]}, firstAlpha)
	if n.za != nil {
		e.linear(t, firstZ.y, noExpert, z)
	}
	if n.alphaA != nil {
		e.linear(t, firstAlpha.y, noExpert, alpha)
	}
}

// convolveRow makes queries, keys and values of a row, and how its heads fade and
// learn.
func (e *Engine) convolveRow(row int) {
	s, n := &e.s, e.blocks[e.pass.layer].delta
	c, dk, heads := int(n.Channels()), int(n.KeyDim), int(n.Heads)
	x := s.turned[row*c : (row+1)*c]
	n.conv.row(e, x, row)
	e.set.Activate(ops.SiLU, x, x)
	eps, queries := n.Eps/float32(dk), int(n.KeyHeads)*dk
	for at := 0; at < queries; at += dk {
		q, k := x[at:at+dk], x[queries+at:queries+at+dk]
		e.set.RMSNorm(q, q, n.toQuery, eps, 0)
		e.set.RMSNorm(k, k, n.toKey, eps, 0)
	}
	rate := s.rate[row*heads : (row+1)*heads]
	for a := range heads {
		rate[a] = float32(1 / (1 + math.Exp(-float64(rate[a]))))
	}
	if !n.ByChannel { // else each head by itself, for they are many
		for a := range heads {
			n.fades(s.fade[row*heads+a:row*heads+a+1], a)
		}
	}
}

// fades turns what Alpha gave for a head into what its memory fades by.
func (n *deltaNet) fades(x []float32, head int) {
	bias := n.dtBias[head*len(x):]
	for i := range x {
		x[i] = float32(math.Exp(float64(n.decay[head]) * softplus(float64(x[i]+bias[i]))))
	}
}

// softplus is ln(1 + exp(x)).
func softplus(x float64) float64 {
	if x > 40 {
		return x
	}
	return math.Log1p(math.Exp(x))
}

// deltaPart takes one head of one segment through its rows. The first head also
// keeps the columns that the next pass's convolution needs.
func (e *Engine) deltaPart(_, part int) {
	p, s, n := &e.pass, &e.s, e.blocks[e.pass.layer].delta
	c, dk, dv, heads := int(n.Channels()), int(n.KeyDim), int(n.ValueDim), int(n.Heads)
	segment, head := &p.segments[part/heads], part%heads
	memory, queries, key := segment.state.matrix(n.at, head, n.KeyDim*n.ValueDim), int(n.KeyHeads)*dk, int(n.KeyHead(int64(head)))*dk
	for row := segment.first; row < segment.first+segment.rows; row++ {
		x := s.turned[row*c : (row+1)*c]
		v, rate := x[2*queries+head*dv:2*queries+(head+1)*dv], s.rate[row*heads+head]
		if q, k := x[key:key+dk], x[queries+key:queries+key+dk]; n.ByChannel {
			fade := s.fade[(row*heads+head)*dk : (row*heads+head+1)*dk]
			n.fades(fade, head)
			e.set.DeltaStepByChannel(memory, q, k, v, fade, rate)
		} else {
			e.set.DeltaStep(memory, q, k, v, s.fade[row*heads+head], rate)
		}
	}
	if head == 0 {
		n.conv.keep(e, segment)
	}
}

// finishRow normalises the heads of a row, from rowWork.base on, and lets z decide
// what of them goes on.
func (e *Engine) finishRow(row int) {
	s, n := &e.s, e.blocks[e.pass.layer].delta
	row += e.pass.rowWork.base
	c, v, dv := int(n.Channels()), int(n.Values()), int(n.ValueDim)
	out, z := s.turned[(row+1)*c-v:(row+1)*c], s.z[row*v:(row+1)*v]
	for at := 0; at < v; at += dv {
		e.normalize(out[at:at+dv], out[at:at+dv], n.norm)
	}
	if n.SigmoidGate {
		e.set.SigmoidMul(out, z)
		copy(z, out)
		return
	}
	e.set.ActivateMul(ops.SiLU, z, z, out)
}
