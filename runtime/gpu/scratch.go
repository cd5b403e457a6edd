package gpu

import (
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/kernels/hip"
)

// A shape is what the size of the work space follows from.
type shape struct {
	width, vocab  int
	q, kv         int   // numbers of a row's queries, and of its keys
	inner         int   // of a feed-forward layer
	experts, topK int   // of a mixture; topK is 1 where there is none
	pairs         []int // of each rope
	rotated       bool  // whether some weights are
	needs               // of forms
}

func shapeOf(g *model.Graph) shape {
	s := shape{width: int(g.Width), vocab: int(g.Vocab), topK: 1}
	for i := range g.Blocks {
		b := &g.Blocks[i]
		s.q, s.kv = max(s.q, int(b.Attn.Q.Out)), max(s.kv, int(b.Attn.K.Out))
		if b.FFN != nil {
			s.inner = max(s.inner, int(b.FFN.Up.Out))
		}
		if b.MoE != nil {
			s.inner, s.experts, s.topK = max(s.inner, int(b.MoE.Up.Out)), max(s.experts, int(b.MoE.Experts)), max(s.topK, int(b.MoE.TopK))
		}
	}
	for i := range g.Ropes {
		s.pairs = append(s.pairs, int(g.Ropes[i].Dim/2))
	}
	return s
}

// fewRows is the most rows of a pass whose weights are multiplied row by row
// and which is captured; more go through the matrix product.
const fewRows = hip.MaxRows

// state is what the rows of a pass are: tokens, positions and owners, i32 each,
// one behind the other so that one copy brings them.
type state struct {
	capacity int
	tokens   hip.Address
}

func (s *state) positions() hip.Address { return s.tokens + hip.Address(4*s.capacity) }
func (s *state) owners() hip.Address    { return s.tokens + hip.Address(8*s.capacity) }
func (s *state) bytes() int64           { return 12 * int64(s.capacity) }

// scratch is the work space of a pass, float32 unless it says otherwise.
type scratch struct {
	rows        int // T
	logitRows   int
	few, many   state
	x, h, a, f  hip.Address    // [T][D]: hidden state, normed, branch outputs
	q, att      hip.Address    // [T][Heads*HeadDim]
	k, v        hip.Address    // [T][KVHeads*HeadDim]
	gate, up    hip.Address    // [T*TopK][F]
	router      hip.Address    // [T][Experts]
	chosen      hip.Address    // i32 [T][TopK]
	share       hip.Address    // [T][TopK]
	slots       hip.Address    // i32 [T*TopK]
	first       hip.Address    // i32 [Experts+1]
	parts       hip.Address    // [T*TopK][D]
	acts, fine  hip.Address    // inputs rounded to bytes in groups of 32 and 16, see hip.Acts
	wide        hip.Address    // the same of a feed-forward layer's second half
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
	cos, sin    []hip.Address // of each rope, [T][pairs]
	attend      hip.Address   // of hip.Attend
	attendBytes int64
	chooser     chooser
}

// headFloats bounds the logits that lie on the device at once.
const headFloats = 8 << 20

// place lays the work space of t rows out.
func (s *scratch) place(sh *shape, t int, context int, attend, sample int64, a *arena) {
	s.rows = t
	s.logitRows = min(max(headFloats/sh.vocab, fewRows), t)
	s.few, s.many = state{capacity: fewRows}, state{capacity: t}
	s.few.tokens, s.many.tokens = a.take(s.few.bytes()), a.take(s.many.bytes())
	for _, p := range []*hip.Address{&s.x, &s.h, &s.a, &s.f} {
		*p = a.floats(t * sh.width)
	}
	s.q, s.att = a.floats(t*sh.q), a.floats(t*sh.q)
	s.k, s.v = a.floats(t*sh.kv), a.floats(t*sh.kv)
	n := t * sh.topK
	s.gate, s.up = a.floats(n*sh.inner), a.floats(n*sh.inner)
	if sh.experts > 0 {
		s.router, s.parts = a.floats(t*sh.experts), a.floats(n*sh.width)
		s.chosen, s.share, s.slots, s.first = a.ints(n), a.floats(n), a.ints(n), a.ints(sh.experts+1)
	}
	wide := max(sh.inner, sh.rank)
	s.acts = a.take(max(hip.ActsSize(min(t, fewRows), max(sh.width, sh.q)), hip.ActsSize(min(n, fewRows), wide)))
	s.fine = a.take(max(hip.FineActsSize(min(t, fewRows), max(sh.width, sh.q)), hip.FineActsSize(min(n, fewRows), wide)))
	s.tiles = a.take(max(hip.MatmulScratch(t, max(sh.width, sh.q)), hip.MatmulScratch(n, max(sh.inner, sh.rank))))
	s.wide = a.take(hip.ActsSize(fewRows, sh.inner))
	if sh.rotated {
		s.turned = a.floats(max(t*max(sh.width, sh.q), n*max(sh.inner, sh.rank)))
		s.sums = a.floats(max(t*max(sh.width, sh.needs.sums), s.logitRows*sh.headSums, n*sh.sumsSlots))
		s.bytes = a.take(max(hip.ActsSize(fewRows, max(sh.width, sh.q)), hip.ActsSize(fewRows, max(sh.inner, sh.rank))))
	}
	s.placeForms(&sh.needs, t, n, a)
	s.logits = a.floats(s.logitRows * sh.vocab)
	s.cos, s.sin = make([]hip.Address, len(sh.pairs)), make([]hip.Address, len(sh.pairs))
	for i, p := range sh.pairs {
		s.cos[i], s.sin[i] = a.floats(t*p), a.floats(t*p)
	}
	s.attend, s.attendBytes = a.take(attend), attend
	s.chooser.place(context, sample, a)
}
