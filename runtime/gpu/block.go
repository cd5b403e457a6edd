package gpu

import (
	"slices"

	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/kernels/hip"
)

// A walk lists the launches of a pass. It touches no device: what it lists
// depends on the graph, on where things lie and on the number of rows.
type walk struct {
	e     *Engine
	t     int // rows
	from  int // first row whose hidden state is wanted
	state *state
	calls []hip.Call
	keep  bool // the operations too
	kept  []operation
	// What is to be added to the hidden state before it is read.
	pending [2]hip.Branch
}

func (w *walk) do(o operation) {
	if w.keep {
		w.kept = append(w.kept, o)
		return
	}
	w.e.tuning.Apply(o)
	w.calls = append(w.calls, o.Calls(w.e.m.target)...)
}

// at returns the address of a row of 4-byte numbers; 0 stays none.
func at(base hip.Address, row, width int) hip.Address {
	if base == 0 {
		return 0
	}
	return base + hip.Address(4*row*width)
}

// rows says where rows lo to t belong.
func (w *walk) rows(lo int) hip.Rows {
	p := &w.e.pool
	return hip.Rows{T: w.t - lo, Position: at(w.state.positions(), lo, 1), Owner: at(w.state.owners(), lo, 1),
		Pages: p.table.Address, MaxPages: p.tablePages}
}

// forward runs the rows through the blocks. The hidden states of rows from on
// are s.x and what is pending.
func (w *walk) forward() {
	w.angles()
	w.embed()
	for i := range w.e.blocks {
		w.block(i)
	}
}

// angles computes the cosines and sines of every rope.
func (w *walk) angles() {
	for i := range w.e.ropes {
		r, s := &w.e.ropes[i], &w.e.s
		w.do(&hip.Angles{Cosine: s.cos[i], Sine: s.sin[i], Position: w.state.positions(), Owner: w.state.owners(),
			Frequency: r.frequency, Factor: r.factor, T: w.t, Pairs: r.pairs, PerOwner: r.byLength})
	}
}

// block runs one block over all rows. In the last one, rows before w.from give
// their keys and values and nothing else.
func (w *walk) block(i int) {
	e, b, lo := w.e, &w.e.blocks[i], 0
	if i == len(e.blocks)-1 {
		lo = w.from
	}
	h := w.input(0, b.attnNorm, b.q, b.k, b.v)
	w.project(b, h, lo)
	n := w.t - lo
	if n == 0 {
		return
	}
	if b.Parallel {
		if b.FFNNorm != nil {
			h = w.input(lo, b.ffnNorm, b.feeds()...)
		} else {
			h = w.later(h, lo, b.q, b.k, b.v)
		}
		w.feedForward(b, n, h, target{y: e.s.f})
		w.attention(b, lo, target{y: e.s.a})
		w.pending = [2]hip.Branch{{Rows: e.s.a, Post: b.attnPost}, {Rows: e.s.f, Post: b.ffnPost}}
		return
	}
	w.branch(lo, b.attnPost.Weight == 0, hip.Branch{Rows: e.s.a, Post: b.attnPost}, func(to target) { w.attention(b, lo, to) })
	h = w.input(lo, b.ffnNorm, b.feeds()...)
	w.branch(lo, b.ffnPost.Weight == 0 && b.MoE == nil, hip.Branch{Rows: e.s.f, Post: b.ffnPost}, func(to target) { w.feedForward(b, n, h, to) })
}

// later is a source of all rows from row lo on, behind products with some matrices. What
// it was rounded or turned to is of all rows, and is overwritten by the second step of a
// matrix with a form.
func (w *walk) later(in source, lo int, behind ...*matrix) source {
	if lo > 0 || slices.ContainsFunc(behind, func(m *matrix) bool { return m != nil && m.formed != nil }) {
		in = source{x: at(in.x, lo, w.e.shape.width), norm: in.norm}
	}
	return in
}

// feeds are the matrices that read the input of the feed-forward layer.
func (b *block) feeds() []*matrix {
	switch {
	case b.router != nil: // its slots read rows that are normalised once
		return nil
	case b.gate == nil:
		return []*matrix{b.up}
	}
	return []*matrix{b.gate, b.up}
}

// branch has make compute what is added to the hidden state of rows lo on: into
// the state itself where the rows are few and it may, else into b's rows, to be
// added when the state is next read.
func (w *walk) branch(lo int, direct bool, b hip.Branch, make func(to target)) {
	if x := at(w.e.s.x, lo, w.e.shape.width); few(w.t-lo) && direct {
		make(target{y: x, residual: x})
		return
	}
	make(target{y: b.Rows})
	w.pending[0] = b
}

// input returns the hidden state of rows lo on, normalised for matrices that
// read it. Where those can do that themselves and nothing has to be added
// before, it is left to them.
func (w *walk) input(lo int, n hip.Normal, users ...*matrix) source {
	e, d := w.e, w.e.shape.width
	x, t := at(e.s.x, lo, d), w.t-lo
	if w.pending[0].Rows == 0 && w.fuses(t, n, users) {
		return source{x: x, norm: n}
	}
	w.do(&hip.Norm{T: t, D: d, X: x, A: w.pending[0], B: w.pending[1], Next: n, Out: e.s.h})
	w.pending = [2]hip.Branch{}
	in := source{x: e.s.h}
	if few(t) {
		w.round(&in, t, users...)
	}
	return in
}

