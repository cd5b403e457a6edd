package cpu

import (
	"math"

	"github.com/nstf/nstf/formats/graph"
	kernels "github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/kernels/ops"
	"github.com/nstf/nstf/runtime/device"
)

// A pass is the batch in progress, spread out by row, and the arguments of
// the work that the pool is doing. All slices keep their memory.
type pass struct {
	rows, from int   // rows before from give the last block's keys and values alone
	wanted     []int // rows
	many       bool  // a prompt's: see device.Batch.Few
	segments   []segment
	tokens     []int32   // of each row
	positions  []int64   // of each row in its sequence
	owner      []int32   // segment of each row
	angles     []angles  // of each rope
	freq       []float32 // a rope's frequencies

	layer             int // block of the span
	linear            linearWork
	peer              peerWork
	rowWork           rowWork
	attend            attendWork
	followed          []followed
	queryBlocks, ends []queryBlock // of the layer, and the last of each segment
	rotated           rotatedWork
	formed            formedWork
	routes            routes
	choosing          []*device.Segment // whose tokens are picked
	chosen            []int32           // tokens
}

type segment struct {
	state *state
	first int // row
	rows  int
}

// angles are the cosines and sines of one rope, [T][pairs].
type angles struct {
	pairs    int
	cos, sin []float32
}

// rowWork is the arguments of work done row by row.
type rowWork struct {
	dst, src      []float32
	branch, extra branch
	scale         []float32 // [1], or nil
	width         int
	norm          *norm
	act           ops.Activation
	gating        ops.Gating
	xielu         *ops.XIELU // in place of act, or nil
	softcap       float32
	base          int
}

// parts are the functions that the pool calls, bound once: binding allocates.
type parts struct {
	linear, attend, follow, rotated, thin, chain, delta, scan         func(worker, part int)
	norm, place, act, residual, softcap, route, quantize, turn, round func(row int)
	outGate, convolve, finish, perLayer, inject, latent, queries      func(row int)
	choose, open, multiply, weigh, sample                             func(row int)
	extend, pages                                                     func(worker, part int)
}

func (e *Engine) bindParts() parts {
	return parts{
		linear: e.linearPart, attend: e.attendPart, follow: e.followPart, rotated: e.rotatedPart, thin: e.thinPart, chain: e.chainPart, turn: e.turnRow,
		norm: e.normRow, place: e.placeRow, act: e.actRow, residual: e.residualRow, softcap: e.softcapRow, route: e.routeRow, quantize: e.quantizeRow, round: e.roundRow,
		delta: e.deltaPart, outGate: e.outGateRow, convolve: e.convolveRow, finish: e.finishRow, perLayer: e.perLayerRow, inject: e.injectRow,
		scan: e.scanPart, choose: e.selectRow, open: e.openRow, multiply: e.multiplyRow, weigh: e.weighRow, latent: e.latentRow, queries: e.turnQueries, sample: e.sampleRow,
		extend: e.extendPart, pages: e.pagesPart,
	}
}

// eachRow calls f for rows 0 to t-1, spread over the threads where there are
// several.
func (e *Engine) eachRow(t int, f func(row int)) {
	if t == 1 {
		f(0)
		return
	}
	e.pool.Run(t, f)
}

