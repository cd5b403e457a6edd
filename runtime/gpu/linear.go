package gpu

import (
	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/kernels/hip"
)

// A matrix is W[N][K], or a stack of one for each expert, with its bias, as it
// lies on the device.
type matrix struct {
	hip.Weight             // of one expert
	experts    int         // 0: it is no stack
	bias       hip.Address // f32 [N] or [experts][N], 0: none
	formed     *formed     // of a form other than dense; Format, Data and parts are empty then
	// floats has few rows multiplied in float32 in the default mode too: a thin factor,
	// for which rounding the input would take longer than multiplying.
	floats bool
	input  string // of the graph's linear, "" for a factor or a table
	tensor formats.Tensor
	parts  []hip.Part
	rows   cpu.RowDecoder // of a table that stays on the host
	pieces []piece        // of experts that come when rows want them; nil: the matrix lies here
}

// A target is one matrix of a group that shares an input, and where its
// output goes: y[T][N] = W x + bias + residual. y may be the residual.
type target struct {
	w           *matrix
	y, residual hip.Address
	// raw leaves a product of rotated codewords on their output side, where nothing
	// is added to it.
	raw bool
	// a and z correct the product where few rows are multiplied with codes: hip.Product.
	a *matrix
	z hip.Address
	// sent, where given, wants y sent to the other ranks of a team.
	sent *sent
}

// product is the target as kernels/hip has it.
func (g *target) product() hip.Product {
	p := hip.Product{W: g.w.Weight, Y: g.y, Bias: g.w.bias, Residual: g.residual}
	if g.a != nil {
		p.A, p.Z = g.a.Weight, g.z
	}
	return p
}

// A source is what a group of products reads: x[T][K], normalised on the way
// where there is a norm, or the same rounded to bytes already.
type source struct {
	x    hip.Address
	norm hip.Normal
	acts hip.Acts // the same rounded to bytes in groups of 32; without Data: not
	fine hip.Acts // in groups of 16
	// turned is the same on the input side of all that read it.
	turned turned
	// halved says that what is normalised lies where products of many rows bring it; there is no x.
	halved bool
	// from is what other ranks sent of a normalised x, the sum of which goes to settled.
	from    *hip.Exchange
	settled hip.Address
}

// matrix places a tensor, which may be a stack of so many experts'.
func (l *layout) matrix(t formats.Tensor, experts int64) *matrix {
	if t.Form != "" {
		return l.form(&t, experts)
	}
	return l.dense(t)
}

// dense places a tensor that is one matrix, or one factor of a form.
func (l *layout) dense(t formats.Tensor) *matrix {
	if err := scheme.Check(&t); err != nil {
		l.fail(err)
		return &matrix{}
	}
	rows, k := t.Rows()
	s, _ := scheme.ByName(t.Scheme)
	m := &matrix{tensor: t, Weight: hip.Weight{N: int(rows), K: int(k)}}
	var size int64
	var err error
	if m.Format, err = hip.FormatOf(s, t.Params, k); err == nil {
		m.parts, size, err = m.Format.Parts(t.Shape, t.Params)
	}
	if err != nil {
		l.fail(formats.Of(t.Name, err))
		return &matrix{}
	}
	m.Data = l.arena.take(size)
	l.matrices = append(l.matrices, m)
	return m
}

// integers reports whether a product is one of activations rounded to bytes.
func (w *walk) integers(m *matrix) bool {
	return !w.e.exact && !m.floats && m.Format.Integer() && !m.Format.Rotated()
}

// coarse reports whether all that read a matrix's input take it rounded in groups of
// 32.
func (w *walk) coarse(m *matrix) bool {
	for _, m := range readers(m) {
		if !w.integers(m) || m.Format.Fine() {
			return false
		}
	}
	return true
}

// round rounds t rows of a source to bytes, where a matrix wants them so.
func (w *walk) round(in *source, t int, ms ...*matrix) {
	for _, m := range readers(ms...) {
		switch {
		case !w.integers(m):
		case m.Format.Fine() && in.fine.Data == 0:
			in.fine = hip.Acts{Data: w.s.fine, T: t, K: m.K, Fine: true}
			w.do(&hip.Quantize{X: in.x, Acts: in.fine})
		case !m.Format.Fine() && in.acts.Data == 0:
			in.acts = hip.Acts{Data: w.s.acts, T: t, K: m.K}
			w.do(&hip.Quantize{X: in.x, Acts: in.acts})
		}
	}
}

// fineOnTheWay is the longest row that a product rounds in groups of 16 by itself,
// where one row is multiplied on CUDA. Choosing the scales of those takes ten times as
// long as rounding in groups of 32, and every block of the product does it again.
const fineOnTheWay = 8192

