package cpu

import (
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/kernels/ops"
)

// runBlock runs one block over all rows. In the last one with keys and values of its
// own, rows before pass.from give those and nothing else, and behind it they are left
// out.
func (e *Engine) runBlock(i int) {
	p, b, d := &e.pass, &e.blocks[i], int(e.g.Width)
	t, lo := p.rows, 0
	if i >= e.settled {
		lo = p.from
	}
	if lo == t && i > e.settled {
		return
	}
	p.layer = i
	h := e.s.h[:t*d]
	switch {
	case b.Bare:
		copy(h, e.s.x[:t*d])
	case i == 0:
		e.normRows(h, e.s.x[:t*d], b.first())
	}
	if b.Mixes() {
		e.mix(i, h, lo)
	}
	if lo == t {
		return
	}
	n := t - lo
	x, h := e.s.x[lo*d:t*d], e.s.h[lo*d:t*d]
	var next *norm // of the block behind, which finds its input in e.s.h
	if i+1 < len(e.blocks) {
		next = e.blocks[i+1].first()
	}
	a, f := e.s.a[:n*d], e.s.f[:n*d]
	scale := b.outScale
	last := func(first, second branch) {
		if b.perLayer.gate == nil {
			e.addRows(x, first, second, scale, h, next)
			return
		}
		e.addRows(x, first, second, nil, nil, nil)
		e.inject(i, lo, x)
		e.addRows(x, branch{f, b.perLayer.norm}, branch{}, scale, h, next)
	}
	if !b.Feeds() {
		last(branch{a, b.attnPost}, branch{})
		return
	}
	if !b.Parallel {
		if b.Mixes() {
			e.addRows(x, branch{a, b.attnPost}, branch{}, nil, h, b.ffnNorm)
		}
		if b.Bare {
			copy(h, x)
		}
		e.feedForward(i, x, h)
		last(branch{f, b.ffnPost}, branch{})
		return
	}
	if b.ffnNorm != nil {
		e.normRows(h, x, b.ffnNorm)
	}
	e.feedForward(i, x, h)
	last(branch{a, b.attnPost}, branch{f, b.ffnPost})
}

// first is the norm of what a block reads first, nil where it is bare.
func (b *block) first() *norm {
	if b.Mixes() {
		return b.attnNorm
	}
	return b.ffnNorm
}

// mix computes e.s.a of the rows from lo on, what the block's mixer makes of h.
func (e *Engine) mix(i int, h []float32, lo int) {
	switch b := &e.blocks[i]; {
	case b.delta != nil:
		e.runDelta(i, h, lo)
	case b.mamba != nil:
		e.runMamba(i, h, lo)
	case b.shortConv != nil:
		e.runShortConv(i, h, lo)
	case b.latent != nil:
		e.runLatent(i, h, lo)
	default:
		e.runAttention(i, h, lo)
	}
}

// runAttention computes e.s.a of the rows from lo on.
func (e *Engine) runAttention(i int, h []float32, lo int) {
	b, t := &e.blocks[i], e.pass.rows
	e.project(i, h, lo)
	e.pass.rowWork = rowWork{base: lo}
	e.eachRow(t, e.part.place)
	if lo == t {
		return
	}
	e.attend(lo)
	att := e.s.att[lo*b.o.k : t*b.o.k]
	if b.outGate != nil {
		e.pass.rowWork = rowWork{dst: att, src: e.s.z[lo*b.o.k : t*b.o.k], width: b.o.k}
		e.eachRow(t-lo, e.part.outGate)
	}
	e.linear(t-lo, att, noExpert, target{b.o, e.s.a[:(t-lo)*int(e.g.Width)]})
}

// outGateRow multiplies a row by the logistic function of another.
func (e *Engine) outGateRow(row int) {
	w := &e.pass.rowWork
	lo, hi := row*w.width, (row+1)*w.width
	e.set.SigmoidMul(w.dst[lo:hi], w.src[lo:hi])
}

// project computes keys and values of all rows of h[T][D], where the block has its
// own, queries and gates from row lo on.
func (e *Engine) project(i int, h []float32, lo int) {
	b, t := &e.blocks[i], e.pass.rows
	group := append(e.group[:0], target{b.q, e.s.q[lo*b.q.n : t*b.q.n]})
	if b.outGate != nil {
		group = append(group, target{b.outGate, e.s.z[lo*b.outGate.n : t*b.outGate.n]})
	}
	if lo > 0 {
		e.linear(t-lo, h[lo*b.q.k:], noExpert, group...)
		group = group[:0]
	}
	if b.k != nil {
		group = append(group, target{b.k, e.s.k[:t*b.k.n]})
	}
	if b.v != nil {
		group = append(group, target{b.v, e.s.v[:t*b.v.n]})
	}
	if len(group) > 0 {
		e.linear(t, h, noExpert, group...)
	}
}

