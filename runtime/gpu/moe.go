package gpu

import (
	"slices"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/kernels/hip"
)

// mixture computes, for n rows of a source, what the shared layer gives and the
// sum of the outputs of the experts that the router chooses for each, by what it reads of
// routed, which may be the source.
func (w *walk) mixture(b *block, n int, routed, in source, to target) {
	e, s := w.e, w.s
	var logits []target
	if b.up != nil || e.team == nil {
		logits = append(logits, target{w: b.router, y: s.router})
	}
	switch gate := (target{w: b.sharedGate, y: s.factor}); {
	case b.sharedGate != nil && b.routerNorm.Weight == 0:
		logits = append(logits, gate)
	case b.sharedGate != nil:
		w.linear(n, in, gate)
	}
	w.linear(n, routed, logits...)
	if e.apart[e.span.Lo+b.index] && !(w.many && b.up != nil) {
		w.mixtureApart(b, n, in, to)
		return
	}
	sum := &hip.Combine{T: n, D: e.shape.width, TopK: int(b.MoE.TopK), Parts: s.parts, Chosen: s.chosen, Share: s.share, Out: to.y}
	w.sharedLayer(b, n, &in, sum)
	if b.up == nil { // experts are other ranks'
		sum.TopK, sum.Share = 0, 0
		w.do(sum)
		return
	}
	if b.latentDown != nil {
		in = w.squeeze(b, n, in)
		sum.D, sum.Out, sum.Shared = b.latentDown.N, s.squeezedSum, 0
	}
	w.experts(b, n, in, sum)
	w.lift(b, n, to)
}

// sharedLayer computes what the shared layer gives, where there is one, for a sum to begin
// with.
func (w *walk) sharedLayer(b *block, n int, in *source, sum *hip.Combine) {
	if b.sharedGate != nil {
		sum.Gate = w.s.factor
	}
	if b.shared.up == nil {
		return
	}
	if sum.Shared = sum.Out; !w.many {
		w.roundOnce(in, n, n, b.shared.inner()...)
	}
	w.plain(&b.shared, n, *in, target{y: sum.Out})
	in.fine = hip.Acts{} // what lies between its matrices was rounded to the same place
}

// squeeze computes what latent experts read.
func (w *walk) squeeze(b *block, n int, in source) source {
	w.linear(n, in, target{w: b.latentDown, y: w.s.squeezed})
	return source{x: w.s.squeezed}
}

// lift makes rows of what latent experts gave, beside what the shared layer did.
func (w *walk) lift(b *block, n int, to target) {
	s := w.s
	switch {
	case b.latentUp == nil:
	case b.shared.up == nil:
		w.linear(n, source{x: s.squeezedSum}, target{w: b.latentUp, y: to.y})
	default:
		w.linear(n, source{x: s.squeezedSum}, target{w: b.latentUp, y: s.lifted})
		w.do(&hip.Norm{T: n, D: w.e.shape.width, X: to.y, A: hip.Branch{Rows: s.lifted}})
	}
}

// mixtureApart is what comes behind the router where the experts lie in the processor's
// memory: it computes them while the shared layer runs here.
func (w *walk) mixtureApart(b *block, n int, in source, to target) {
	s := w.s
	if w.gathers() && w.err == nil {
		w.err = formats.Unsupportedf("", b.MoE.Up.Weight, "summing up what experts read that lie in the processor's memory")
	}
	// The sum of one row that is all of the experts', whoever they are.
	sum := &hip.Combine{T: n, D: w.e.shape.width, TopK: 1, Parts: s.parts, Chosen: s.chosen, Out: to.y}
	x, y := in.x, s.parts
	switch {
	case b.latentDown != nil:
		x, y = w.squeeze(b, n, in).x, s.squeezedSum
	case b.shared.up == nil:
		y = to.y
	}
	w.do(b.route(n, s))
	if b.here.up != nil && !w.many {
		w.handDown(b, n, x, s.parts)
		w.expertsHere(b, n, in, to)
		w.handUp()
		sum.Shared = to.y
		w.do(sum)
		return
	}
	w.handDown(b, n, x, y)
	w.sharedLayer(b, n, &in, sum)
	w.handUp()
	if y == s.parts {
		w.do(sum)
	}
	w.lift(b, n, to)
}

// experts computes the sum of what the chosen experts make of n rows of a source. A slot is a
// row with one of its experts; which those are stays on the device.
func (w *walk) experts(b *block, n int, in source, sum *hip.Combine) {
	e, s, m := w.e, w.s, b.MoE
	topK, slots := int(m.TopK), n*int(m.TopK)
	w.list = slotList{s.chosen, s.slots, s.first}
	route, share := b.route(n, s), topK
	if w.many || w.gathers() {
		route.Slots, route.First = s.slots, s.first
	}
	if m.WeighInput { // each slot reads a row of its own
		w.do(route)
		w.do(&hip.Weigh{T: n, D: e.shape.width, TopK: topK, X: in.x, Share: s.share, Out: s.parts})
		in, share, sum.Share = source{x: s.parts}, 1, 0
	}
	if !w.many {
		w.roundOnce(&in, n, slots/share, b.layer.inner()...)
	}
	if !m.WeighInput {
		w.do(route)
	}
	if b.up.pieces != nil {
		w.cut(cut{known: int(m.Experts)})
	}
	w.stacks(&b.layer, n, slots, share, in)
	w.do(sum)
}

