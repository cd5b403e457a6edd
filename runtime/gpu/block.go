package gpu

import (
	"math"
	"slices"

	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/runtime/gpu/driver"
)

// A walk lists the launches of a pass. It touches no device: what it lists
// depends on the graph, on where things lie and on the number of rows.
type walk struct {
	e        *Engine
	s        *scratch // of the rows
	t        int      // rows
	many     bool     // they are a prompt's: see device.Batch.Few
	reading  reading
	reaches  []rowReach
	choosing []chosenRows
	from     int // first row whose hidden state is wanted
	state    *rowTable
	calls    []hip.Call
	flow     *driver.Stream // that launches go to as they are listed; nil: they are kept
	keep     bool           // the operations too
	kept     []operation
	// What is to be added to the hidden state before it is read.
	pending   [2]hip.Branch
	exchanges int           // with the other ranks so far
	scale     hip.Address   // factor on the sum, 0: none
	seen      map[seen]bool // inputs that were gathered
	list      slotList      // of the stack that comes
	listed    [2]int        // rows and heads whose slots the lists of heads have, 0: none
	err       error         // what cannot be
	hand      *hand         // the last one
	cuts      []cut         // where the host takes part
	part      *part         // the rows are a part of a pass's; nil: they are all
	slot      int           // of the staging buffer that the next piece comes to
	learning  *hip.Follow   // the last step that read some pages, until its history has learned of it
}

func (w *walk) do(o operation) {
	if w.keep {
		w.kept = append(w.kept, o)
		return
	}
	w.e.tuning.Apply(o)
	calls := o.Calls(w.e.m.target)
	for i := range calls {
		calls[i].Early = calls[i].Early && w.part == nil
	}
	if w.flow == nil {
		w.calls = append(w.calls, calls...)
	} else if w.err == nil {
		w.err = w.e.m.launchOn(w.flow, calls)
	}
}

// fail notes the first error.
func (w *walk) fail(err error) {
	if w.err == nil {
		w.err = err
	}
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
		Pages: p.table, MaxPages: p.tablePages}
}

// A rowReach is neighbouring rows of one sequence: its slot, and the position of the first.
type rowReach struct{ rows, owner, first int }

// reach says which positions rows from lo on see.
func (w *walk) reach(lo int) (all []hip.Reach) {
	for _, r := range w.reaches {
		if skip := max(lo, 0); skip < r.rows {
			all = append(all, hip.Reach{Owner: r.owner, First: r.first + skip, Last: r.first + r.rows - 1})
		}
		lo -= r.rows
	}
	return all
}

// forward runs the rows through the blocks. The hidden states of rows from on
// are s.x and what is pending.
func (w *walk) forward() {
	w.begin()
	for i := range w.e.blocks {
		w.block(i)
	}
	w.learn()
}

// begin makes what the first block reads, and what all do.
func (w *walk) begin() {
	w.angles()
	if w.e.span.Embed {
		w.embed(w.s.x)
	}
	w.perLayerInputs()
}

// angles computes the cosines and sines of every rope.
func (w *walk) angles() {
	for i := range w.e.ropes {
		r, s := &w.e.ropes[i], w.s
		w.do(&hip.Angles{Cosine: s.cos[i], Sine: s.sin[i], Position: w.state.positions(), Owner: w.state.owners(),
			Frequency: r.frequency, Factor: r.factor, T: w.t, Pairs: r.pairs, PerOwner: r.byLength})
	}
}

