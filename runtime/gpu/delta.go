package gpu

import "github.com/nstf/nstf/kernels/hip"

// deltaNet takes all rows through a gated delta net up to its output matrix, which
// reads s.z then.
func (w *walk) deltaNet(b *block, in source) {
	e, s, d, n := w.e, w.s, &b.delta, b.Delta
	z, alpha := target{w: d.z, y: s.z}, target{w: d.alpha, y: s.alpha}
	first := []target{{w: d.qkv, y: s.mixed}, z, {w: d.beta, y: s.beta}, alpha}
	if d.za != nil {
		first[1] = target{w: d.za, y: s.convolved}
	}
	if d.alphaA != nil {
		first[3] = target{w: d.alphaA, y: s.att}
	}
	w.linear(w.t, in, first...)
	if d.za != nil {
		w.second(first[1].y, z)
	}
	if d.alphaA != nil {
		w.second(first[3].y, alpha)
	}
	w.do(&hip.Delta{Rows: w.rows(0), Sequences: w.sequences(), Heads: int(n.Heads), KeyHeads: int(n.KeyHeads), KeyDim: int(n.KeyDim), ValueDim: int(n.ValueDim),
		Kernel: int(n.Kernel), Tiled: n.Tiled, DecayLog: n.DecayLog, ByChannel: n.ByChannel, Sigmoid: n.SigmoidGate, Eps: n.Eps, Conv: d.conv, Decay: d.decay, DTBias: d.dtBias, Norm: d.norm,
		Mixed: s.mixed, Beta: s.beta, Alpha: s.alpha, Z: s.z, Turned: s.convolved, Out: s.att, Gate: s.gates,
		Places: e.kept.table, Memory: e.remembered(b), Apart: e.kept.floats, Few: !w.many, Settled: w.t == 1 && !w.many})
}

// second multiplies what a first matrix gave of all rows with one that follows it.
func (w *walk) second(x hip.Address, to target) {
	in := source{x: x}
	if !w.many {
		w.round(&in, w.t, to.w)
	}
	w.linear(w.t, in, to)
}

// remembered is where in place 0 the numbers of a block begin.
func (e *Engine) remembered(b *block) hip.Address {
	return e.kept.buffer.Address + hip.Address(4*b.remembers)
}

// sequences returns how many have rows in the pass, at most: few rows are captured, and
// may be anybody's.
func (w *walk) sequences() int {
	if p := w.e.pass; p != nil && w.many && p.rows == w.t {
		return p.sequences
	}
	return min(w.t, w.e.places)
}