// begin spreads a batch out.
func (e *Engine) begin(b *device.Batch) {
	p := &e.pass
	p.segments, p.tokens, p.positions, p.owner, p.wanted = p.segments[:0], p.tokens[:0], p.positions[:0], p.owner[:0], p.wanted[:0]
	p.rows = 0
	for i := range b.Segments {
		s := &b.Segments[i]
		st, n := s.State.(*state), s.Rows()
		p.segments = append(p.segments, segment{st, p.rows, n})
		p.tokens = append(p.tokens, s.Tokens...)
		for j := range n {
			p.positions = append(p.positions, st.Len()+int64(j))
			p.owner = append(p.owner, int32(i))
		}
		p.rows += n
		for row := p.rows - s.Wanted; row < p.rows; row++ {
			p.wanted = append(p.wanted, row)
		}
	}
	switch {
	case e.gathering != nil || !e.span.Head || e.policy != nil && b.Few(device.FewRows): // all rows are, the last for history's sake
		p.from = 0
	case len(p.wanted) > 0 && e.policy.ForPrompts(): // its block of queries chooses together
		p.from = p.pageStart(p.wanted[0])
	case len(p.wanted) > 0:
		p.from = p.wanted[0]
	default:
		p.from = p.rows
	}
	p.many = !b.Few(device.FewRows)
	if p.many {
		for i := range p.segments {
			p.segments[i].state.past.forget()
		}
	}
	e.s.fit(e.g, e.span, p.rows)
	if e.carry.outWidth > int(e.g.Width) {
		e.carry.passed = fit(e.carry.passed, p.rows*e.carry.outWidth)
	}
	if p.angles == nil {
		p.angles = make([]angles, len(e.g.Ropes))
	}
	for i := range e.g.Ropes {
		p.setAngles(&p.angles[i], &e.g.Ropes[i], b)
	}
}

// setAngles computes a rope's angles for every row. The product of position and
// frequency is rounded to float32 before its cosine, as in the reference.
func (p *pass) setAngles(a *angles, r *graph.Rope, b *device.Batch) {
	a.pairs = int(r.Dim / 2)
	a.cos, a.sin = fit(a.cos, p.rows*a.pairs), fit(a.sin, p.rows*a.pairs)
	for i, s := range p.segments {
		freq, factor := r.AppendFrequencies(p.freq[:0], b.Segments[i].Length)
		p.freq = freq
		for row := s.first; row < s.first+s.rows; row++ {
			pos := float32(p.positions[row])
			for j, f := range freq {
				sin, cos := math.Sincos(float64(pos * f))
				a.cos[row*a.pairs+j] = float32(cos) * factor
				a.sin[row*a.pairs+j] = float32(sin) * factor
			}
		}
	}
}

// scratch is the work space of a pass, one row after the other.
type scratch struct {
	rows       int
	x, h, a, f []float32 // [T][D]: hidden state, normed, branch outputs
	q, att     []float32 // [T][H*HeadDim]; with latents [T][H*KeyDim], [T][H*Rank]
	k, v       []float32 // [T][KVHeads*HeadDim]; with latents [T][KeyDim]
	// z is [T][Heads*HeadDim] of output gates and state spaces, [T][Heads*ValueDim] of
	// delta nets and latents, whose queries are [T][H*QueryDim], [T][3*C] of short
	// convolutions.
	z                []float32
	mixed, turned    []float32 // [T][C] before the convolution, and behind it; mixed also latents of queries
	headIn, headOut  []float32 // [T]: what a head's matrix reads and gives
	fade, rate       []float32 // [T][Heads] of a delta net or state space; fade [T][Fades] of a net by channel
	gate, up         []float32 // [T][F]
	router           []float32 // [T][Experts]
	choice           []float32 // [T][Experts+Groups], of which there are no more
	factor           []float32 // [T]: logits of the shared layer's gate
	inputs, looked   []float32 // [T][blocks*Width]: per-layer inputs, and rows of their table
	gathered, result []float32 // [T][max(D, L)]: rows of one expert
	latent           []float32 // [T][L]: what experts read where that is not the layer's input
	latentSum        []float32 // [T][L]: the sum of their outputs then
}

// local is the work space of one worker.
type local struct {
	gemm    kernels.GemmScratch
	integer kernels.IntegerScratch
	attend  attendLocal
	chain   chainLocal
	follow  follower
	choose  pageChooser
}

func (l *local) bytes() int64 {
	return l.attend.bytes() + l.follow.bytes() + l.choose.bytes() + int64(l.integer.Bytes()) + l.chain.bytes()
}