// block runs one block over all rows. In the last one with keys and values of its own,
// rows before w.from give those and nothing else, and behind it they are left out.
func (w *walk) block(i int) {
	e, b, lo, first := w.e, &w.e.blocks[i], 0, 0
	if i >= e.settled && e.span.Head {
		lo = w.from
	}
	if i > e.settled {
		first = lo
	}
	n := w.t - lo
	if n == 0 && (first > 0 || !b.Mixes()) {
		return
	}
	var h source
	if b.Parallel && w.pending[0].From != nil { // which would be read a second time behind what comes to its place
		w.flush(first)
	}
	if b.Mixes() {
		users := b.projections()
		if w.many && (b.Attn == nil || b.Parallel || lo > first) { // they are not all that reads the rows, or not at once
			users = nil
		}
		h = w.input(first, b.attnNorm, users...)
		w.mixIn(b, h, first, lo)
	}
	if n == 0 {
		return
	}
	own := b.perLayer.gate != nil
	mix := func(direct bool) {
		w.branch(lo, direct && b.attnPost.Weight == 0, hip.Branch{Rows: w.s.a, Post: b.attnPost}, func(to target) { w.mixOut(b, lo, to) })
	}
	switch {
	case b.Parallel:
		if b.FFNNorm != nil {
			h = w.input(lo, b.ffnNorm, b.feeds()...)
		} else {
			h = w.later(h, lo-first, b.projections()...)
		}
		w.feedForward(b, lo, h, target{y: w.s.f})
		w.mixOut(b, lo, target{y: w.s.a})
		w.total(n, w.s.a)
		if !b.settles() {
			w.total(n, w.s.f)
		}
		w.pending = [2]hip.Branch{{Rows: w.s.a, Post: b.attnPost}, {Rows: w.s.f, Post: b.ffnPost}}
	case !b.Feeds():
		mix(b.outScale == 0 || own)
	default:
		if b.Mixes() {
			mix(true)
		}
		h = w.input(lo, b.ffnNorm, b.feeds()...)
		direct := b.ffnPost.Weight == 0 && (b.MoE == nil || e.team != nil) && (b.outScale == 0 || own) // ranks add up experts with the state
		if b.settles() {
			w.feedForward(b, lo, h, target{y: w.s.f})
			w.pending[0] = hip.Branch{Rows: w.s.f, Post: b.ffnPost}
			break
		}
		w.branch(lo, direct, hip.Branch{Rows: w.s.f, Post: b.ffnPost}, func(to target) { w.feedForward(b, lo, h, to) })
	}
	if own {
		w.flush(lo)
		p := &b.perLayer
		w.whole(lo, p.norm.Weight == 0 && b.outScale == 0, hip.Branch{Rows: w.s.f, Post: p.norm}, func(to target) { w.inject(b, lo, to) })
	}
	w.scale = b.outScale
}

// later is a source of all rows from row lo on, behind products with some matrices. What
// it was rounded or turned to is of all rows, and is overwritten by the second step of a
// matrix with a form.
func (w *walk) later(in source, lo int, behind ...*matrix) source {
	if lo > 0 || slices.ContainsFunc(behind, func(m *matrix) bool { return m != nil && m.formed != nil }) {
		x := in.x
		if in.from != nil { // the first to read it has added up what ranks have
			x = in.settled
		}
		in = source{x: at(x, lo, w.e.shape.width), norm: in.norm}
	}
	return in
}

// projections are the matrices that read the input of the mixer.
func (b *block) projections() []*matrix {
	switch {
	case b.Delta != nil:
		d := &b.delta
		return []*matrix{d.qkv, either(d.za, d.z), d.beta, either(d.alphaA, d.alpha)}
	case b.Mamba != nil:
		return []*matrix{b.mamba.z, b.mamba.xbc, b.mamba.dt}
	case b.ShortConv != nil:
		return []*matrix{b.shortConv.in}
	case b.Latent != nil:
		return []*matrix{b.latent.kva, b.latent.first()}
	}
	return slices.DeleteFunc([]*matrix{b.q, b.k, b.v, b.outGate}, func(m *matrix) bool { return m == nil })
}

// either is a matrix in front of another, which it has where there is none.
func either(first, then *matrix) *matrix {
	if first != nil {
		return first
	}
	return then
}

// feeds are the matrices that read the input of the feed-forward layer.
func (b *block) feeds() []*matrix {
	if b.router != nil { // its slots read rows that are normalised once
		return nil
	}
	return b.layer.inner()
}

// inner are the matrices that read a layer's input.
func (l *layer) inner() []*matrix {
	if l.up == nil { // all of it is other ranks'
		return nil
	}
	if l.gate == nil {
		return []*matrix{l.up}
	}
	return []*matrix{l.gate, l.up}
}

// branch has make compute what is added to the hidden state of rows lo on, or of a team
// this rank's part of it, which goes to the others: of a team into b's rows, to be added when the
// state is next read, unless few rows are added up at once.
func (w *walk) branch(lo int, direct bool, b hip.Branch, make func(to target)) {
	if w.e.team == nil {
		w.whole(lo, direct, b, make)
		return
	}
	var x hip.Address
	if direct {
		x = at(w.s.x, lo, w.e.shape.width)
	}
	switch {
	case w.receives():
		w.sent(w.t-lo, x, &b, make)
	case direct:
		make(target{y: b.Rows})
		w.addUp(w.t-lo, x, x, b.Rows)
		return
	default:
		make(target{y: b.Rows})
		w.total(w.t-lo, b.Rows)
	}
	w.pending[0] = b
}

