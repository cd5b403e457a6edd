package gpu

import (
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/runtime/load"
)

// A latentNet is attention over latents in place of other attention, without matrices
// where there is none; its output matrix is the block's.
type latentNet struct {
	kva, qa, q, kb, vb *matrix // qa may be nil
	qNorm, kvNorm      hip.Normal
}

func openLatent(w *load.Weights[*matrix, hip.Normal, hip.Address], a *graph.Latent) latentNet {
	return latentNet{kva: w.Linear(&a.KVA), qa: w.Linear(a.QA), q: w.Linear(&a.Q), kb: w.Linear(&a.KB), vb: w.Linear(&a.VB), qNorm: w.Norm(a.QNorm), kvNorm: w.Norm(a.KVNorm)}
}

// first is what reads the block's input for queries.
func (n *latentNet) first() *matrix { return either(n.qa, n.q) }

// A slotList says which matrix of a stack slots read, and for many of them which
// slots each matrix has.
type slotList struct{ chosen, slots, first hip.Address }

// latentInputs computes latents and keys of all rows of a source, neither normalised
// nor rotated, and the queries of those from row lo on. Latents and keys of rows that
// do not attend go into the cache.
func (w *walk) latentInputs(b *block, in source, lo int) {
	s, n := w.s, &b.latent
	kv, q := target{w: n.kva, y: s.k}, target{w: n.q, y: at(s.z, lo, n.q.N)}
	if n.qa != nil {
		q = target{w: n.qa, y: at(s.latent, lo, n.qa.N)}
	}
	if lo == 0 {
		w.linear(w.t, in, kv, q)
	} else {
		w.linear(w.t, in, kv)
		w.do(w.latents(b, 0, lo, 0))
	}
	if lo > 0 && lo < w.t {
		w.linear(w.t-lo, w.later(in, lo), q)
	}
	if n.qa == nil || lo == w.t {
		return
	}
	w.do(&hip.Norm{T: w.t - lo, D: n.qa.N, X: q.y, Next: n.qNorm, Out: q.y})
	next := source{x: q.y}
	if !w.many {
		w.round(&next, w.t-lo, n.q)
	}
	w.linear(w.t-lo, next, target{w: n.q, y: at(s.z, lo, n.q.N)})
}

// latents finishes rows lo to hi of latents, keys and queries, of which there are so
// many heads.
func (w *walk) latents(b *block, lo, hi, heads int) *hip.Latent {
	e, s, a := w.e, w.s, b.Latent
	r := w.rows(lo)
	r.T = hi - lo
	all := int(a.Heads)
	op := &hip.Latent{Rows: r, Heads: heads, Nope: int(a.NopeDim), Rope: int(a.RopeDim), Q: at(s.z, lo, all*int(a.QueryDim())), Plain: at(s.att, lo, all*int(a.NopeDim)),
		Out: at(s.q, lo, all*int(a.KeyDim())), Keys: at(s.k, lo, int(a.KeyDim())), Norm: b.latent.kvNorm, KV: e.pool.layers[b.kv]}
	op.Turn = w.rotation(a.Rope, lo)
	return op
}

// attendLatents attends from rows lo on to latents, and multiplies with the output
// matrix. Queries are multiplied with a matrix for each head before, and what attention
// gives of latents behind; both as the slots of a mixture's experts are, of which every
// row has all.
func (w *walk) attendLatents(b *block, lo int, to target) {
	e, s, a := w.e, w.s, b.Latent
	n, heads := w.t-lo, int(a.Heads)
	op := w.latents(b, lo, w.t, heads)
	w.do(op)
	experts := w.list
	w.list = slotList{s.headChosen, s.headSlots, s.headFirst}
	if listed := [2]int{n, heads}; w.listed != listed { // the same for all blocks
		w.do(&hip.LatentHeads{Latent: op, Chosen: w.list.chosen, Slots: w.list.slots, First: w.list.first})
		w.listed = listed
	}
	w.perHead(b.latent.kb, n*heads, op.Plain, s.absorbed)
	w.do(&hip.LatentJoin{Latent: op, Absorbed: s.absorbed})
	attend, _ := attends(b.Block)
	attend.Prompt, attend.Rows, attend.KV, attend.Capacity = w.many, w.rows(lo), op.KV, int(e.context)
	attend.Q, attend.Out, attend.Scratch, attend.Exact, attend.Reaches = op.Out, s.att, s.attend, e.exact, w.reach(lo)
	w.do(&attend)
	w.perHead(b.latent.vb, n*heads, s.att, s.z)
	w.list = experts
	in := source{x: s.z}
	if !w.many {
		w.round(&in, n, b.o)
	}
	w.linear(n, in, to)
}

// perHead multiplies slots, rows of x, each with the matrix of its head.
func (w *walk) perHead(stack *matrix, slots int, x, y hip.Address) {
	in := source{x: x}
	if !w.many {
		w.round(&in, slots, stack)
	}
	w.expert(stack, slots, 1, in, y, 0)
}
