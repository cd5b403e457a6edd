package cpu

import (
	kernels "github.com/nstf/nstf/kernels/cpu"
)

// The second step of a product by factors: y (+)= A z, with few columns, or
// y (+)= sum of mix[i] z_i.

// thinWork is the second step in progress.
type thinWork struct {
	acts [maxGroup]kernels.Activations // z in int8, where A takes it so
	y    []float32                     // what is added, [T][N] of one target after the other
	z    []float32                     // one row of activations for folded rows
	at   [maxGroup]int                 // where a target's begins
}

// thinRows is the outputs of one part.
const thinRows = 512

// maxFold is the most rows of A that are multiplied as one, for a single token:
// each is a row of activations, of which few are multiplied without unpacking
// weights for them.
const maxFold = 8

// folds reports whether rows of A are multiplied several at a time.
func (e *Engine) folds(p *formed) bool { return p.folded != nil && !e.pass.many }

func (e *Engine) multiplyThin() {
	w := &e.pass.formed
	if len(w.group) == 0 {
		return
	}
	size := 0
	for i, g := range w.group {
		w.thin.at[i] = size
		size += w.t * g.w.n
		w.starts[i+1] = w.starts[i] + (g.w.n+thinRows-1)/thinRows
	}
	w.thin.y = fit(w.thin.y, size)
	multiplied := true // all by rotated codes, so that nothing but adding is left
	for i, g := range w.group {
		a := g.w.formed.a
		multiplied = multiplied && a != nil && a.rotated != nil
		if a == nil {
			continue
		}
		switch {
		case a.rotated != nil:
			e.multiplyDense(w.t, w.z[i], []target{{a, w.thin.y[w.thin.at[i]:][:w.t*a.n]}})
		case e.folds(g.w.formed):
			e.foldActivations(i)
		case a.coded != nil:
			acts := &w.thin.acts[i]
			acts.Reset(w.t, a.k, a.coded.Group(), e.pass.many)
			for r := range w.t {
				e.set.QuantizeRow(acts, r, w.z[i][r*a.k:(r+1)*a.k])
			}
		}
	}
	if parts := w.starts[len(w.group)]; multiplied && w.t <= addedHere {
		for part := range parts { // adding takes less than waking threads
			e.thinPart(0, part)
		}
	} else {
		e.pool.RunWorkers(parts, e.part.thin)
	}
}

// addedHere is the most rows whose products are added by one thread.
const addedHere = 4

// foldActivations rounds z of target i, each of its rows once for each row of a folded
// one: zero but for the columns of that row.
func (e *Engine) foldActivations(i int) {
	w := &e.pass.formed
	p := w.group[i].w.formed
	rank, acts := p.a.k, &w.thin.acts[i]
	w.thin.z = fit(w.thin.z, rank*p.fold)
	acts.Reset(w.t*p.fold, rank*p.fold, p.folded.Group(), false)
	for r := range w.t {
		for j := range p.fold {
			clear(w.thin.z)
			copy(w.thin.z[j*rank:], w.z[i][r*rank:(r+1)*rank])
			e.set.QuantizeRow(acts, r*p.fold+j, w.thin.z)
		}
	}
}

// foldedRows computes outputs n0 to n1 of y (+)= A z of target i.
func (e *Engine) foldedRows(worker, i, n0, n1 int) {
	w := &e.pass.formed
	g := w.group[i]
	p, n := g.w.formed, g.w.n
	rows, out := n/p.fold, w.thin.y[w.thin.at[i]:][:w.t*n] // [T][fold][N/fold]
	from, to := n0/p.fold, n1/p.fold
	p.folded.MatMul(out, rows, &w.thin.acts[i], from, to, &e.local[worker].integer)
	for r := range w.t {
		y := g.y[r*n+n0 : r*n+n1]
		if p.q == nil {
			clear(y)
		}
		for j := range p.fold {
			for at, v := range out[r*n+j*rows+from : r*n+j*rows+to] {
				y[at*p.fold+j] += v
			}
		}
	}
}

// thinPart adds one part of one target.
func (e *Engine) thinPart(worker, part int) {
	w := &e.pass.formed
	i := 0
	for part >= w.starts[i+1] {
		i++
	}
	g := w.group[i]
	p := g.w.formed
	n0 := (part - w.starts[i]) * thinRows
	n1 := min(n0+thinRows, g.w.n)
	switch {
	case p.a == nil:
		e.mixRows(i, n0, n1)
	case e.folds(p):
		e.foldedRows(worker, i, n0, n1)
	default:
		e.thinRows(worker, i, n0, n1)
	}
	if g.w.bias != nil {
		for r := range w.t {
			e.set.Add(g.y[r*g.w.n+n0:r*g.w.n+n1], g.w.bias[n0:n1])
		}
	}
}

// thinRows computes outputs n0 to n1 of y (+)= A z of target i.
func (e *Engine) thinRows(worker, i, n0, n1 int) {
	w := &e.pass.formed
	g := w.group[i]
	a, z, n := g.w.formed.a, w.z[i], g.w.n
	out := w.thin.y[w.thin.at[i]:]
	switch {
	case a.rotated != nil: // done
	case a.coded != nil:
		a.coded.MatMul(out, n, &w.thin.acts[i], n0, n1, &e.local[worker].integer)
	default:
		e.floats(worker, a, out, z, w.t, n0, n1)
	}
	for r := range w.t {
		y, add := g.y[r*n+n0:r*n+n1], out[r*n+n0:r*n+n1]
		if g.w.formed.q == nil {
			copy(y, add)
			continue
		}
		e.set.Add(y, add)
	}
}

// mixRows computes outputs n0 to n1 of y (+)= sum of mix[b] z_b of target i.
func (e *Engine) mixRows(i, n0, n1 int) {
	w := &e.pass.formed
	g := w.group[i]
	p, n := g.w.formed, g.w.n
	for r := range w.t {
		y, z := g.y[r*n+n0:r*n+n1], w.z[i][r*p.u.n:(r+1)*p.u.n]
		if p.q == nil {
			clear(y)
		}
		for b, v := range p.mix {
			e.set.Axpy(y, v, z[b*n+n0:b*n+n1])
		}
	}
}