// whole is branch where each rank of a team computes all of it.
func (w *walk) whole(lo int, direct bool, b hip.Branch, make func(to target)) {
	if x := at(w.s.x, lo, w.e.shape.width); direct && !w.many {
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
	x, t := at(w.s.x, lo, d), w.t-lo
	if n.Weight == 0 { // a bare block's
		w.flush(lo)
		in := source{x: x}
		if !w.many {
			w.round(&in, t, users...)
		}
		return in
	}
	if p := &w.pending[0]; (p.Rows == 0 || p.Whole && w.pending[1].Rows == 0 && w.scale == 0) && w.fuses(t, n, users) {
		in := source{x: x, norm: n}
		if p.Rows != 0 {
			in = source{x: p.Rows, norm: n, from: p.From, settled: x}
		}
		w.pending = [2]hip.Branch{}
		return in
	}
	norm := &hip.Norm{T: t, D: d, X: x, A: w.pending[0], B: w.pending[1], Scale: w.scale, Next: n, Out: w.s.h, Few: !w.many, Exact: e.exact}
	in := source{x: w.s.h}
	if w.halves(users) {
		in, norm.Halves = source{halved: true}, w.s.tiles
	}
	w.do(norm)
	w.pending, w.scale = [2]hip.Branch{}, 0
	if !w.many {
		w.round(&in, t, users...)
	}
	return in
}

// halves reports whether all that reads rows of a prompt are products that take them as halves.
func (w *walk) halves(users []*matrix) bool {
	return w.many && !w.e.exact && !w.gathers() && len(users) > 0 && hip.HalvesFit(w.e.m.target, w.e.shape.width) && !slices.ContainsFunc(users, func(m *matrix) bool {
		return m.formed != nil || m.Format.Rotated() || !m.Halves()
	})
}

// fusedRows is the most rows that products normalise themselves: every block of
// a launch does it again.
const fusedRows = 2

func (w *walk) fuses(t int, n hip.Normal, users []*matrix) bool {
	if w.gathers() {
		return false
	}
	users, integers := readers(users...), true
	for _, m := range users {
		integers = integers && w.integers(m)
		if m.Format.Rotated() || m.formed != nil || w.integers(m) && m.Format.Fine() && !w.e.streams(t) {
			return false
		}
	}
	return !w.many && len(users) > 0 && t <= fusedRows && n.Kind == hip.RMSNorm && hip.NormFits(w.e.m.target, t, w.e.shape.width, !integers)
}

// flush adds what is pending to the hidden state of rows lo on.
func (w *walk) flush(lo int) {
	if w.pending[0].Rows == 0 {
		return
	}
	d := w.e.shape.width
	w.do(&hip.Norm{T: w.t - lo, D: d, X: at(w.s.x, lo, d), A: w.pending[0], B: w.pending[1], Scale: w.scale})
	w.pending, w.scale = [2]hip.Branch{}, 0
}

// mixIn computes what the mixer reads of the rows of a source, which are those from
// first on: of attention keys and values, where the block has its own, and queries from
// row lo on. Keys and values of rows that do not attend go into the cache.
func (w *walk) mixIn(b *block, in source, first, lo int) {
	s := w.s
	switch {
	case b.Delta != nil:
		w.deltaNet(b, in)
		return
	case b.Mamba != nil:
		w.mamba(b, in)
		return
	case b.ShortConv != nil:
		w.shortConv(b, in)
		return
	case b.Latent != nil:
		w.latentInputs(b, in, lo)
		return
	}
	q := []target{{w: b.q, y: at(s.q, lo, b.q.N)}}
	if b.outGate != nil {
		q = append(q, target{w: b.outGate, y: at(s.z, lo, b.outGate.N)})
	}
	if b.k == nil { // lo is first then
		w.linear(w.t-lo, in, q...)
		w.joint(b, lo)
		return
	}
	kv := []target{{w: b.k, y: s.k}}
	if b.v != nil {
		kv = append(kv, target{w: b.v, y: s.v})
	}
	switch {
	case lo == 0:
		w.linear(w.t, in, slices.Concat(q[:1], kv, q[1:])...)
	case lo == w.t:
		w.linear(w.t, in, kv...)
	default:
		w.linear(w.t, in, kv...)
		w.linear(w.t-lo, w.later(in, lo), q...)
	}
	w.joint(b, lo)
	if lo > 0 {
		w.do(w.turn(b, 0, lo, 0))
		w.turns(false)
	}
	if lo == w.t {
		w.summarize(b)
	}
}

// joint normalises the keys of all rows and the queries from row lo on, where norms
// are of all heads at once.
func (w *walk) joint(b *block, lo int) {
	s := w.s
	if !b.Attn.JointNorms {
		return
	}
	if w.e.team != nil {
		w.jointRanks(b, lo)
		return
	}
	if b.kNorm.Weight != 0 {
		w.do(&hip.Norm{T: w.t, D: b.k.N, X: s.k, Next: b.kNorm, Out: s.k})
	}
	if q := at(s.q, lo, b.q.N); b.qNorm.Weight != 0 && lo < w.t {
		w.do(&hip.Norm{T: w.t - lo, D: b.q.N, X: q, Next: b.qNorm, Out: q})
	}
}

// turn finishes rows lo to hi of queries, of which there are so many heads,
// keys and values.
func (w *walk) turn(b *block, lo, hi, heads int) *hip.Rope {
	e, s, a := w.e, w.s, b.Attn
	r := w.rows(lo)
	r.T = hi - lo
	kv := int(a.KVHeads * a.HeadDim)
	op := &hip.Rope{Rows: r, Heads: heads, Q: at(s.q, lo, b.q.N), K: at(s.k, lo, kv), V: at(s.v, lo, kv),
		QNorm: b.qNorm, KNorm: b.kNorm, VNorm: b.vNorm, KV: e.pool.layers[b.kv], QStride: b.q.N, Shared: b.k == nil}
	if b.v == nil {
		op.V = op.K
	}
	if a.JointNorms { // done with, see joint
		op.QNorm, op.KNorm = hip.Normal{}, hip.Normal{}
	}
	op.Late, op.HeadNorms = a.LateNorms, a.HeadNorms
	if p := a.Temperature; p != nil {
		op.Temper = &hip.Temper{Beta: p.Beta, Every: int(min(p.Every, math.MaxInt32)), Offset: int(p.Offset)}
	}
	op.Turn = w.rotation(a.Rope, lo)
	return op
}

// rotation returns how a rope turns rows from lo on; below 0: not at all.
func (w *walk) rotation(number, lo int) hip.Rotation {
	if number < 0 {
		return hip.Rotation{}
	}
	rope, s := &w.e.ropes[number], w.s
	return hip.Rotation{Pairs: rope.pairs, Interleaved: rope.Style == graph.RopeInterleaved,
		Cosine: at(s.cos[number], lo, rope.pairs), Sine: at(s.sin[number], lo, rope.pairs)}
}

// mixOut mixes from row lo on, where that is attention finishes their keys and values,
// and multiplies with the output matrix. A single row is finished on the way; of
// several, one may attend to another.
func (w *walk) mixOut(b *block, lo int, to target) {
	e, s, a := w.e, w.s, b.Attn
	to.w = b.o
	switch {
	case b.Delta != nil, b.Mamba != nil:
		w.linear(w.t-lo, source{x: at(s.z, lo, b.o.K)}, to)
		return
	case b.ShortConv != nil:
		w.linear(w.t-lo, source{x: at(s.convolved, lo, b.o.K)}, to)
		return
	case b.Latent != nil:
		w.attendLatents(b, lo, to)
		return
	}
	window, chunked := min(a.Window, math.MaxInt32), a.Chunk > 0
	if chunked {
		window = min(a.Chunk, math.MaxInt32)
	}
	out := at(s.att, lo, b.q.N)
	turn := w.turn(b, lo, w.t, int(a.Heads))
	if w.t-lo > 1 || w.many || turn.Late || turn.HeadNorms || turn.Temper != nil {
		w.do(turn)
		turn = nil
		w.turns(false)
		w.summarize(b)
	}
	w.turns(true)
	w.followAttention(b, lo, &hip.Attend{Turn: turn, Prompt: w.many, Settled: w.t == 1 && !w.many, Rows: w.rows(lo), KV: e.pool.layers[b.kv], Heads: int(a.Heads), Scale: a.Scale, Softcap: a.Softcap,
		Window: int(window), Chunked: chunked, Capacity: int(e.context), Q: at(s.q, lo, b.q.N), Out: at(s.att, lo, b.q.N), Sinks: b.sinks, Scratch: s.attend, Exact: e.exact, Reaches: w.reach(lo)})
	if b.outGate != nil {
		w.do(&hip.Activate{OutGate: true, N: (w.t - lo) * b.q.N, Gate: at(s.z, lo, b.q.N), Up: out, Out: out})
	}
	w.linear(w.t-lo, source{x: out}, to)
}

// feedForward computes what the feed-forward layer, the mixture or both make of the
// rows from lo on, which a source has normalised.
func (w *walk) feedForward(b *block, lo int, in source, to target) {
	e, s, n := w.e, w.s, w.t-lo
	if b.MoE == nil {
		w.plain(&b.layer, n, in, to)
		return
	}
	d, beside := e.shape.width, b.FFN != nil
	if beside {
		if !w.many {
			w.round(&in, n, b.dense.inner()...)
		}
		w.plain(&b.dense, n, in, target{y: to.y})
		in = source{x: in.x} // what it was rounded to is overwritten
	}
	if b.moeNorm.Weight != 0 {
		w.do(&hip.Norm{T: n, D: d, X: at(s.x, lo, d), Next: b.moeNorm, Out: s.h})
		in = source{x: s.h}
	}
	routed := in
	if b.routerNorm.Weight != 0 {
		routed = source{x: s.a}
		w.do(&hip.Norm{T: n, D: d, X: at(s.x, lo, d), Next: b.routerNorm, Out: s.a})
	}
	if !beside {
		w.mixture(b, n, routed, in, to)
		return
	}
	w.mixture(b, n, routed, in, target{y: s.a})
	if b.settles() {
		w.total(n, to.y)
		w.total(n, s.a)
	}
	if b.densePost.Weight != 0 {
		w.do(&hip.Norm{T: n, D: d, X: to.y, Next: b.densePost, Out: to.y})
	}
	w.do(&hip.Norm{T: n, D: d, X: to.y, A: hip.Branch{Rows: s.a, Post: b.moePost}})
}

// settles reports whether the feed-forward layer adds up what ranks have of its rows, as
// experts and the layer beside them are normalised each by themselves.
func (b *block) settles() bool {
	return b.MoE != nil && b.FFN != nil && (b.densePost.Weight != 0 || b.moePost.Weight != 0)
}

// plain computes what one layer makes of n rows.
func (w *walk) plain(l *layer, n int, in source, to target) {
	if l.up == nil { // all of it is other ranks'
		w.do(&hip.Combine{T: n, D: w.e.shape.width, Out: to.y})
		return
	}
	to.w = l.down
	if l.gate != nil {
		w.linear(n, w.gated(n, in, l), to)
		return
	}
	s := w.s
	w.linear(n, in, target{w: l.up, y: s.up})
	if l.xielu != nil {
		w.do(&hip.XIELU{Numbers: *l.xielu, N: n * l.up.N, X: s.up})
	} else {
		w.do(&hip.Activate{Act: l.act, N: n * l.up.N, Gate: s.up, Out: s.up})
	}
	w.linear(n, source{x: s.up}, to)
}

// head computes the logits of rows lo to hi, of which there is room for so
// many, into s.logits.
func (w *walk) head(lo, hi int) {
	e, s, n := w.e, w.s, hi-lo
	rest := w.t
	w.t = hi
	in := w.input(lo, e.norm, e.head)
	w.t = rest
	w.gathered(e.head, false) // by gatherHead
	if e.team == nil {
		w.linear(n, in, target{w: e.head, y: s.logits})
	} else {
		w.linear(n, in, target{w: e.head, y: s.part})
		w.together(n, s.logits, s.part)
	}
	if c := e.g.Head.Softcap; c != 0 {
		w.do(&hip.SoftCap{N: n * e.shape.vocab, X: s.logits, Limit: c})
	}
}

// attends returns what attention of a block has in common whatever the rows, if it
// attends.
func attends(b *graph.Block) (hip.Attend, bool) {
	switch a, n := b.Attn, b.Latent; {
	case a != nil:
		return hip.Attend{KV: hip.KV{Heads: int(a.KVHeads), Dim: int(a.HeadDim)}, Heads: int(a.Heads), Scale: a.Scale, Softcap: a.Softcap, Window: int(min(a.Window, math.MaxInt32))}, true
	case n != nil:
		kv, _ := kvOf(b, 0)
		return hip.Attend{KV: kv, Heads: int(n.Heads), Scale: n.Scale}, true
	}
	return hip.Attend{}, false
}
