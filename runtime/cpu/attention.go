package cpu

import (
	"github.com/nstf/nstf/formats/graph"
)

// placeRow finishes one row's query (from rowWork.base on), and its key and value
// where the block has its own: head norms, rotation, storage in the cache.
func (e *Engine) placeRow(row int) {
	p := &e.pass
	b := &e.blocks[p.layer]
	if row >= p.rowWork.base {
		q := e.s.q[row*b.q.n : (row+1)*b.q.n]
		e.turnHeads(q, row, b.qNorm, b.Attn)
		if t := b.Attn.Temperature; t != nil {
			factor := t.At(p.positions[row])
			for i := range q {
				q[i] *= factor
			}
		}
	}
	if b.k == nil {
		return
	}
	k, v := e.s.k[row*b.k.n:(row+1)*b.k.n], e.s.v[row*b.k.n:(row+1)*b.k.n]
	if b.v == nil {
		copy(v, k)
	}
	if d := int(b.Attn.HeadDim); b.vNorm != nil {
		for at := 0; at < len(v); at += d {
			e.normalize(v[at:at+d], v[at:at+d], b.vNorm)
		}
	}
	e.turnHeads(k, row, b.kNorm, b.Attn)
	p.segments[p.owner[row]].state.Put(b.kv, p.positions[row], k, v)
	e.hand(e.span.Lo+p.layer, row, k, v)
}

// turnHeads normalises and rotates the heads of one row.
func (e *Engine) turnHeads(x []float32, row int, n *norm, a *graph.Attention) {
	d, late := int(a.HeadDim), a.LateNorms
	if a.JointNorms && n != nil {
		e.normalize(x, x, n)
		n = nil
	}
	for at := 0; at < len(x); at += d {
		head, of := x[at:at+d], n
		if n != nil && a.HeadNorms {
			of = n.heads[at/d]
		}
		if of != nil && !late {
			e.normalize(head, head, of)
		}
		e.rotate(head, row, a.Rope)
		if of != nil && late {
			e.normalize(head, head, of)
		}
	}
}

// rotate turns one head of a row by a rotary embedding, -1 for none.
func (e *Engine) rotate(head []float32, row, rope int) {
	if rope < 0 {
		return
	}
	r := &e.pass.angles[rope]
	cos, sin := r.cos[row*r.pairs:(row+1)*r.pairs], r.sin[row*r.pairs:(row+1)*r.pairs]
	if e.g.Ropes[rope].Style == graph.RopeInterleaved {
		e.set.RopeInterleaved(head, cos, sin)
	} else {
		e.set.RopeHalf(head, cos, sin)
	}
}