// fit sizes the work space for t rows.
func (s *scratch) fit(g *graph.Graph, span device.Span, t int) {
	if t <= s.rows {
		return
	}
	s.rows = t
	var q, kv, inner, experts, z, channels, heads, fades, perLayer, latent int
	for i := span.Lo; i < span.Hi; i++ {
		b := &g.Blocks[i]
		if a := b.Attn; a != nil {
			q, kv = max(q, int(a.Q.Out)), max(kv, int(a.KVHeads*a.HeadDim))
			if a.Gate != nil {
				z = max(z, int(a.Q.Out))
			}
		}
		if a := b.Latent; a != nil {
			q, kv = max(q, int(a.Heads*a.KeyDim())), max(kv, int(a.KeyDim()))
			z = max(z, int(a.Heads*max(a.QueryDim(), a.ValueDim)))
			if a.QA != nil {
				channels = max(channels, int(a.QA.Out))
			}
		}
		if n := b.Delta; n != nil {
			z, channels, heads, fades = max(z, int(n.Values())), max(channels, int(n.Channels()), between(n)), max(heads, int(n.Heads)), max(fades, int(n.Fades()))
		}
		if n := b.Mamba; n != nil {
			z, channels, heads = max(z, int(n.Values())), max(channels, int(n.Channels())), max(heads, int(n.Heads))
		}
		if n := b.ShortConv; n != nil {
			z, channels = max(z, int(3*n.Channels())), max(channels, int(n.Channels()))
		}
		if b.PerLayer != nil {
			inner, perLayer = max(inner, int(b.PerLayer.Gate.Out)), len(g.Blocks)*int(g.PerLayer.Width)
		}
		if b.FFN != nil {
			inner = max(inner, int(b.FFN.Up.Out))
		}
		if m := b.MoE; m != nil {
			inner, experts = max(inner, int(m.Up.Out)), max(experts, int(m.Experts))
			if m.LatentDown != nil {
				latent = max(latent, int(m.LatentDown.Out))
			}
			if m.Shared != nil {
				inner = max(inner, int(m.Shared.Up.Out))
			}
		}
	}
	d := int(g.Width)
	for _, buf := range []*[]float32{&s.x, &s.h, &s.a, &s.f} {
		*buf = make([]float32, t*d)
	}
	s.q, s.att = make([]float32, t*q), make([]float32, t*q)
	s.k, s.v = make([]float32, t*kv), make([]float32, t*kv)
	s.z, s.mixed, s.turned = make([]float32, t*z), make([]float32, t*channels), make([]float32, t*channels)
	s.fade, s.rate = make([]float32, t*max(heads, fades)), make([]float32, t*heads)
	s.inputs, s.looked = make([]float32, t*perLayer), make([]float32, t*perLayer)
	gathered := 0
	if experts > 0 {
		gathered = max(d, latent)
	}
	s.fitExperts([2]int{gathered, inner}, t)
	if experts > 0 {
		s.router, s.choice, s.factor = make([]float32, t*experts), make([]float32, 2*t*experts), make([]float32, t)
		s.latent, s.latentSum = make([]float32, t*latent), make([]float32, t*latent)
	}
}

// between returns the numbers of a row between the matrices of a delta net that follow
// one another.
func between(n *graph.Delta) int {
	sum := int64(0)
	for _, l := range []*graph.Linear{n.ZA, n.AlphaA} {
		if l != nil {
			sum += l.Out
		}
	}
	return int(sum)
}

// fitExperts sizes what experts need for t rows, of which they read so many numbers, and of which
// so many lie between their matrices.
func (s *scratch) fitExperts(width [2]int, t int) {
	s.gathered, s.result = fit(s.gathered, t*width[0]), fit(s.result, t*width[0])
	s.gate, s.up = fit(s.gate, t*width[1]), fit(s.up, t*width[1])
}

func (s *scratch) bytes() int64 {
	var n int
	for _, b := range [][]float32{s.x, s.h, s.a, s.f, s.q, s.att, s.k, s.v, s.z, s.mixed, s.turned, s.fade, s.rate, s.gate, s.up, s.router, s.choice, s.factor, s.gathered, s.result, s.latent, s.latentSum, s.inputs, s.looked, s.headIn, s.headOut} {
		n += cap(b)
	}
	return int64(n) * 4
}

// fit returns a slice of n elements, b's memory where it is large enough. It
// doubles, so that a sequence growing by one allocates rarely.
func fit[T any](b []T, n int) []T {
	if n <= cap(b) {
		return b[:n]
	}
	return make([]T, n, max(n, 2*cap(b)))
}