// feedForward computes e.s.f[t][D] from h[t][D], a norm of the hidden states
// x[t][D]. It overwrites h and, in a sequential block, e.s.a where there is a mixture.
func (e *Engine) feedForward(i int, x, h []float32) {
	b, d := &e.blocks[i], int(e.g.Width)
	t, f, a := len(x)/d, e.s.f[:len(x)], e.s.a[:len(x)]
	if b.FFN != nil {
		e.gated(noExpert, t, h, f, b.ffn)
	}
	if b.MoE == nil {
		return
	}
	if b.moeNorm != nil {
		e.normRows(h, x, b.moeNorm)
	}
	routed := h
	if b.routerNorm != nil {
		routed = a
		e.normRows(routed, x, b.routerNorm)
	}
	if b.FFN == nil {
		e.mixture(i, t, routed, h, f)
		return
	}
	e.mixture(i, t, routed, h, a)
	if b.densePost != nil {
		e.normRows(f, f, b.densePost)
	}
	e.addRows(f, branch{a, b.moePost}, branch{}, nil, nil, nil)
}

// gated computes f = down(act(gate h) * up h), or down(act(up h)) without a
// gate; index is the expert, noExpert for none.
func (e *Engine) gated(index, t int, h, f []float32, w layer) {
	up := e.s.up[:t*w.up.n]
	work := rowWork{dst: up, width: w.up.n, act: w.act, gating: w.gating, xielu: w.xielu}
	if w.gate != nil {
		gate := e.s.gate[:t*w.gate.n]
		e.linear(t, h, index, target{w.gate, gate}, target{w.up, up})
		work.dst, work.src = gate, up
	} else {
		e.linear(t, h, index, target{w.up, up})
	}
	e.pass.rowWork = work
	e.eachRow(t, e.part.act)
	e.linear(t, work.dst, index, target{w.down, f})
}

func (e *Engine) actRow(row int) {
	w := &e.pass.rowWork
	dst := w.dst[row*w.width : (row+1)*w.width]
	if w.xielu != nil {
		e.set.XIELU(*w.xielu, dst, dst)
		return
	}
	if w.src == nil {
		e.set.Activate(w.act, dst, dst)
		return
	}
	up := w.src[row*w.width : (row+1)*w.width]
	if w.gating != (ops.Gating{}) {
		e.set.SwiGLU(w.gating, dst, dst, up)
		return
	}
	e.set.ActivateMul(w.act, dst, dst, up)
}

func (e *Engine) softcapRow(row int) {
	w := &e.pass.rowWork
	e.set.SoftCap(w.dst[row*w.width:(row+1)*w.width], w.softcap)
}

// normRows normalises rows of D numbers.
func (e *Engine) normRows(dst, src []float32, n *norm) {
	d := int(e.g.Width)
	e.pass.rowWork = rowWork{dst: dst, src: src, width: d, norm: n}
	e.eachRow(len(dst)/d, e.part.norm)
}

func (e *Engine) normRow(row int) {
	w := &e.pass.rowWork
	lo, hi := row*w.width, (row+1)*w.width
	e.normalize(w.dst[lo:hi], w.src[lo:hi], w.norm)
}

func (e *Engine) normalize(dst, src []float32, n *norm) {
	if n.kind == graph.LayerNorm {
		e.set.LayerNorm(dst, src, n.weight, n.bias, n.eps)
		return
	}
	e.set.RMSNorm(dst, src, n.weight, n.eps, 0)
}

// A branch is what a part of a block adds to the hidden state: rows of D
// numbers, normalised first where it has a norm. Without rows it is none.
type branch struct {
	rows []float32
	norm *norm
}

// addRows adds one or two branches to x, multiplies the sum with scale[0] where that
// is not nil, and puts what next makes of it, if that is not nil, into h, while the
// row is in the cache.
func (e *Engine) addRows(x []float32, a, extra branch, scale, h []float32, next *norm) {
	d := int(e.g.Width)
	e.pass.rowWork = rowWork{dst: x, width: d, branch: a, extra: extra, scale: scale, src: h, norm: next}
	e.eachRow(len(x)/d, e.part.residual)
}

func (e *Engine) residualRow(row int) {
	w := &e.pass.rowWork
	lo, hi := row*w.width, (row+1)*w.width
	x, a := w.dst[lo:hi], e.branchRow(&w.branch, lo, hi)
	if w.extra.rows != nil {
		e.set.Add(a, e.branchRow(&w.extra, lo, hi))
	}
	e.set.Add(x, a)
	if w.scale != nil {
		e.set.Scale(x, w.scale[0])
	}
	if w.norm != nil {
		e.normalize(w.src[lo:hi], x, w.norm)
	}
}

func (e *Engine) branchRow(b *branch, lo, hi int) []float32 {
	r := b.rows[lo:hi]
	if b.norm != nil {
		e.normalize(r, r, b.norm)
	}
	return r
}
