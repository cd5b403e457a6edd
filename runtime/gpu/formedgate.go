package gpu

import "github.com/nstf/nstf/kernels/hip"

// formedGate is gated where gate or up have a form: the second steps of both are one
// launch that activates too, where they are alike, or a part of that of the codes.
func (w *walk) formedGate(t int, in source, l *layer) source {
	s := w.s
	targets := []target{{w: l.gate, y: s.gate}, {w: l.up, y: s.up}}
	if !w.many && l.fused() {
		first, _ := w.divided(t, in, targets) // both Bs, then the codes
		w.firstStep(t, in, first[:2])
		return w.gatedCodes(t, in, l, []hip.Product{first[2].product(), {W: first[3].w.Weight, A: first[3].a.Weight, Z: first[3].z}})
	}
	first, second := w.divided(t, in, targets)
	w.firstStep(t, in, first)
	if len(second) == 2 && w.isThin(second[0].w) && w.isThin(second[1].w) {
		gate, up := &second[0], &second[1]
		switch g, u := gate.rotated(), up.rotated(); {
		case g.Alike(&u) && gate.w.Format.Rotated():
			op := &hip.ThinTCQ{T: t, Gated: true, Act: l.act, Gating: l.gating, Products: []hip.ThinRotated{g, u}}
			out := source{x: s.gate}
			if down := sharedSide(l.down); down != nil && !w.gathers() {
				out = source{turned: w.turnedPlace(t, down, t)}
				op.To, op.Z, op.Acts = down.Weight, out.turned.x, out.turned.acts
			}
			w.do(op)
			return out
		case gate.w.Format == up.w.Format && !gate.w.Format.Rotated():
			w.do(&hip.Thin{T: t, Gated: true, Act: l.act, Gating: l.gating, Products: []hip.ThinProduct{gate.thin(), up.thin()}})
			return source{x: s.gate}
		}
	}
	w.secondStep(t, second)
	w.do(&hip.Activate{Act: l.act, Gating: l.gating, N: t * l.up.N, Gate: s.gate, Up: s.up, Out: s.gate})
	return source{x: s.gate}
}

// fused reports whether one launch corrects and activates what gate and up give.
func (l *layer) fused() bool {
	g, u := l.gate.formed, l.up.formed
	return g != nil && u != nil && g.fused && u.fused && g.q.Format == u.q.Format && g.q.bias == 0 && u.q.bias == 0
}

// formedExpert is expert for a stack that has a form.
func (w *walk) formedExpert(m *matrix, slots, share int, in source, y hip.Address) {
	f, s := m.formed, w.s
	if f.u != nil { // made once for all experts of a row
		w.linear(slots/share, in, target{w: f.u, y: s.thin})
	}
	if q, b := f.q, f.b; q != nil && b != nil && q.Format.Rotated() && b.Format.SameInput(q.Format.Hadamard) {
		in.turned = w.turnTo(&hip.Rotate{T: slots / share, X: in.x}, q, slots)
	}
	var added hip.Address
	if f.q != nil {
		w.expert(f.q, slots, share, in, y, 0)
		added = y
	}
	if f.u != nil {
		mix := &hip.Mix{T: slots, Experts: w.list.chosen, Share: share, B: f.shared, N: m.N, Z: s.thin, C: f.mix, Add: added != 0, Y: y}
		if f.q == nil {
			mix.Bias = m.bias
		}
		w.do(mix)
		return
	}
	w.expert(f.b, slots, share, in, s.thin, 0)
	w.expert(f.a, slots, 1, source{x: s.thin}, y, added)
}
