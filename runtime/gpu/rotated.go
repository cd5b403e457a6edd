package gpu

import "github.com/nstf/nstf/kernels/hip"

// Matrices of the scheme tcq multiply rotated inputs, and their products are
// rotated back before anything is added to them (hip.Rotate).

// A turned is an input on the input side of a matrix: float32, or rounded.
type turned struct {
	x    hip.Address
	acts hip.Acts
}

// turnTo has op compute the input side of a matrix, in bytes where the product of
// so many rows takes them, and returns it.
func (w *walk) turnTo(op *hip.Rotate, m *matrix, rows int) turned {
	to := w.turnedPlace(op.T, m, rows)
	op.To, op.Z, op.Acts = m.Weight, to.x, to.acts
	w.do(op)
	return to
}

// turnedPlace is where t rows on the input side of a matrix go.
func (w *walk) turnedPlace(t int, m *matrix, rows int) turned {
	s := w.s
	if !w.many && !w.e.exact {
		return turned{acts: hip.Acts{Data: s.bytes, T: t, K: m.K}}
	}
	return turned{x: s.turned}
}

// sharedSide returns the matrix on whose input side all is that reads a matrix's
// input, nil where there is none.
func sharedSide(m *matrix) *matrix {
	all := readers(m)
	for _, r := range all {
		if !r.Format.Rotated() || r != all[0] && !r.Format.SameInput(all[0].Format.Hadamard) {
			return nil
		}
	}
	return all[0]
}

// rotated computes targets of rotated codewords from t rows of a source.
func (w *walk) rotated(t int, in source, targets []target) {
	for len(targets) > 0 {
		first, group, rest := targets[0].w, targets[:0:0], targets[:0:0]
		for i, g := range targets {
			if i == 0 || g.w.Format.SameInput(first.Format.Hadamard) {
				group = append(group, g)
			} else {
				rest = append(rest, g)
			}
		}
		to := in.turned
		if to == (turned{}) {
			to = w.turnTo(&hip.Rotate{T: t, X: in.x}, first, t)
		}
		products := make([]hip.Product, len(group))
		for i, g := range group {
			products[i] = hip.Product{W: g.w.Weight, Y: g.y}
			if g.y == g.residual && !g.raw { // which is still needed
				products[i].Y = w.s.sums
			}
		}
		w.codewords(t, to, products)
		for i, g := range group {
			if g.raw {
				continue
			}
			w.do(&hip.Rotate{T: t, X: products[i].Y, From: g.w.Weight, Bias: g.w.bias, Residual: g.residual, Y: g.y})
		}
		targets = rest
	}
}

// codewords multiplies t rows with codewords.
func (w *walk) codewords(t int, to turned, products []hip.Product) {
	if !w.many {
		w.do(&hip.Matvec{T: t, Exact: w.e.exact, X: to.x, Acts: to.acts, Products: products})
		return
	}
	w.do(&hip.Matmul{T: t, Exact: w.e.exact, X: to.x, Products: products, Scratch: w.s.tiles})
}

// rotatedGate is gated where gate and up are rotated alike: one launch turns both
// back, activates, and turns the result to down's input side.
func (w *walk) rotatedGate(t int, in source, l *layer) source {
	s := w.s
	g, u := l.gate, l.up
	if g.Format.SameInput(u.Format.Hadamard) {
		to := w.turnTo(&hip.Rotate{T: t, X: in.x}, g, t)
		w.codewords(t, to, []hip.Product{{W: g.Weight, Y: s.gate}, {W: u.Weight, Y: s.up}})
	} else {
		for _, p := range []struct {
			m *matrix
			y hip.Address
		}{{g, s.gate}, {u, s.up}} {
			w.codewords(t, w.turnTo(&hip.Rotate{T: t, X: in.x}, p.m, t), []hip.Product{{W: p.m.Weight, Y: p.y}})
		}
	}
	op := &hip.Rotate{T: t, X: s.gate, From: g.Weight, Bias: g.bias, Gate: true, Act: l.act, Gating: l.gating, Up: s.up, UpFrom: u.Weight, UpBias: u.bias}
	if down := sharedSide(l.down); down != nil && !w.gathers() {
		return source{turned: w.turnTo(op, down, t)}
	}
	op.Y = s.gate
	w.do(op)
	return source{x: s.gate}
}

// alike reports whether the output sides of two matrices differ in scales only.
func alike(a, b *matrix) bool {
	f, g := a.Format.Hadamard, b.Format.Hadamard
	return a.Format.Rotated() && b.Format.Rotated() && f.Out == g.Out && f.Seed == g.Seed && a.N == b.N
}

// rotatedExpert is expert for rotated codewords.
func (w *walk) rotatedExpert(m *matrix, slots, share int, in source, y, residual hip.Address) {
	s := w.s
	to := in.turned
	if to == (turned{}) {
		to = w.turnTo(&hip.Rotate{T: slots / share, X: in.x}, m, slots)
	}
	products := []hip.Product{{W: m.Weight, Y: y}}
	if y == residual { // which is still needed
		products[0].Y = s.sums
	}
	if !w.many {
		w.do(&hip.Matvec{T: slots, Exact: w.e.exact, X: to.x, Acts: to.acts, Experts: w.list.chosen, Stack: m.experts, Share: share, Products: products})
	} else {
		w.do(&hip.Matmul{T: slots, Exact: w.e.exact, X: to.x, First: w.list.first, Slots: w.list.slots, Stack: m.experts, Share: share, Products: products, Scratch: s.tiles})
	}
	w.do(&hip.Rotate{T: slots, X: products[0].Y, From: m.Weight, Bias: m.bias, Residual: residual, Experts: w.list.chosen, Stack: m.experts, Y: y})
}