// stacks computes what stacks of experts make of slots of n rows, which each so many share a row of a source, into
// scratch.parts.
func (w *walk) stacks(l *layer, n, slots, share int, in source) {
	next := w.activated(l, slots, share, in)
	if !w.many {
		w.roundOnce(&next, n, slots, l.down)
	}
	w.expert(l.down, slots, 1, next, w.s.parts, 0)
}

// roundOnce is round of what slots of n rows read, but where each block of their
// products does that by itself sooner than a launch: see streams.
func (w *walk) roundOnce(in *source, n, rows int, ms ...*matrix) {
	if w.e.streams(n) && !slices.ContainsFunc(ms, func(m *matrix) bool { return !w.coarse(m) || m.K > fineOnTheWay }) {
		return
	}
	w.round(in, rows, ms...)
}

// activated computes, for each slot, what lies between the matrices of its expert.
func (w *walk) activated(l *layer, slots, share int, in source) source {
	s := w.s
	if !w.many && !w.gathers() && l.gate != nil && l.gate.plain() && l.up.plain() && l.gate.Format == l.up.Format {
		w.do(&hip.Matvec{T: slots, Exact: w.e.exact || l.up.floats, X: in.x, Acts: in.acts, Fine: in.fine, Experts: w.list.chosen, Stack: l.up.experts, Share: share,
			Gated: true, Act: l.act, Gating: l.gating, Products: []hip.Product{{W: l.gate.Weight, Y: s.gate, Bias: l.gate.bias}, {W: l.up.Weight, Bias: l.up.bias}}})
		return source{x: s.gate}
	}
	mid := &hip.Activate{Act: l.act, Gating: l.gating, N: slots * l.up.N, Gate: s.gate, Out: s.gate}
	if l.gate != nil {
		w.expert(l.gate, slots, share, in, s.gate, 0)
		w.expert(l.up, slots, share, in, s.up, 0)
		mid.Up = s.up
	} else {
		w.expert(l.up, slots, share, in, s.gate, 0)
	}
	w.do(mid)
	return source{x: s.gate}
}

// plain reports whether a stack is multiplied as its codes are.
func (m *matrix) plain() bool {
	return m.pieces == nil && m.formed == nil && !m.Format.Rotated()
}

// route is the choice of experts for n rows.
func (b *block) route(n int, s *scratch) *hip.Route {
	m := b.MoE
	return &hip.Route{T: n, Experts: int(m.Experts), TopK: int(m.TopK), Normalize: m.Normalize, Logits: s.router, Chosen: s.chosen, Share: s.share,
		Score: scores[m.Score], Bias: b.selectBias, Groups: int(m.Groups), TopGroups: int(m.TopGroups), GroupBest: int(m.Best()), ZeroMasked: m.ZeroMasked,
		Epsilon: m.Epsilon, Floor: m.Floor, Scale: m.Factor(), ExpertScale: b.expertScale}
}

// scores are a graph's, as kernels number them.
var scores = map[graph.Score]hip.Score{graph.ScoreSoftmax: hip.ScoreSoftmax, graph.ScoreSigmoid: hip.ScoreSigmoid,
	graph.ScoreSelected: hip.ScoreSelected, graph.ScoreRoot: hip.ScoreRoot}

// expert multiplies each slot's row, which so many slots share, with its
// expert's matrix, and adds a residual, which may be y.
func (w *walk) expert(m *matrix, slots, share int, in source, y, residual hip.Address) {
	w.gatherSlots(slots, share, in, m)
	switch {
	case m.pieces != nil:
		w.streamed(m, slots, share, in, y, residual)
		return
	case m.formed != nil:
		w.formedExpert(m, slots, share, in, y)
		return
	case m.Format.Rotated():
		w.rotatedExpert(m, slots, share, in, y, residual)
		return
	}
	s, products := w.s, []hip.Product{{W: m.Weight, Y: y, Bias: m.bias, Residual: residual}}
	if !w.many {
		w.do(&hip.Matvec{T: slots, Exact: w.e.exact || m.floats, X: in.x, Acts: in.acts, Fine: in.fine, Experts: w.list.chosen, Stack: m.experts, Share: share, Products: products})
		return
	}
	w.do(&hip.Matmul{T: slots, Exact: w.e.exact, X: in.x, First: w.list.first, Slots: w.list.slots, Stack: m.experts, Share: share, Products: products, Scratch: s.tiles})
}
