package cpu

import (
	"math"

	"github.com/nstf/nstf/formats/graph"
)

// routes are the experts chosen for each row, and the rows of each expert.
type routes struct {
	*block
	width  int       // D
	f      []float32 // [T][D]: what the shared layer gave
	chosen []int32   // [T][TopK]
	share  []float32 // [T][TopK]: factor on the expert's output
	rows   []int32   // of the expert in progress
	weight []float32 // of the expert in progress, beside rows
	// elsewhere are experts that another device computes, nil: none.
	elsewhere []bool
}

// mixture computes f[t][D] as the sum of the shared layer's output and those of
// the chosen experts for h[t][D]; the router reads routed[t][D], which may be h, or f.
func (e *Engine) mixture(i, t int, routed, h, f []float32) {
	b, d := &e.blocks[i], int(e.g.Width)
	m := b.MoE
	logits := target{b.router, e.s.router[:t*int(m.Experts)]}
	switch {
	case b.sharedGate == nil:
		e.linear(t, routed, noExpert, logits)
	case b.routerNorm == nil:
		e.linear(t, h, noExpert, logits, target{b.sharedGate, e.s.factor[:t]})
	default:
		e.linear(t, routed, noExpert, logits)
		e.linear(t, h, noExpert, target{b.sharedGate, e.s.factor[:t]})
	}
	if b.shared.up != nil {
		e.gated(noExpert, t, h, f, b.shared)
	} else {
		clear(f)
	}
	read, sum := h, f // what experts read, and what their outputs are added to
	if b.latentDown != nil {
		l := b.latentDown.n
		read, sum = e.s.latent[:t*l], e.s.latentSum[:t*l]
		e.linear(t, h, noExpert, target{b.latentDown, read})
		clear(sum)
	}
	r, topK := &e.pass.routes, int(m.TopK)
	r.block, r.width, r.f = b, d, f
	r.chosen, r.share = fit(r.chosen, t*topK), fit(r.share, t*topK)
	e.eachRow(t, e.part.route)
	e.experts(b, read, sum)
	if b.latentUp != nil {
		lifted := e.s.result[:t*d]
		e.linear(t, sum, noExpert, target{b.latentUp, lifted})
		e.addRows(f, branch{rows: lifted}, branch{}, nil, nil, nil)
	}
}

// experts adds to sum[t][L] what the experts that were chosen for each row make of read[t][L].
// Rows are gathered by expert, so that each expert's weights are read once; the experts add
// their share in ascending order, whatever the routing.
func (e *Engine) experts(b *block, read, sum []float32) {
	r, m := &e.pass.routes, b.MoE
	l := int(m.Latent(e.g.Width))
	for x := range b.experts {
		if r.elsewhere != nil && r.elsewhere[x] {
			continue
		}
		r.gather(x)
		n := len(r.rows)
		if n == 0 {
			continue
		}
		in, out := e.s.gathered[:n*l], e.s.result[:n*l]
		for j, row := range r.rows {
			copy(in[j*l:(j+1)*l], read[int(row)*l:])
			if m.WeighInput {
				e.set.Scale(in[j*l:(j+1)*l], r.weight[j])
				r.weight[j] = 1
			}
		}
		e.gated(x, n, in, out, b.experts[x])
		for j, row := range r.rows {
			e.set.Axpy(sum[int(row)*l:(int(row)+1)*l], r.weight[j], out[j*l:(j+1)*l])
		}
	}
}

