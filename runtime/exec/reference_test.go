package exec

import (
	"math"
	"sort"

	"github.com/nstf/nstf/formats/model"
)

// reference computes a graph's logits in float64, the shortest way from the
// words of formats/model's comments to numbers: no cache, no batches, every
// token looking back at stored keys of all others. It shares nothing with the
// engine but model.Rope.Frequencies, which has its own oracle.
type reference struct {
	g       *model.Graph
	weights map[string][]float64
	// length says by which length of the sequence position pos is rotated;
	// nil: that of all tokens given.
	length func(pos int) int
}

// logits returns the logits that follow each of the ids, all computed in one
// pass.
func (r *reference) logits(ids []int32) [][]float64 {
	g, d := r.g, int(r.g.Width)
	x := make([][]float64, len(ids))
	for t, id := range ids {
		x[t] = make([]float64, d)
		for i := range x[t] {
			x[t][i] = r.weights[g.Embed.Table][int(id)*d+i] * float64(g.Embed.Scale)
			if g.Embed.Positions != "" {
				x[t][i] += r.weights[g.Embed.Positions][t*d+i]
			}
		}
	}
	for i := range g.Blocks {
		x = r.block(&g.Blocks[i], x)
	}
	out := make([][]float64, len(ids))
	for t := range x {
		out[t] = r.mul(&g.Head.Linear, 0, r.norm(g.Norm, x[t]))
		for i, v := range out[t] {
			out[t][i] = softcap(v, g.Head.Softcap)
		}
	}
	return out
}

func (r *reference) block(b *model.Block, x [][]float64) [][]float64 {
	normed := make([][]float64, len(x))
	for t := range x {
		normed[t] = r.norm(b.AttnNorm, x[t])
	}
	attn := r.attention(&b.Attn, normed)
	out := make([][]float64, len(x))
	for t := range x {
		a := attn[t]
		if b.AttnPostNorm != nil {
			a = r.norm(b.AttnPostNorm, a)
		}
		in, sum := x[t], add(x[t], a)
		if !b.Parallel {
			in = sum
		}
		h := normed[t]
		if b.FFNNorm != nil {
			h = r.norm(b.FFNNorm, in)
		}
		var f []float64
		if b.FFN != nil {
			f = r.ffn(b.FFN.Act, b.FFN.Gate, &b.FFN.Up, &b.FFN.Down, 0, h)
		} else {
			f = r.moe(b.MoE, h)
		}
		if b.FFNPostNorm != nil {
			f = r.norm(b.FFNPostNorm, f)
		}
		out[t] = add(sum, f)
	}
	return out
}

func (r *reference) attention(a *model.Attention, h [][]float64) [][]float64 {
	d, group := int(a.HeadDim), int(a.Heads/a.KVHeads)
	q, k, v := make([][]float64, len(h)), make([][]float64, len(h)), make([][]float64, len(h))
	for t := range h {
		q[t] = r.turn(a, a.QNorm, r.mul(&a.Q, 0, h[t]), t, len(h))
		k[t] = r.turn(a, a.KNorm, r.mul(&a.K, 0, h[t]), t, len(h))
		v[t] = r.mul(&a.V, 0, h[t])
	}
	out := make([][]float64, len(h))
	for t := range h {
		mid := make([]float64, int(a.Heads)*d)
		for head := range int(a.Heads) {
			kv := head / group
			score := make([]float64, t+1)
			most, sum := math.Inf(-1), 0.0
			for s := range score {
				if a.Window > 0 && s <= t-int(a.Window) {
					score[s] = math.Inf(-1)
					continue
				}
				for i := range d {
					score[s] += q[t][head*d+i] * k[s][kv*d+i]
				}
				score[s] = softcap(score[s]*float64(a.Scale), a.Softcap)
				most = max(most, score[s])
			}
			for s := range score {
				score[s] = math.Exp(score[s] - most)
				sum += score[s]
			}
			for s := range score {
				for i := range d {
					mid[head*d+i] += score[s] / sum * v[s][kv*d+i]
				}
			}
		}
		out[t] = r.mul(&a.O, 0, mid)
	}
	return out
}

