package gpu

import (
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/runtime/device"
)

// A shape is what the size of the work space follows from.
type shape struct {
	width, vocab  int
	q, kv         int   // numbers of a row's queries, and of its keys
	inner         int   // of a layer that all rows go through
	slot          int   // of an expert
	experts, topK int   // of a mixture; topK, of one whose experts lie here, is 1 where there is none
	routed        int   // experts of a row, wherever they lie
	handed        int   // numbers of a row whose experts the processor computes
	heads         int   // that have matrices of their own, over latents
	queries       int   // numbers of a row's latent of queries
	absorbed      int   // of a row's queries behind the matrices of heads
	ofHead        int   // most numbers that a head's matrix reads
	latent        int   // of what experts read where that is not the layer's input
	perLayer      int   // of a row's per-layer inputs, for all blocks
	pairs         []int // of each rope
	z             int   // of a row's output gates, and of what recurrent mixers let through
	channels      int   // of a row behind a convolution
	deltaHeads    int   // of a row: value heads, and what they are told beside
	fades         int   // of a row, of a delta net
	part          int   // of the vocabulary, what a rank of a team computes; 0: all
	squares       int   // sums of a row that ranks add up beside
	rotated       bool  // whether some weights are
	needs               // of forms
}

func shapeOf(g *graph.Graph, span device.Span, o *Options) shape {
	s := shape{width: int(g.Width), vocab: int(g.Vocab), topK: 1}
	for i := span.Lo; i < span.Hi; i++ {
		b := &g.Blocks[i]
		if o.team != nil {
			s.squares = max(s.squares, squares(&o.team.whole.Blocks[i], o.team.Count))
		}
		if a := b.Attn; a != nil {
			s.q, s.kv = max(s.q, int(a.Q.Out)), max(s.kv, int(a.KVHeads*a.HeadDim))
			if a.Gate != nil {
				s.z = max(s.z, int(a.Q.Out))
			}
		}
		if a := b.Latent; a != nil {
			s.q, s.kv = max(s.q, int(a.Heads*max(a.KeyDim(), a.NopeDim))), max(s.kv, int(a.KeyDim()))
			s.z = max(s.z, int(a.Heads*max(a.QueryDim(), a.ValueDim)))
			s.heads, s.absorbed, s.ofHead = max(s.heads, int(a.Heads)), max(s.absorbed, int(a.Heads*a.Rank)), max(s.ofHead, int(max(a.Rank, a.NopeDim)))
			if a.QA != nil {
				s.queries = max(s.queries, int(a.QA.Out))
			}
		}
		if n := b.Delta; n != nil { // what its output matrix reads is as wide as queries may be
			s.q, s.z = max(s.q, int(n.Values())), max(s.z, int(n.Values()))
			s.channels, s.deltaHeads = max(s.channels, int(n.Channels())), max(s.deltaHeads, int(2*n.Heads+n.KeyHeads))
			s.fades = max(s.fades, int(n.Fades()))
			if n.ZA != nil { // which lies where its convolution writes, and is rounded where z is
				s.channels, s.z = max(s.channels, int(n.ZA.Out)), max(s.z, int(n.ZA.Out))
			}
			if n.AlphaA != nil { // which lies where attention writes
				s.q = max(s.q, int(n.AlphaA.Out))
			}
		}
		if n := b.Mamba; n != nil {
			s.q, s.z = max(s.q, int(n.Values())), max(s.z, int(n.Values()))
			s.channels, s.deltaHeads = max(s.channels, int(n.Channels())), max(s.deltaHeads, int(2*n.Heads+n.Groups))
		}
		if n := b.ShortConv; n != nil {
			s.q, s.z, s.channels = max(s.q, int(n.Channels())), max(s.z, int(3*n.Channels())), max(s.channels, int(n.Channels()))
		}
		if p := b.PerLayer; p != nil {
			s.inner, s.perLayer = max(s.inner, int(p.Gate.Out)), len(g.Blocks)*int(g.PerLayer.Width)
		}
		if b.FFN != nil {
			s.inner = max(s.inner, int(b.FFN.Up.Out))
		}
		if m := b.MoE; m != nil {
			if l := m.LatentDown; l != nil { // rounded and turned where queries are
				s.q, s.latent = max(s.q, int(l.Out)), max(s.latent, int(l.Out))
			}
			s.experts, s.routed = max(s.experts, int(m.Experts)), max(s.routed, int(m.TopK))
			if o.Apart[i] {
				s.handed = max(s.handed, int(m.Latent(g.Width)))
			}
			if !o.Apart[i] || o.Streams || len(o.Pinned[i]) > 0 {
				if s.slot, s.topK = max(s.slot, int(m.Up.Out)), max(s.topK, int(m.TopK)); m.WeighInput { // slots read rows of their own
					s.slot = max(s.slot, s.width)
				}
			}
			if m.Shared != nil {
				s.inner = max(s.inner, int(m.Shared.Up.Out))
			}
		}
	}
	for i := range g.Ropes {
		s.pairs = append(s.pairs, int(g.Ropes[i].Dim/2))
	}
	return s
}