// routeRow turns one row's router logits into its experts and their shares, by
// the formula of [graph.MoE], and gives the shared layer's output its factor. A
// NaN among the logits makes the shares NaN.
func (e *Engine) routeRow(row int) {
	r := &e.pass.routes
	m, n, k := r.MoE, int(r.MoE.Experts), int(r.MoE.TopK)
	if r.sharedGate != nil {
		e.set.Scale(r.f[row*r.width:(row+1)*r.width], float32(sigmoid(float64(e.s.factor[row]))))
	}
	p, chosen, share := e.s.router[row*n:(row+1)*n], r.chosen[row*k:(row+1)*k], r.share[row*k:(row+1)*k]
	e.score(m.Score, p)
	choice := e.s.choice[row*(n+int(m.Groups)) : (row+1)*(n+int(m.Groups))]
	r.choose(chosen, p, choice[:n], choice[n:])
	for i, x := range chosen {
		share[i] = p[x]
	}
	if m.Score == graph.ScoreSelected {
		e.set.Softmax(share)
	}
	if m.Normalize {
		var sum float32
		for _, v := range share {
			sum += v
		}
		sum = max(sum+m.Epsilon, m.Floor)
		for i := range share {
			share[i] /= sum
		}
	}
	for i := range share {
		share[i] *= m.Factor()
		if r.expertScale != nil {
			share[i] *= r.expertScale[chosen[i]]
		}
	}
}

// score turns logits into scores; those that a softmax over the chosen will make
// stay logits.
func (e *Engine) score(s graph.Score, p []float32) {
	if s == graph.ScoreSoftmax {
		e.set.Softmax(p)
		return
	}
	odd := false
	for i, v := range p {
		odd = odd || v != v || s != graph.ScoreSigmoid && v > math.MaxFloat32
		switch x := float64(v); s {
		case graph.ScoreSigmoid:
			p[i] = float32(sigmoid(x))
		case graph.ScoreRoot:
			p[i] = float32(math.Sqrt(max(x, 0) + math.Log1p(math.Exp(-math.Abs(x)))))
		}
	}
	if odd {
		for i := range p {
			p[i] = float32(math.NaN())
		}
	}
}

func sigmoid(x float64) float64 {
	e := math.Exp(-math.Abs(x))
	if x < 0 {
		return e / (1 + e)
	}
	return 1 / (1 + e)
}

// choose picks the experts whose scores p are largest, moved by the bias, within
// the best groups; of equals the lower index. v is room for the moved scores, and
// worth for a number of each group.
func (r *routes) choose(chosen []int32, p, v, worth []float32) {
	none := float32(math.Inf(-1)) // what cannot be chosen, or was
	for x := range p {
		v[x] = p[x]
		if r.selectBias != nil {
			v[x] += r.selectBias[x]
		}
		if p[x] == p[x] && !(v[x] >= -math.MaxFloat32) {
			v[x] = -math.MaxFloat32
		}
	}
	r.mask(v, worth, none)
	for i := range chosen {
		best := i // where only NaN is there: any expert gives NaN
		most := none
		for x := range v {
			if v[x] > most {
				best, most = x, v[x]
			}
		}
		chosen[i], v[best] = int32(best), none
	}
}

// mask takes experts of other groups than the best out of the choice.
func (r *routes) mask(v, worth []float32, none float32) {
	if len(worth) == 0 {
		return
	}
	m, size := r.MoE, len(v)/len(worth)
	for g := range worth {
		first, second := none, none
		for _, x := range v[g*size : (g+1)*size] {
			if x > first {
				first, second = x, first
			} else if x > second {
				second = x
			}
		}
		if worth[g] = first; m.Best() == 2 {
			worth[g] += second
		}
	}
	if m.ZeroMasked {
		none = 0
	}
	for g := range worth {
		better := 0
		for o := range worth {
			if worth[o] > worth[g] || worth[o] == worth[g] && o < g {
				better++
			}
		}
		if better < int(m.TopGroups) {
			continue
		}
		for x := g * size; x < (g+1)*size; x++ {
			v[x] = none
		}
	}
}

// gather lists the rows that chose expert x.
func (r *routes) gather(x int) {
	r.rows, r.weight = r.rows[:0], r.weight[:0]
	for i, c := range r.chosen {
		if int(c) == x {
			r.rows = append(r.rows, int32(i/int(r.MoE.TopK)))
			r.weight = append(r.weight, r.share[i])
		}
	}
}