// turn normalises and rotates the heads of a query or key at position pos.
func (r *reference) turn(a *model.Attention, n *model.Norm, x []float64, pos, length int) []float64 {
	d := int(a.HeadDim)
	out := make([]float64, 0, len(x))
	for ; len(x) > 0; x = x[d:] {
		head := append([]float64(nil), x[:d]...)
		if n != nil {
			head = r.norm(n, head)
		}
		if a.Rope >= 0 {
			rope := &r.g.Ropes[a.Rope]
			if r.length != nil {
				length = r.length(pos)
			}
			freq, factor := rope.Frequencies(int64(length))
			for i, f := range freq {
				lo, hi := i, i+len(freq)
				if rope.Style == model.RopeInterleaved {
					lo, hi = 2*i, 2*i+1
				}
				sin, cos := math.Sincos(float64(pos) * float64(f))
				sin, cos = sin*float64(factor), cos*float64(factor)
				head[lo], head[hi] = head[lo]*cos-head[hi]*sin, head[hi]*cos+head[lo]*sin
			}
		}
		out = append(out, head...)
	}
	return out
}

func (r *reference) ffn(act model.Activation, gate, up, down *model.Linear, expert int, h []float64) []float64 {
	mid := r.mul(up, expert, h)
	if gate == nil {
		for i, v := range mid {
			mid[i] = activate(act, v)
		}
	} else {
		for i, v := range r.mul(gate, expert, h) {
			mid[i] *= activate(act, v)
		}
	}
	return r.mul(down, expert, mid)
}

func (r *reference) moe(m *model.MoE, h []float64) []float64 {
	p := r.mul(&m.Router, 0, h)
	order, sum := make([]int, len(p)), 0.0
	for i := range p {
		p[i], order[i] = math.Exp(p[i]), i
		sum += p[i]
	}
	sort.SliceStable(order, func(i, j int) bool { return p[order[i]] > p[order[j]] })
	order = order[:m.TopK]
	if m.Normalize {
		sum = 0
		for _, x := range order {
			sum += p[x]
		}
	}
	out := make([]float64, len(h))
	for _, x := range order {
		for i, v := range r.ffn(m.Act, &m.Gate, &m.Up, &m.Down, x, h) {
			out[i] += p[x] / sum * v
		}
	}
	return out
}

// mul computes W x + b with the weights of one expert of a stack, 0 for a
// plain matrix.
func (r *reference) mul(l *model.Linear, expert int, x []float64) []float64 {
	y := make([]float64, l.Out)
	for n := range y {
		row := expert*len(y) + n
		for k, v := range x {
			y[n] += r.weights[l.Weight][row*len(x)+k] * v
		}
		if l.Bias != "" {
			y[n] += r.weights[l.Bias][row]
		}
	}
	return y
}

func (r *reference) norm(n *model.Norm, x []float64) []float64 {
	var mean, square float64
	if n.Kind == model.LayerNorm {
		for _, v := range x {
			mean += v / float64(len(x))
		}
	}
	for _, v := range x {
		square += (v - mean) * (v - mean) / float64(len(x))
	}
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = (v - mean) / math.Sqrt(square+float64(n.Eps)) * (r.weights[n.Weight][i] + float64(n.Offset))
		if n.Bias != "" {
			y[i] += r.weights[n.Bias][i]
		}
	}
	return y
}

func add(a, b []float64) []float64 {
	out := make([]float64, len(a))
	for i := range a {
		out[i] = a[i] + b[i]
	}
	return out
}

func softcap(v float64, limit float32) float64 {
	if limit == 0 {
		return v
	}
	return float64(limit) * math.Tanh(v/float64(limit))
}

func activate(a model.Activation, v float64) float64 {
	sigmoid := func(v float64) float64 { return 1 / (1 + math.Exp(-v)) }
	switch a {
	case model.SiLU:
		return v * sigmoid(v)
	case model.GELU:
		return v * (1 + math.Erf(v/math.Sqrt2)) / 2
	case model.GELUTanh:
		return v * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(v+0.044715*v*v*v))) / 2
	case model.GELUQuick:
		return v * sigmoid(1.702*v)
	case model.ReLU:
		return max(v, 0)
	}
	panic("no such activation: " + a)
}