// mostRows is how many tokens the products of one pass take.
func (s *shape) mostRows() int {
	return hip.MostRows(max(s.width, s.q, s.z, s.inner, s.perLayer, s.channels)) / s.topK
}

// fewRows is the most rows of a pass whose weights are multiplied row by row
// and which is captured; more go through the matrix product. What is computed of a
// row depends on no other then.
const fewRows = hip.MaxRows

// rowTable is what the rows of a pass are: tokens, positions and owners, i32 each,
// one behind the other so that one copy brings them.
type rowTable struct {
	capacity int
	tokens   hip.Address
}

func (s *rowTable) positions() hip.Address { return s.tokens + hip.Address(4*s.capacity) }
func (s *rowTable) owners() hip.Address    { return s.tokens + hip.Address(8*s.capacity) }
func (s *rowTable) bytes() int64           { return 12 * int64(s.capacity) }

// scratch is the work space of a pass, float32 unless it says otherwise.
type scratch struct {
	rows        int // T
	logitRows   int
	few, many   rowTable
	x, h, a, f  hip.Address    // [T][D]: hidden state, normed, branch outputs
	q, att      hip.Address    // [T][Heads*HeadDim]
	k, v        hip.Address    // [T][KVHeads*HeadDim]
	z           hip.Address    // [T][Heads*HeadDim] of output gates and state spaces, [T][Heads*ValueDim] of delta nets, [T][3*C] of short convolutions
	latent      hip.Address    // [T][R]: latents of queries
	absorbed    hip.Address    // [T][Heads][Rank]: queries behind their heads' matrices
	headChosen  hip.Address    // i32 [T*Heads], and beside it what a stack of a matrix for each head wants
	headSlots   hip.Address    // i32 [T*Heads]
	headFirst   hip.Address    // i32 [Heads+1]
	mixed       hip.Address    // [T][C] of a delta net or state space
	convolved   hip.Address    // the same behind its convolution
	beta, alpha hip.Address    // [T][Heads] and [T][Fades] of a delta net; alpha, of a state space's steps
	gates       hip.Address    // [T][2*Heads+KeyHeads] of a delta net, [T][2*Heads+Groups] of a state space
	gate, up    hip.Address    // [T][F], or of experts [T*TopK][F]
	router      hip.Address    // [T][Experts]
	factor      hip.Address    // [T]: logits of the shared layer's gate
	chosen      hip.Address    // i32 [T][TopK]
	share       hip.Address    // [T][TopK]
	slots       hip.Address    // i32 [T*TopK]
	local, here hip.Address    // i32 [T][TopK] of few rows: of hip.Here
	first       hip.Address    // i32 [Experts+1]
	parts       hip.Address    // [T*TopK][max(D, L)], what experts give, or read where the router's shares are of that
	squeezed    hip.Address    // [T][L]: what experts read where that is not the layer's input
	squeezedSum hip.Address    // [T][L]
	lifted      hip.Address    // [T][D] of it
	inputs      hip.Address    // [T][blocks*Width]: per-layer inputs
	looked      hip.Address    // the same of their table
	acts, fine  hip.Address    // inputs rounded to bytes in groups of 32 and 16, see hip.Acts
	wide        hip.Address    // the same of a feed-forward layer's second half
	own         hip.Address    // the same of a product that rounds its input by itself, until it ends
	tiles       hip.Address    // of hip.Matmul
	turned      hip.Address    // inputs on the input side of rotated weights
	bytes       hip.Address    // the same rounded
	sums        hip.Address    // [T][D] on the output side of rotated weights
	thin        hip.Address    // between two factors
	decoded     hip.Address    // rows of a factor, decoded
	left        [2]hip.Address // what lies between cores of a tensor train
	digits      hip.Address    // i32 [4][T]
	counted     hip.Address    // i32: 0, 1 ... countedTo-1
	countedTo   int
	logits      hip.Address   // [logitRows][Vocab]
	part        hip.Address   // [logitRows][part of Vocab], of a rank of a team
	squares     hip.Address   // [T][sums of squares] of it
	cos, sin    []hip.Address // of each rope, [T][pairs]
	attend      hip.Address   // of hip.Attend
	attendBytes int64
	chooser     chooser
}

// row is how many numbers of a row products read at most, but for what layers have inside.
func (s *shape) row() int { return max(s.width, s.q, s.z, s.queries) }

