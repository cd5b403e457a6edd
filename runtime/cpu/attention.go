package cpu

import "github.com/nstf/nstf/formats/model"

// placeRow finishes one row's query (from rowWork.base on), key and value:
// head norms, rotation, storage in the cache.
func (e *Engine) placeRow(row int) {
	p := &e.pass
	b := &e.blocks[p.layer]
	k := e.s.k[row*b.k.n : (row+1)*b.k.n]
	e.turnHeads(k, row, b.kNorm, &b.Attn)
	if row >= p.rowWork.base {
		e.turnHeads(e.s.q[row*b.q.n:(row+1)*b.q.n], row, b.qNorm, &b.Attn)
	}
	kv := p.segments[p.owner[row]].kv
	kv.Put(p.layer, p.positions[row], k, e.s.v[row*b.v.n:(row+1)*b.v.n])
}

// turnHeads normalises and rotates the heads of one row.
func (e *Engine) turnHeads(x []float32, row int, n *norm, a *model.Attention) {
	d := int(a.HeadDim)
	for ; len(x) > 0; x = x[d:] {
		head := x[:d]
		if n != nil {
			e.normalize(head, head, n)
		}
		if a.Rope < 0 {
			continue
		}
		r := &e.pass.angles[a.Rope]
		cos, sin := r.cos[row*r.pairs:(row+1)*r.pairs], r.sin[row*r.pairs:(row+1)*r.pairs]
		if e.g.Ropes[a.Rope].Style == model.RopeInterleaved {
			e.set.RopeInterleaved(head, cos, sin)
		} else {
			e.set.RopeHalf(head, cos, sin)
		}
	}
}
