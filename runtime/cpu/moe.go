package cpu

// routes are the experts chosen for each row, and the rows of each expert.
type routes struct {
	experts, topK int
	normalize     bool
	chosen        []int32   // [T][TopK]
	share         []float32 // [T][TopK]: factor on the expert's output
	rows          []int32   // of the expert in progress
	weight        []float32 // of the expert in progress, beside rows
}

// mixture computes f[t][D] as the sum of the chosen experts' outputs. Rows
// are gathered by expert, so that each expert's weights are read once; the
// experts add their share in ascending order, whatever the routing.
func (e *Engine) mixture(i, t int, h, f []float32) {
	b, d := &e.blocks[i], int(e.g.Width)
	m := b.MoE
	logits := e.s.router[:t*int(m.Experts)]
	e.linear(t, h, i, noExpert, target{b.router, logits})
	r := &e.pass.routes
	r.experts, r.topK, r.normalize = int(m.Experts), int(m.TopK), m.Normalize
	r.chosen, r.share = fit(r.chosen, t*r.topK), fit(r.share, t*r.topK)
	e.eachRow(t, e.part.route)
	clear(f)
	for x := range b.experts {
		r.gather(x, t)
		n := len(r.rows)
		if n == 0 {
			continue
		}
		in, out := e.s.gathered[:n*d], e.s.result[:n*d]
		for j, row := range r.rows {
			copy(in[j*d:(j+1)*d], h[int(row)*d:])
		}
		e.gated(i, x, n, in, out, b.experts[x])
		for j, row := range r.rows {
			e.set.Axpy(f[int(row)*d:(int(row)+1)*d], r.weight[j], out[j*d:(j+1)*d])
		}
	}
}

// routeRow turns one row's router logits into its experts: softmax over all,
// the TopK largest (the lower index first among equals), divided by their sum
// where the graph says so.
func (e *Engine) routeRow(row int) {
	r := &e.pass.routes
	p := e.s.router[row*r.experts : (row+1)*r.experts]
	e.set.Softmax(p)
	chosen, share := r.chosen[row*r.topK:(row+1)*r.topK], r.share[row*r.topK:(row+1)*r.topK]
	var sum float32
	for i := range chosen {
		best := -1
		for x, v := range p {
			if v >= 0 && (best < 0 || v > p[best]) {
				best = x
			}
		}
		if best < 0 { // only NaN is left: any expert gives NaN
			best = i
		}
		chosen[i], share[i] = int32(best), p[best]
		sum += p[best]
		p[best] = -1 // taken
	}
	if r.normalize {
		for i := range share {
			share[i] /= sum
		}
	}
}

// gather lists the rows that chose expert x.
func (r *routes) gather(x, t int) {
	r.rows, r.weight = r.rows[:0], r.weight[:0]
	for i, c := range r.chosen[:t*r.topK] {
		if int(c) == x {
			r.rows = append(r.rows, int32(i/r.topK))
			r.weight = append(r.weight, r.share[i])
		}
	}
}
