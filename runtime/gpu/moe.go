package gpu

import "github.com/nstf/nstf/kernels/hip"

// mixture computes, for n rows of a source, the sum of the outputs of the
// experts that the router chooses for each. A slot is a row with one of its
// experts; which those are stays on the device.
func (w *walk) mixture(b *block, n int, in source, to target) {
	e, s, m := w.e, &w.e.s, b.MoE
	topK, slots := int(m.TopK), n*int(m.TopK)
	w.linear(n, in, target{w: b.router, y: s.router})
	route := &hip.Route{T: n, Experts: int(m.Experts), TopK: topK, Normalize: m.Normalize, Logits: s.router, Chosen: s.chosen, Share: s.share}
	if few(slots) {
		w.round(&in, n, b.gate, b.up)
	} else {
		route.Slots, route.First = s.slots, s.first
	}
	w.do(route)
	w.expert(b.gate, slots, topK, in, s.gate, 0)
	w.expert(b.up, slots, topK, in, s.up, 0)
	w.do(&hip.Activate{Act: b.act, N: slots * b.up.N, Gate: s.gate, Up: s.up, Out: s.gate})
	mid := source{x: s.gate}
	if few(slots) {
		w.round(&mid, slots, b.down)
	}
	w.expert(b.down, slots, 1, mid, s.parts, 0)
	w.do(&hip.Combine{T: n, D: e.shape.width, TopK: topK, Parts: s.parts, Chosen: s.chosen, Share: s.share, Out: to.y})
}

// expert multiplies each slot's row, which so many slots share, with its
// expert's matrix, and adds a residual, which may be y.
func (w *walk) expert(m *matrix, slots, share int, in source, y, residual hip.Address) {
	switch {
	case m.formed != nil:
		w.formedExpert(m, slots, share, in, y)
		return
	case m.Format.Rotated():
		w.rotatedExpert(m, slots, share, in, y, residual)
		return
	}
	s, products := &w.e.s, []hip.Product{{W: m.Weight, Y: y, Bias: m.bias, Residual: residual}}
	if few(slots) {
		w.do(&hip.Matvec{T: slots, Exact: w.e.exact || m.floats, X: in.x, Acts: in.acts, Fine: in.fine, Experts: s.chosen, Stack: m.experts, Share: share, Products: products})
		return
	}
	w.do(&hip.Matmul{T: slots, Exact: w.e.exact, X: in.x, First: s.first, Slots: s.slots, Stack: m.experts, Share: share, Products: products, Scratch: s.tiles})
}
