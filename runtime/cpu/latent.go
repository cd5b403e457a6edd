package cpu

import (
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/runtime/load"
)

// A latentNet is the weights of attention over latents; its output matrix is the
// block's.
type latentNet struct {
	*graph.Latent
	kva, qa, q, kb, vb *matrix // qa may be nil
	qNorm, kvNorm      *norm
}

func newLatent(w *load.Weights[*matrix, *norm, []float32], a *graph.Latent) *latentNet {
	return &latentNet{Latent: a, kva: w.Linear(&a.KVA), qa: w.Linear(a.QA), q: w.Linear(&a.Q), kb: w.Linear(&a.KB), vb: w.Linear(&a.VB),
		qNorm: w.Norm(a.QNorm), kvNorm: w.Norm(a.KVNorm)}
}

// runLatent computes e.s.a of the rows from lo on. What the cache has of a position
// is one key, the latent and behind it what is rotated, and one value, the latent
// again: keys lie by feature and values by position
// (docs/decisions/0007-keys-by-feature.md). A prompt goes the way of single tokens, so
// that its bits do not depend on where it is cut.
func (e *Engine) runLatent(i int, h []float32, lo int) {
	b, s, t := &e.blocks[i], &e.s, e.pass.rows
	n := b.latent
	e.latentInputs(i, h, lo)
	e.pass.rowWork = rowWork{base: lo}
	e.eachRow(t, e.part.latent)
	if lo == t {
		return
	}
	heads, query, key, value := int(n.Heads), int(n.QueryDim()), int(n.KeyDim()), int(n.ValueDim)
	rank, rows := int(n.Rank), t-lo
	e.perHead(i, rows, n.kb, heads, s.z[lo*heads*query:], query, s.q[lo*heads*key:], key)
	e.attend(lo)
	e.perHead(i, rows, n.vb, heads, s.att[lo*heads*rank:], rank, s.z, value)
	e.linear(rows, s.z[:rows*heads*value], noExpert, target{b.o, s.a[:rows*int(e.g.Width)]})
}

// latentInputs computes latents and keys of all rows of h[T][D], and the queries of
// those from lo on, neither normalised nor rotated.
func (e *Engine) latentInputs(i int, h []float32, lo int) {
	n, s, t, d := e.blocks[i].latent, &e.s, e.pass.rows, int(e.g.Width)
	first := target{n.q, s.z[lo*n.q.n : t*n.q.n]}
	if n.qa != nil {
		first = target{n.qa, s.mixed[lo*n.qa.n : t*n.qa.n]}
	}
	if kv := (target{n.kva, s.k[:t*n.kva.n]}); lo == 0 {
		e.linear(t, h, noExpert, kv, first)
	} else {
		e.linear(t, h, noExpert, kv)
		e.linear(t-lo, h[lo*d:], noExpert, first)
	}
	if n.qa == nil || lo == t {
		return
	}
	e.pass.rowWork = rowWork{dst: first.y, src: first.y, width: n.qa.n, norm: n.qNorm}
	e.eachRow(t-lo, e.part.norm)
	e.linear(t-lo, first.y, noExpert, target{n.q, s.z[lo*n.q.n : t*n.q.n]})
}

// latentRow puts a row's latent and its rotated key into the cache, and the rotated
// numbers of its queries (from rowWork.base on) behind the room for the others.
func (e *Engine) latentRow(row int) {
	p, s := &e.pass, &e.s
	b := &e.blocks[p.layer]
	n := b.latent
	rank, nope, query, key := int(n.Rank), int(n.NopeDim), int(n.QueryDim()), int(n.KeyDim())
	kv := s.k[row*key : (row+1)*key]
	e.normalize(kv[:rank], kv[:rank], n.kvNorm)
	e.rotate(kv[rank:], row, n.Rope)
	p.segments[p.owner[row]].state.Put(b.kv, p.positions[row], kv, kv[:rank])
	if row < p.rowWork.base {
		return
	}
	for a := row * int(n.Heads); a < (row+1)*int(n.Heads); a++ {
		to := s.q[a*key+rank : (a+1)*key]
		copy(to, s.z[a*query+nope:(a+1)*query])
		e.rotate(to, row, n.Rope)
	}
}

// perHead multiplies what each head has of t rows with the head's matrix of a stack:
// x[t][heads][from], of which it reads the first numbers, to y[t][heads][to], of which
// it writes the first.
func (e *Engine) perHead(i, t int, stack *matrix, heads int, x []float32, from int, y []float32, to int) {
	for a := range heads {
		m := stack.experts[a]
		if t == 1 {
			e.linear(1, x[a*from:a*from+m.k], a, target{m, y[a*to : a*to+m.n]})
			continue
		}
		in, out := fit(e.s.headIn, t*m.k), fit(e.s.headOut, t*m.n)
		e.s.headIn, e.s.headOut = in, out
		for r := range t {
			copy(in[r*m.k:(r+1)*m.k], x[(r*heads+a)*from:])
		}
		e.linear(t, in, a, target{m, out})
		for r := range t {
			copy(y[(r*heads+a)*to:], out[r*m.n:(r+1)*m.n])
		}
	}
}
