package cpu

import (
	"github.com/nstf/nstf/formats/tensor"
	kernels "github.com/nstf/nstf/kernels/cpu"
)

// The second step of a product by factors: y (+)= A z, with few columns, or
// y (+)= sum of mix[i] z_i.

// thinWork is the second step in progress.
type thinWork struct {
	acts [maxGroup]kernels.Activations // z in int8, where A takes it so
	y    []float32                     // what is added, [T][N] of one target after the other
	at   [maxGroup]int                 // where a target's begins
}

// thinRows is the outputs of one part.
const thinRows = 512

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
	for i, g := range w.group {
		a := g.w.formed.a
		if a == nil {
			continue
		}
		switch {
		case a.rotated != nil:
			e.multiplyDense(w.t, w.z[i], []target{{a, w.thin.y[w.thin.at[i]:][:w.t*a.n]}})
		case a.coded != nil:
			acts := &w.thin.acts[i]
			acts.Reset(w.t, a.k, a.coded.Group())
			for r := range w.t {
				e.set.QuantizeRow(acts, r, w.z[i][r*a.k:(r+1)*a.k])
			}
		}
	}
	e.pool.RunWorkers(w.starts[len(w.group)], e.part.thin)
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
	if p.a != nil {
		e.thinRows(worker, i, n0, n1)
	} else {
		e.mixRows(i, n0, n1)
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
	case w.t > fewRows || a.dtype == tensor.Invalid:
		e.set.Gemm(out, n, z, a.k, w.t, n0, n1, a.k, a.rows, &e.local[worker].gemm)
	default:
		for r := range w.t {
			a.dot(e.set, out[r*n+n0:r*n+n1], z[r*a.k:(r+1)*a.k], n0, n1)
		}
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
