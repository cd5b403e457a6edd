package cpu

import "github.com/nstf/nstf/formats/model"

// runBlock runs one block over all rows. In the last one, rows before
// pass.from give their keys and values and nothing else.
func (e *Engine) runBlock(i int) {
	p, b, d := &e.pass, &e.blocks[i], int(e.g.Width)
	t, lo := p.rows, 0
	if i == len(e.blocks)-1 {
		lo = p.from
	}
	p.layer = i
	h := e.s.h[:t*d]
	if i == 0 {
		e.normRows(h, e.s.x[:t*d], b.attnNorm)
	}
	e.project(i, h, lo)
	e.pass.rowWork = rowWork{base: lo}
	e.eachRow(t, e.part.place)
	if lo == t {
		return
	}
	e.attend(lo)
	n := t - lo
	x, h := e.s.x[lo*d:t*d], e.s.h[lo*d:t*d]
	e.linear(n, e.s.att[lo*b.o.k:t*b.o.k], i, noExpert, target{b.o, e.s.a[:n*d]})
	var next *norm // of the block behind, which finds its input in e.s.h
	if i+1 < len(e.blocks) {
		next = e.blocks[i+1].attnNorm
	}
	a, f := e.s.a[:n*d], e.s.f[:n*d]
	if !b.Parallel {
		e.addRows(x, branch{a, b.attnPost}, branch{}, h, b.ffnNorm)
		e.feedForward(i, n, h)
		e.addRows(x, branch{f, b.ffnPost}, branch{}, h, next)
		return
	}
	if b.ffnNorm != nil {
		e.normRows(h, x, b.ffnNorm)
	}
	e.feedForward(i, n, h)
	e.addRows(x, branch{a, b.attnPost}, branch{f, b.ffnPost}, h, next)
}

// project computes keys and values of all rows of h[T][D], and queries from
// row lo on.
func (e *Engine) project(i int, h []float32, lo int) {
	b, t := &e.blocks[i], e.pass.rows
	k, v := target{b.k, e.s.k[:t*b.k.n]}, target{b.v, e.s.v[:t*b.v.n]}
	if lo == 0 {
		e.linear(t, h, i, noExpert, target{b.q, e.s.q[:t*b.q.n]}, k, v)
		return
	}
	e.linear(t-lo, h[lo*b.q.k:], i, noExpert, target{b.q, e.s.q[lo*b.q.n : t*b.q.n]})
	e.linear(t, h, i, noExpert, k, v)
}

// feedForward computes e.s.f[t][D] from h[t][D].
func (e *Engine) feedForward(i, t int, h []float32) {
	b, f := &e.blocks[i], e.s.f[:t*int(e.g.Width)]
	if b.MoE != nil {
		e.mixture(i, t, h, f)
		return
	}
	e.gated(i, noExpert, t, h, f, expert{b.gate, b.up, b.down})
}

// gated computes f = down(act(gate h) * up h), or down(act(up h)) without a
// gate.
func (e *Engine) gated(i, index, t int, h, f []float32, w expert) {
	up := e.s.up[:t*w.up.n]
	work := rowWork{dst: up, width: w.up.n, act: e.blocks[i].act}
	if w.gate != nil {
		gate := e.s.gate[:t*w.gate.n]
		e.linear(t, h, i, index, target{w.gate, gate}, target{w.up, up})
		work.dst, work.src = gate, up
	} else {
		e.linear(t, h, i, index, target{w.up, up})
	}
	e.pass.rowWork = work
	e.eachRow(t, e.part.act)
	e.linear(t, work.dst, i, index, target{w.down, f})
}

func (e *Engine) actRow(row int) {
	w := &e.pass.rowWork
	dst := w.dst[row*w.width : (row+1)*w.width]
	if w.src == nil {
		e.set.Activate(w.act, dst, dst)
		return
	}
	e.set.ActivateMul(w.act, dst, dst, w.src[row*w.width:(row+1)*w.width])
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
	if n.kind == model.LayerNorm {
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

// addRows adds one or two branches to x and puts what next makes of the sum, if
// it is not nil, into h, while the row is in the cache.
func (e *Engine) addRows(x []float32, a, extra branch, h []float32, next *norm) {
	d := int(e.g.Width)
	e.pass.rowWork = rowWork{dst: x, width: d, branch: a, extra: extra, src: h, norm: next}
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