// roundFew rounds what products would else round on the way, each of their blocks
// again: for the targets that take groups of 16, unless one row is streamed, and in
// groups of 32 more than fusedRows rows, to a place that nothing else has.
func (w *walk) roundFew(in *source, t int, targets []target) {
	if in.norm.Weight != 0 {
		return
	}
	for _, g := range targets {
		switch {
		case g.w.Format.Fine() && (!w.e.streams(t) || g.w.K > fineOnTheWay):
			w.round(in, t, g.w)
		case t > fusedRows && in.acts.Data == 0 && w.integers(g.w) && !g.w.Format.Fine():
			in.acts = hip.Acts{Data: w.s.own, T: t, K: g.w.K}
			w.do(&hip.Quantize{X: in.x, Acts: in.acts})
		}
	}
}

// linear computes the targets from t rows of a source.
func (w *walk) linear(t int, in source, targets ...target) {
	var products []hip.Product
	var rotated []target
	for _, g := range targets {
		w.gather(t, in, g.w)
	}
	for _, g := range targets {
		if g.w.formed != nil {
			w.formedTargets(t, in, targets)
			return
		}
		if g.w.Format.Rotated() {
			rotated = append(rotated, g)
			continue
		}
		products = append(products, g.product())
	}
	w.rotated(t, in, rotated)
	if len(products) == 0 {
		return
	}
	if !w.many {
		w.roundFew(&in, t, targets)
		exact := w.e.exact || targets[0].w.floats
		o := &hip.Matvec{T: t, Exact: exact, X: in.x, Acts: in.acts, Fine: in.fine, Norm: in.norm, ExactNorm: w.e.exact, Products: products, From: in.from, Settled: in.settled}
		o.Send = w.sends(targets[0].sent, o.Sends, &products[0])
		w.do(o)
		return
	}
	o := &hip.Matmul{T: t, Exact: w.e.exact, X: in.x, Products: products, Scratch: w.s.tiles, Brought: in.halved}
	if sent := targets[0].sent; sent != nil {
		w.e.tuning.Apply(o) // its tile decides
		o.Send = w.sends(sent, o.Sends, &products[0])
	}
	w.do(o)
}

// gated computes act(gate x) * (up x) of t rows, and returns it as down's
// source: in s.gate, or rounded to bytes.
func (w *walk) gated(t int, in source, l *layer) source {
	w.gather(t, in, l.gate, l.up)
	if l.gate.formed != nil || l.up.formed != nil {
		return w.formedGate(t, in, l)
	}
	s := w.s
	products := []hip.Product{{W: l.gate.Weight, Y: s.gate, Bias: l.gate.bias}, {W: l.up.Weight, Bias: l.up.bias}}
	biased := l.gate.bias != 0 || l.up.bias != 0
	switch {
	case alike(l.gate, l.up):
		return w.rotatedGate(t, in, l)
	case l.gate.Format != l.up.Format || l.gate.Format.Rotated() || biased && !w.many:
		w.linear(t, in, target{w: l.gate, y: s.gate}, target{w: l.up, y: s.up})
		w.do(&hip.Activate{Act: l.act, Gating: l.gating, N: t * l.up.N, Gate: s.gate, Up: s.up, Out: s.gate})
		return source{x: s.gate}
	case w.many:
		w.do(&hip.Matmul{T: t, Exact: w.e.exact, X: in.x, Products: products, Gated: true, Act: l.act, Gating: l.gating, Scratch: s.tiles, Brought: in.halved})
		return source{x: s.gate}
	}
	return w.gatedCodes(t, in, l, products)
}

// gatedCodes is gated of few rows in one launch.
func (w *walk) gatedCodes(t int, in source, l *layer, products []hip.Product) source {
	s := w.s
	op := &hip.Matvec{T: t, Exact: w.e.exact, X: in.x, Acts: in.acts, Fine: in.fine, Norm: in.norm, ExactNorm: w.e.exact, From: in.from, Settled: in.settled, Gated: true, Act: l.act, Gating: l.gating, Products: products}
	out := source{x: s.gate}
	if w.coarse(l.down) && !w.e.streams(t) && l.up.N >= 4 { // narrower ones have no whole tiles
		op.Rounded = hip.Acts{Data: s.wide, T: t, K: l.up.N}
		out = source{acts: op.Rounded}
	}
	w.do(op)
	return out
}

// embed looks up the rows' tokens, to y[T][D].
func (w *walk) embed(y hip.Address) {
	e := w.e
	op := &hip.Embed{T: w.t, Table: e.table.Weight, Token: w.state.tokens, Scale: e.g.Embed.Scale,
		Positions: e.positions, Position: w.state.positions(), Y: y}
	switch f := e.table.formed; {
	case f == nil:
		w.do(op)
	case f.chain != nil:
		w.lookupChain(f.chain, op)
	default:
		w.lookupProduct(f, op)
	}
}

// streams reports whether a gated product leaves the rounding of its outputs to
// the product that reads them: blocks then need not have whole groups of 32, and
// all units get as many rows.
func (e *Engine) streams(t int) bool { return t == 1 && e.m.target.API == hip.CUDA }
