package exec

import (
	"math"
	"sort"

	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/runtime/device"
)

// reference computes a graph's logits in float64, the shortest way from the
// words of formats/graph's comments to numbers: no cache, no batches, every
// token looking back at stored keys of all others. It shares nothing with the
// engine but graph.Rope.Frequencies, which has its own oracle.
type reference struct {
	g       *graph.Graph
	weights map[string][]float64
	// length says by which length of the sequence position pos is rotated;
	// nil: that of all tokens given.
	length func(pos int) int
	// see is shown what every matrix is multiplied with; nil: nobody is.
	see func(l *graph.Linear, expert int, x []float64)
	// leaves says which pages positions of a prompt do not read of a key-value head, by their
	// queries and all keys; nil: they read all.
	leaves func(number int, a *graph.Attention, kv int, q, k [][]float64) func(t, page int) bool

	inputs [][]float64            // per-layer embeddings of each position
	kept   map[int][2][][]float64 // keys and values of each block
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
	r.inputs, r.kept = nil, map[int][2][][]float64{}
	for t, id := range ids {
		if g.PerLayer != nil {
			r.inputs = append(r.inputs, r.perLayer(g.PerLayer, int(id), x[t]))
		}
	}
	for i := range g.Blocks {
		x = r.block(i, &g.Blocks[i], x)
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

// perLayer is what all blocks read of one token beside its hidden state.
func (r *reference) perLayer(p *graph.PerLayer, id int, x []float64) []float64 {
	out := r.mul(&p.Projection, 0, x)
	n := int(p.Width)
	for at := 0; at < len(out); at += n {
		c := append([]float64(nil), out[at:at+n]...)
		for i := range c {
			c[i] *= float64(p.ProjectionScale)
		}
		for i, v := range r.norm(p.Norm, c) {
			out[at+i] = (v + r.weights[p.Table][id*len(out)+at+i]*float64(p.Scale)) * float64(p.Factor)
		}
	}
	return out
}

// feed is a block's feed-forward layer, mixture or both, for h, the norm of x.
func (r *reference) feed(b *graph.Block, h, x []float64) []float64 {
	dense := func() []float64 { return r.ffn(b.FFN, 0, h) }
	if b.MoE == nil {
		return dense()
	}
	in := h
	if b.MoENorm != nil {
		in = r.norm(b.MoENorm, x)
	}
	routed := in
	if b.MoE.RouterNorm != nil {
		routed = r.norm(b.MoE.RouterNorm, x)
	}
	out := r.moe(b.MoE, in, routed)
	if b.MoEPostNorm != nil {
		out = r.norm(b.MoEPostNorm, out)
	}
	if b.FFN == nil {
		return out
	}
	f := dense()
	if b.DensePostNorm != nil {
		f = r.norm(b.DensePostNorm, f)
	}
	return add(f, out)
}

func (r *reference) block(number int, b *graph.Block, x [][]float64) [][]float64 {
	normed := make([][]float64, len(x))
	for t := range x {
		if normed[t] = x[t]; !b.Bare && b.Mixes() {
			normed[t] = r.norm(b.AttnNorm, x[t])
		}
	}
	attn := make([][]float64, len(x))
	if b.Mixes() {
		attn = r.mixer(number, b, normed)
	}
	out := make([][]float64, len(x))
	for t := range x {
		a := attn[t]
		if a == nil {
			a = make([]float64, len(x[t]))
		}
		if b.AttnPostNorm != nil {
			a = r.norm(b.AttnPostNorm, a)
		}
		in, sum := x[t], add(x[t], a)
		if !b.Parallel {
			in = sum
		}
		h := normed[t]
		if b.Bare {
			h = in
		}
		if b.FFNNorm != nil {
			h = r.norm(b.FFNNorm, in)
		}
		f := make([]float64, len(in))
		if b.Feeds() {
			f = r.feed(b, h, in)
		}
		if b.FFNPostNorm != nil {
			f = r.norm(b.FFNPostNorm, f)
		}
		out[t] = add(sum, f)
		if p := b.PerLayer; p != nil {
			mid := r.mul(&p.Gate, 0, out[t])
			for i := range mid {
				mid[i] = activate(p.Act, mid[i]) * r.inputs[t][number*len(mid)+i]
			}
			down := r.mul(&p.Down, 0, mid)
			if p.Norm != nil {
				down = r.norm(p.Norm, down)
			}
			out[t] = add(out[t], down)
		}
		if b.OutScale != "" {
			for i := range out[t] {
				out[t][i] *= r.weights[b.OutScale][0]
			}
		}
	}
	return out
}

func (r *reference) mixer(number int, b *graph.Block, h [][]float64) [][]float64 {
	switch {
	case b.Latent != nil:
		return r.latent(b.Latent, h)
	case b.Delta != nil:
		return r.delta(b.Delta, h)
	case b.Mamba != nil:
		return r.mamba(b.Mamba, h)
	case b.ShortConv != nil:
		return r.shortConv(b.ShortConv, h)
	}
	return r.attention(number, b.Attn, h)
}

func (r *reference) attention(number int, a *graph.Attention, h [][]float64) [][]float64 {
	d, group := int(a.HeadDim), int(a.Heads/a.KVHeads)
	q, k, v := make([][]float64, len(h)), make([][]float64, len(h)), make([][]float64, len(h))
	for t := range h {
		q[t] = r.turn(a, a.QNorm, r.mul(&a.Q, 0, h[t]), t, len(h))
		if f := a.Temperature; f != nil {
			for i := range q[t] {
				q[t][i] *= 1 + float64(f.Beta)*math.Log(1+math.Floor(float64(int64(t)+f.Offset)/float64(f.Every)))
			}
		}
		if a.KVFrom != nil {
			continue
		}
		key := r.mul(a.K, 0, h[t])
		k[t], v[t] = r.turn(a, a.KNorm, key, t, len(h)), key
		if a.V != nil {
			v[t] = r.mul(a.V, 0, h[t])
		}
		if a.VNorm != nil {
			v[t] = r.heads(d, v[t], func(head []float64) []float64 { return r.norm(a.VNorm, head) })
		}
	}
	if a.KVFrom != nil {
		k, v = r.kept[*a.KVFrom][0], r.kept[*a.KVFrom][1]
	}
	r.kept[number] = [2][][]float64{k, v}
	out := make([][]float64, len(h))
	left := make([]func(t, page int) bool, a.KVHeads)
	for kv := range left {
		left[kv] = func(int, int) bool { return false }
		if r.leaves != nil {
			left[kv] = r.leaves(number, a, kv, q, k)
		}
	}
	for t := range h {
		mid := make([]float64, int(a.Heads)*d)
		for head := range int(a.Heads) {
			kv := head / group
			score := make([]float64, t+1)
			most, sum, sink := math.Inf(-1), 0.0, math.Inf(-1)
			if a.Sinks != "" {
				sink = r.weights[a.Sinks][head]
				most = sink
			}
			for s := range score {
				if a.Window > 0 && s <= t-int(a.Window) || a.Chunk > 0 && s/int(a.Chunk) != t/int(a.Chunk) || left[kv](t, s/device.PolicyPage) {
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
			sum += math.Exp(sink - most)
			for s := range score {
				for i := range d {
					mid[head*d+i] += score[s] / sum * v[s][kv*d+i]
				}
			}
		}
		if a.Gate != nil {
			for i, v := range r.mul(a.Gate, 0, h[t]) {
				mid[i] *= sigmoid(v)
			}
		}
		out[t] = r.mul(&a.O, 0, mid)
	}
	return out
}

// latent makes queries of latents, and attends over all positions.
func (r *reference) latent(a *graph.Latent, h [][]float64) [][]float64 {
	rank, nope, query := int(a.Rank), int(a.NopeDim), int(a.QueryDim())
	turned := &graph.Attention{HeadDim: a.RopeDim, Rope: a.Rope}
	c, k, out := make([][]float64, len(h)), make([][]float64, len(h)), make([][]float64, len(h))
	for t := range h {
		kv := r.mul(&a.KVA, 0, h[t])
		c[t], k[t] = r.norm(a.KVNorm, kv[:rank]), r.turn(turned, nil, kv[rank:], t, len(h))
		u := h[t]
		if a.QA != nil {
			u = r.norm(a.QNorm, r.mul(a.QA, 0, u))
		}
		q := r.mul(&a.Q, 0, u)
		var heads []float64
		for head := range int(a.Heads) {
			one := q[head*query : (head+1)*query]
			g, rotated := r.mul(&a.KB, head, one[:nope]), r.turn(turned, nil, one[nope:], t, len(h))
			weight, sum, mean := make([]float64, t+1), 0.0, make([]float64, rank)
			for s := range weight {
				score := 0.0
				for i, v := range g {
					score += v * c[s][i]
				}
				for i, v := range rotated {
					score += v * k[s][i]
				}
				weight[s] = math.Exp(float64(a.Scale) * score)
				sum += weight[s]
			}
			for s, w := range weight {
				for i, v := range c[s] {
					mean[i] += w / sum * v
				}
			}
			heads = append(heads, r.mul(&a.VB, head, mean)...)
		}
		out[t] = r.mul(&a.O, 0, heads)
	}
	return out
}

// heads puts what f makes of each head of d numbers one behind another.
func (r *reference) heads(d int, x []float64, f func([]float64) []float64) []float64 {
	out := make([]float64, 0, len(x))
	for ; len(x) > 0; x = x[d:] {
		out = append(out, f(x[:d])...)
	}
	return out
}

// turn normalises and rotates the heads of a query or key at position pos.
func (r *reference) turn(a *graph.Attention, n *graph.Norm, x []float64, pos, length int) []float64 {
	d := int(a.HeadDim)
	out := make([]float64, 0, len(x))
	if a.JointNorms && n != nil {
		x = r.norm(n, x)
	}
	own := 0 // where the head's weights begin
	for ; len(x) > 0; x = x[d:] {
		head := append([]float64(nil), x[:d]...)
		if n != nil && !a.JointNorms && !a.LateNorms {
			head = r.normAt(n, head, own)
		}
		if a.Rope >= 0 {
			rope := &r.g.Ropes[a.Rope]
			if r.length != nil {
				length = r.length(pos)
			}
			freq, factor := rope.Frequencies(int64(length))
			for i, f := range freq {
				lo, hi := i, i+len(freq)
				if rope.Style == graph.RopeInterleaved {
					lo, hi = 2*i, 2*i+1
				}
				sin, cos := math.Sincos(float64(pos) * float64(f))
				sin, cos = sin*float64(factor), cos*float64(factor)
				head[lo], head[hi] = head[lo]*cos-head[hi]*sin, head[hi]*cos+head[lo]*sin
			}
		}
		if n != nil && a.LateNorms {
			head = r.normAt(n, head, own)
		}
		if a.HeadNorms {
			own += d
		}
		out = append(out, head...)
	}
	return out
}

func (r *reference) ffn(f *graph.FFN, expert int, h []float64) []float64 {
	mid := r.mul(&f.Up, expert, h)
	if f.Gate == nil {
		for i, v := range mid {
			if x := f.XIELU; x != nil {
				mid[i] = xielu(x, v)
				continue
			}
			mid[i] = activate(f.Act, v)
		}
		return r.mul(&f.Down, expert, mid)
	}
	for i, g := range r.mul(f.Gate, expert, h) {
		if limit := float64(f.Limit); limit != 0 {
			g = min(g, limit)
			mid[i] = min(max(mid[i], -limit), limit)
		}
		opened := activate(f.Act, g)
		if f.Alpha != 0 {
			opened = g * sigmoid(float64(f.Alpha)*g)
		}
		mid[i] = (mid[i] + float64(f.UpOffset)) * opened
	}
	return r.mul(&f.Down, expert, mid)
}

func xielu(x *graph.XIELU, v float64) float64 {
	beta := float64(x.Beta)
	if v > 0 {
		return math.Log1p(math.Exp(float64(x.AlphaP)))*v*v + beta*v
	}
	return (beta+math.Log1p(math.Exp(float64(x.AlphaN))))*(math.Exp(math.Min(v, float64(x.Eps)))-1-v) + beta*v
}

func (r *reference) moe(m *graph.MoE, h, routed []float64) []float64 {
	chosen, share := r.route(m, r.mul(&m.Router, 0, routed))
	in := h
	if m.LatentDown != nil {
		in = r.mul(m.LatentDown, 0, h)
	}
	out := make([]float64, len(in))
	for i, x := range chosen {
		read := append([]float64(nil), in...)
		if m.WeighInput {
			for j := range read {
				read[j] *= share[i]
			}
			share[i] = 1
		}
		for j, v := range r.ffn(&graph.FFN{Act: m.Act, Gating: m.Gating, Gate: m.Gate, Up: m.Up, Down: m.Down}, x, read) {
			out[j] += share[i] * v
		}
	}
	if m.LatentUp != nil {
		out = r.mul(m.LatentUp, 0, out)
	}
	if f := m.Shared; f != nil {
		factor := 1.0
		if m.SharedGate != nil {
			factor = sigmoid(r.mul(m.SharedGate, 0, h)[0])
		}
		for i, v := range r.ffn(f, 0, h) {
			out[i] += factor * v
		}
	}
	return out
}

// route returns the experts of a row and their shares.
func (r *reference) route(m *graph.MoE, logits []float64) (chosen []int, share []float64) {
	p, sum := scores(m.Score, logits), 0.0
	chosen = r.choose(m, p)
	for _, x := range chosen {
		share = append(share, p[x])
	}
	if m.Score == graph.ScoreSelected {
		share = scores(graph.ScoreSoftmax, share)
	}
	for _, v := range share {
		sum += v
	}
	for i := range share {
		if m.Normalize {
			share[i] /= max(sum+float64(m.Epsilon), float64(m.Floor))
		}
		share[i] *= float64(m.Factor())
		if m.ExpertScale != "" {
			share[i] *= r.weights[m.ExpertScale][chosen[i]]
		}
	}
	return chosen, share
}

// scores turns a router's logits into scores; those that a softmax over the
// chosen makes are the logits until then.
func scores(s graph.Score, logits []float64) []float64 {
	p, sum := make([]float64, len(logits)), 0.0
	for i, v := range logits {
		switch s {
		case graph.ScoreSoftmax:
			p[i] = math.Exp(v)
			sum += p[i]
		case graph.ScoreSigmoid:
			p[i] = sigmoid(v)
		case graph.ScoreRoot:
			p[i] = math.Sqrt(math.Log(1 + math.Exp(v)))
		case graph.ScoreSelected:
			p[i] = v
		}
	}
	if s == graph.ScoreSoftmax {
		for i := range p {
			p[i] /= sum
		}
	}
	return p
}

// choose returns the experts with the largest scores, which SelectBias moves,
// within the best groups.
func (r *reference) choose(m *graph.MoE, p []float64) []int {
	moved := append([]float64(nil), p...)
	for i := range moved {
		if m.SelectBias != "" {
			moved[i] += r.weights[m.SelectBias][i]
		}
	}
	if m.Groups > 0 {
		size := len(p) / int(m.Groups)
		worth := make([]float64, m.Groups)
		for g := range worth {
			members := append([]float64(nil), moved[g*size:(g+1)*size]...)
			sort.Sort(sort.Reverse(sort.Float64Slice(members)))
			for _, v := range members[:m.Best()] {
				worth[g] += v
			}
		}
		for rank, g := range descending(worth) {
			if rank < int(m.TopGroups) {
				continue
			}
			for i := g * size; i < (g+1)*size; i++ {
				if moved[i] = math.Inf(-1); m.ZeroMasked {
					moved[i] = 0
				}
			}
		}
	}
	return descending(moved)[:m.TopK]
}

// descending returns the places of the largest numbers first, of equal ones the
// lower place.
func descending(x []float64) []int {
	order := make([]int, len(x))
	for i := range order {
		order[i] = i
	}
	sort.SliceStable(order, func(i, j int) bool { return x[order[i]] > x[order[j]] })
	return order
}

// mul computes W x + b with the weights of one expert of a stack, 0 for a
// plain matrix.
func (r *reference) mul(l *graph.Linear, expert int, x []float64) []float64 {
	if r.see != nil {
		r.see(l, expert, x)
	}
	y, w := make([]float64, l.Out), r.weights[l.Weight]
	for n := range y {
		row := expert*len(y) + n
		for k, v := range x {
			y[n] += w[row*len(x)+k] * v
		}
		if l.Bias != "" {
			y[n] += r.weights[l.Bias][row]
		}
	}
	return y
}

func (r *reference) norm(n *graph.Norm, x []float64) []float64 { return r.normAt(n, x, 0) }

// normAt is a norm whose weights for x begin at the given one.
func (r *reference) normAt(n *graph.Norm, x []float64, at int) []float64 {
	var mean, square float64
	if n.Kind == graph.LayerNorm {
		for _, v := range x {
			mean += v / float64(len(x))
		}
	}
	for _, v := range x {
		square += (v - mean) * (v - mean) / float64(len(x))
	}
	y := make([]float64, len(x))
	for i, v := range x {
		weight := 1.0
		if n.Weight != "" {
			weight = r.weights[n.Weight][at+i]
		}
		y[i] = (v - mean) / math.Sqrt(square+float64(n.Eps)) * (weight + float64(n.Offset)) * float64(n.Factor())
		if n.Bias != "" {
			y[i] += r.weights[n.Bias][at+i]
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

func sigmoid(v float64) float64 { return 1 / (1 + math.Exp(-v)) }

func activate(a graph.Activation, v float64) float64 {
	switch a {
	case graph.SiLU:
		return v * sigmoid(v)
	case graph.GELU:
		return v * (1 + math.Erf(v/math.Sqrt2)) / 2
	case graph.GELUTanh:
		return v * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(v+0.044715*v*v*v))) / 2
	case graph.GELUQuick:
		return v * sigmoid(1.702*v)
	case graph.ReLU:
		return max(v, 0)
	case graph.ReLU2:
		return max(v, 0) * max(v, 0)
	}
	panic("no such activation: " + a)
}