// fusedRows is the most rows that products normalise themselves: every block of
// a launch does it again.
const fusedRows = 2

func (w *walk) fuses(t int, n hip.Normal, users []*matrix) bool {
	users, integers := readers(users...), true
	for _, m := range users {
		integers = integers && w.integers(m)
		if m.Format.Rotated() || m.formed != nil || w.integers(m) && m.Format.Fine() && !w.e.streams(t) {
			return false
		}
	}
	return len(users) > 0 && t <= fusedRows && n.Kind == hip.RMSNorm && hip.NormFits(w.e.m.target, t, w.e.shape.width, !integers)
}

// flush adds what is pending to the hidden state of rows lo on.
func (w *walk) flush(lo int) {
	if w.pending[0].Rows == 0 {
		return
	}
	d := w.e.shape.width
	w.do(&hip.Norm{T: w.t - lo, D: d, X: at(w.e.s.x, lo, d), A: w.pending[0], B: w.pending[1]})
	w.pending = [2]hip.Branch{}
}

// project computes keys and values of all rows and queries from row lo on. Keys
// and values of rows that do not attend go into the cache.
func (w *walk) project(b *block, in source, lo int) {
	s := &w.e.s
	q, k, v := target{w: b.q, y: at(s.q, lo, b.q.N)}, target{w: b.k, y: s.k}, target{w: b.v, y: s.v}
	switch {
	case lo == 0:
		w.linear(w.t, in, q, k, v)
	case lo == w.t:
		w.linear(w.t, in, k, v)
	default:
		w.linear(w.t, in, k, v)
		w.linear(w.t-lo, w.later(in, lo), q)
	}
	if lo > 0 {
		w.do(w.turn(b, 0, lo, 0))
	}
}

// turn finishes rows lo to hi of queries, of which there are so many heads,
// keys and values.
func (w *walk) turn(b *block, lo, hi, heads int) *hip.Rope {
	e, s, a := w.e, &w.e.s, &b.Attn
	r := w.rows(lo)
	r.T = hi - lo
	op := &hip.Rope{Rows: r, Heads: heads, Q: at(s.q, lo, b.q.N), K: at(s.k, lo, b.k.N), V: at(s.v, lo, b.v.N),
		QNorm: b.qNorm, KNorm: b.kNorm, KV: e.pool.layers[b.index], QStride: b.q.N}
	if a.Rope >= 0 {
		rope := &e.ropes[a.Rope]
		op.Turn = hip.Rotation{Pairs: rope.pairs, Interleaved: rope.Style == model.RopeInterleaved,
			Cosine: at(s.cos[a.Rope], lo, rope.pairs), Sine: at(s.sin[a.Rope], lo, rope.pairs)}
	}
	return op
}

// attention attends from rows lo on, whose keys and values it finishes, and
// multiplies with the output matrix. A single row is finished on the way; of
// several, one may attend to another.
func (w *walk) attention(b *block, lo int, to target) {
	e, s, a := w.e, &w.e.s, &b.Attn
	out := at(s.att, lo, b.q.N)
	turn := w.turn(b, lo, w.t, int(a.Heads))
	if w.t-lo > 1 {
		w.do(turn)
		turn = nil
	}
	w.do(&hip.Attend{Turn: turn, Settled: w.t == 1, Rows: w.rows(lo), KV: e.pool.layers[b.index], Heads: int(a.Heads), Scale: a.Scale, Softcap: a.Softcap,
		Window: int(a.Window), Capacity: int(e.context), Q: at(s.q, lo, b.q.N), Out: at(s.att, lo, b.q.N), Scratch: s.attend, Exact: e.exact})
	to.w = b.o
	w.linear(w.t-lo, source{x: out}, to)
}

// feedForward computes what the feed-forward layer makes of n rows.
func (w *walk) feedForward(b *block, n int, in source, to target) {
	if b.MoE != nil {
		w.mixture(b, n, in, to)
		return
	}
	to.w = b.down
	if b.gate != nil {
		w.linear(n, w.gated(n, in, b), to)
		return
	}
	s := &w.e.s
	w.linear(n, in, target{w: b.up, y: s.up})
	w.do(&hip.Activate{Act: b.act, N: n * b.up.N, Gate: s.up, Out: s.up})
	w.linear(n, source{x: s.up}, to)
}

// head computes the logits of rows lo to hi, of which there is room for so
// many, into s.logits.
func (w *walk) head(lo, hi int) {
	e, s, n := w.e, &w.e.s, hi-lo
	rest := w.t
	w.t = hi
	in := w.input(lo, e.norm, e.head)
	w.t = rest
	w.linear(n, in, target{w: e.head, y: s.logits})
	if c := e.g.Head.Softcap; c != 0 {
		w.do(&hip.SoftCap{N: n * e.shape.vocab, X: s.logits, Limit: c})
	}
}