// headFloats bounds the logits that lie on the device at once.
const headFloats = 8 << 20

// place lays the work space of t rows out.
func (s *scratch) place(sh *shape, t, slots, context int, attend, sample int64, a *arena) {
	s.rows = t
	s.logitRows = min(max(headFloats/sh.vocab, fewRows), t)
	if sh.part > 0 { // what ranks exchange at once
		s.logitRows = min(fewRows, t)
	}
	s.few, s.many = rowTable{capacity: fewRows}, rowTable{capacity: t}
	s.few.tokens, s.many.tokens = a.take(s.few.bytes()), a.take(s.many.bytes())
	for _, p := range []*hip.Address{&s.x, &s.h, &s.a, &s.f} {
		*p = a.floats(t * sh.width)
	}
	s.q, s.att = a.floats(t*sh.q), a.floats(t*sh.q)
	s.k, s.v = a.floats(t*sh.kv), a.floats(t*sh.kv)
	if sh.z > 0 {
		s.z = a.floats(t * sh.z)
	}
	if sh.heads > 0 {
		s.latent, s.absorbed = a.floats(t*sh.queries), a.floats(t*sh.absorbed)
		s.headChosen, s.headSlots, s.headFirst = a.ints(t*sh.heads), a.ints(t*sh.heads), a.ints(sh.heads+1)
	}
	if sh.channels > 0 {
		s.mixed, s.convolved = a.floats(t*sh.channels), a.floats(t*sh.channels)
		s.beta, s.alpha, s.gates = a.floats(t*sh.deltaHeads), a.floats(t*max(sh.deltaHeads, sh.fades)), a.floats(t*sh.deltaHeads)
	}
	if sh.perLayer > 0 {
		s.inputs, s.looked = a.floats(t*sh.perLayer), a.floats(t*sh.perLayer)
	}
	n := t * sh.topK
	between := max(t*sh.inner, n*sh.slot)
	s.gate, s.up = a.floats(between), a.floats(between)
	if sh.experts > 0 {
		s.router, s.parts, s.factor = a.floats(t*sh.experts), a.floats(n*max(sh.width, sh.latent)), a.floats(t)
		s.chosen, s.share, s.slots, s.first = a.ints(t*sh.routed), a.floats(t*sh.routed), a.ints(n), a.ints(sh.experts+1)
		s.local, s.here = a.ints(min(t, fewRows)*sh.routed), a.ints(min(t, fewRows)*sh.routed)
	}
	if sh.latent > 0 {
		s.squeezed, s.squeezedSum, s.lifted = a.floats(t*sh.latent), a.floats(t*sh.latent), a.floats(t*sh.width)
	}
	// What products of rows and of slots have in common.
	row, perRow := sh.row(), max(sh.topK, sh.heads)
	n = t * perRow
	wide, fewSlots := max(sh.inner, sh.slot, sh.rank, sh.ofHead), min(n, fewRows*perRow)
	s.acts = a.take(max(hip.ActsSize(min(t, fewRows), row), hip.ActsSize(fewSlots, wide)))
	s.fine = a.take(max(hip.FineActsSize(min(t, fewRows), row), hip.FineActsSize(fewSlots, wide)))
	s.tiles = a.take(max(hip.MatmulScratch(t, max(row, sh.inner, sh.rank)), hip.MatmulScratch(n, max(sh.slot, sh.rank, sh.ofHead))))
	s.wide = a.take(hip.ActsSize(fewRows, sh.inner))
	s.own = a.take(hip.ActsSize(fewRows, max(row, wide, sh.latent, sh.perLayer)))
	if sh.rotated {
		s.turned = a.floats(max(t*max(row, sh.inner, sh.rank), n*max(sh.slot, sh.rank, sh.ofHead)))
		s.sums = a.floats(max(t*max(sh.width, sh.needs.sums), s.logitRows*sh.headSums, n*sh.sumsSlots))
		s.bytes = a.take(max(hip.ActsSize(fewRows, row), hip.ActsSize(fewRows*perRow, wide)))
	}
	s.placeForms(&sh.needs, t, n, a)
	s.logits = a.floats(s.logitRows * sh.vocab)
	if sh.part > 0 {
		s.part = a.floats(s.logitRows * sh.part)
	}
	if sh.squares > 0 {
		s.squares = a.floats(fours(t * sh.squares))
	}
	s.cos, s.sin = make([]hip.Address, len(sh.pairs)), make([]hip.Address, len(sh.pairs))
	for i, p := range sh.pairs {
		s.cos[i], s.sin[i] = a.floats(t*p), a.floats(t*p)
	}
	s.attend, s.attendBytes = a.take(attend), attend
	s.chooser.place(slots, context, sh.vocab, sample, a)
}
