package exec

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
)

// A tiny is a graph of a few hundred numbers made by hand, with random
// weights: the cases together hold every operation and option of a graph.
type tiny struct {
	name  string
	graph *graph.Graph
}

// shape is what a tiny graph's blocks have in common.
type shape struct {
	d, heads, kv, dim, inner int64
	norm                     graph.NormKind
	bias                     bool
}

func (s shape) linear(name string, role graph.Role, in, out int64) graph.Linear {
	l := graph.Linear{Role: role, Weight: name, In: in, Out: out, Input: name + ".in"}
	if s.bias {
		l.Bias = name + ".bias"
	}
	return l
}

func (s shape) newNorm(name string) *graph.Norm {
	n := &graph.Norm{Kind: s.norm, Weight: name, Eps: 1e-5}
	if s.norm == graph.LayerNorm {
		n.Bias = name + ".bias"
	}
	return n
}

// graph returns two sequential blocks with a gated feed-forward layer.
func (s shape) graph(edit func(g *graph.Graph)) *graph.Graph {
	g := &graph.Graph{
		Arch: "tiny", Context: 400, Vocab: 37, Width: s.d,
		Embed: graph.Embedding{Table: "table", Scale: 1},
		Ropes: []graph.Rope{{Style: graph.RopeHalf, Dim: s.dim, Theta: 100, Scaling: graph.RopeScaling{Kind: graph.ScaleNone}}},
		Norm:  s.newNorm("norm"),
		Head:  graph.Head{Linear: s.linear("head", graph.RoleHead, s.d, 37)},
	}
	for i := range 2 {
		p := fmt.Sprint(i, ".")
		gate := s.linear(p+"gate", graph.RoleGate, s.d, s.inner)
		k, v := s.linear(p+"k", graph.RoleK, s.d, s.kv*s.dim), s.linear(p+"v", graph.RoleV, s.d, s.kv*s.dim)
		g.Blocks = append(g.Blocks, graph.Block{
			AttnNorm: s.newNorm(p + "attn_norm"), FFNNorm: s.newNorm(p + "ffn_norm"),
			Attn: &graph.Attention{
				Heads: s.heads, KVHeads: s.kv, HeadDim: s.dim, Scale: 0.3,
				Q: s.linear(p+"q", graph.RoleQ, s.d, s.heads*s.dim), K: &k, V: &v, O: s.linear(p+"o", graph.RoleO, s.heads*s.dim, s.d),
			},
			FFN: &graph.FFN{Act: graph.SiLU, Gate: &gate, Up: s.linear(p+"up", graph.RoleUp, s.d, s.inner), Down: s.linear(p+"down", graph.RoleDown, s.inner, s.d)},
		})
	}
	edit(g)
	return g
}

// moe replaces the feed-forward layer of block i by a mixture.
func (s shape) moe(g *graph.Graph, i int, experts, topK int64, normalize bool) {
	p := fmt.Sprint(i, ".x.")
	g.Blocks[i].FFN = nil
	router, gate := s.linear(p+"router", graph.RoleRouter, s.d, experts), s.linear(p+"gate", graph.RoleXGate, s.d, s.inner)
	g.Blocks[i].MoE = &graph.MoE{
		Act: graph.SiLU, Experts: experts, TopK: topK, Normalize: normalize, Router: router,
		Gate: &gate, Up: s.linear(p+"up", graph.RoleXUp, s.d, s.inner), Down: s.linear(p+"down", graph.RoleXDown, s.inner, s.d),
	}
}

// latentExperts replaces the feed-forward layer of block i by a mixture without gates, whose
// experts read l numbers.
func (s shape) latentExperts(g *graph.Graph, i int, experts, topK, l int64) {
	s.moe(g, i, experts, topK, true)
	p, m := fmt.Sprint(i, ".x."), g.Blocks[i].MoE
	down, up := s.linear(p+"latent down", graph.RoleXTo, s.d, l), s.linear(p+"latent up", graph.RoleXFrom, l, s.d)
	m.Act, m.Score, m.Gate, m.LatentDown, m.LatentUp = graph.ReLU2, graph.ScoreSigmoid, nil, &down, &up
	m.Up, m.Down = s.linear(p+"up", graph.RoleXUp, l, s.inner), s.linear(p+"down", graph.RoleXDown, s.inner, l)
}

// shared gives the mixture of block i a layer that all tokens go through.
func (s shape) shared(g *graph.Graph, i int, inner int64, gated bool) *graph.MoE {
	p := fmt.Sprint(i, ".s.")
	up := s.linear(p+"up", graph.RoleUp, s.d, inner)
	m := g.Blocks[i].MoE
	m.Shared = &graph.FFN{Act: graph.GELU, Up: up, Down: s.linear(p+"down", graph.RoleDown, inner, s.d)}
	if gated {
		gate, factor := s.linear(p+"gate", graph.RoleGate, s.d, inner), s.linear(p+"factor", graph.RoleRouter, s.d, 1)
		m.Shared.Act, m.Shared.Gate, m.SharedGate = graph.SiLU, &gate, &factor
	}
	return m
}

// delta replaces the attention of block i by a gated delta net.
func (s shape) delta(g *graph.Graph, i int, n graph.Delta) *graph.Delta {
	p := fmt.Sprint(i, ".d.")
	c, v := n.Channels(), n.Values()
	n.Eps, n.Conv, n.Decay, n.DTBias, n.Norm = 1e-6, p+"conv", p+"decay", p+"dt", s.newNorm(p+"norm")
	n.QKV, n.Z = s.linear(p+"qkv", graph.RoleQKV, s.d, c), s.linear(p+"z", graph.RoleZ, s.d, v)
	n.Beta, n.Alpha = s.linear(p+"beta", graph.RoleDGate, s.d, n.Heads), s.linear(p+"alpha", graph.RoleDGate, s.d, n.Fades())
	n.Out = s.linear(p+"out", graph.RoleDOut, v, s.d)
	g.Blocks[i].Attn, g.Blocks[i].Delta = nil, &n
	return &n
}

// reduced has Z and Alpha of a delta net read so many numbers of a matrix before them.
func (s shape) reduced(n *graph.Delta, z, alpha int64) {
	p := strings.TrimSuffix(n.Conv, "conv")
	if z > 0 {
		first := s.linear(p+"za", graph.RoleZ, s.d, z)
		n.ZA, n.Z = &first, s.linear(p+"z", graph.RoleZ, z, n.Values())
	}
	if alpha > 0 {
		first := s.linear(p+"alphaa", graph.RoleDGate, s.d, alpha)
		n.AlphaA, n.Alpha = &first, s.linear(p+"alpha", graph.RoleDGate, alpha, n.Fades())
	}
}

// mamba replaces the attention of block i by a state space.
func (s shape) mamba(g *graph.Graph, i int, n graph.Mamba) *graph.Mamba {
	p := fmt.Sprint(i, ".m.")
	c, v := n.Channels(), n.Values()
	n.Conv, n.ConvBias, n.Decay, n.DTBias, n.Skip = p+"conv", p+"conv bias", p+"decay", p+"dt", p+"skip"
	n.Norm = &graph.Norm{Kind: graph.RMSNorm, Weight: p + "norm", Eps: 1e-5}
	n.Z, n.XBC = s.linear(p+"z", graph.RoleMZ, s.d, v), s.linear(p+"xbc", graph.RoleMXBC, s.d, c)
	n.DT, n.Out = s.linear(p+"dtw", graph.RoleMGate, s.d, n.Heads), s.linear(p+"out", graph.RoleMOut, v, s.d)
	g.Blocks[i].Attn, g.Blocks[i].Mamba = nil, &n
	return &n
}

// shortConv replaces the attention of block i by a short convolution of c channels.
func (s shape) shortConv(g *graph.Graph, i int, c, kernel int64) *graph.ShortConv {
	p := fmt.Sprint(i, ".c.")
	n := &graph.ShortConv{Kernel: kernel, Conv: p + "conv", In: s.linear(p+"in", graph.RoleCIn, s.d, 3*c), Out: s.linear(p+"out", graph.RoleCOut, c, s.d)}
	g.Blocks[i].Attn, g.Blocks[i].ShortConv = nil, n
	return n
}

// latent replaces the attention of block i by one over latents, queries by way of one
// of so many numbers, 0 for none.
func (s shape) latent(g *graph.Graph, i int, queries int64, a graph.Latent) *graph.Latent {
	p, in := fmt.Sprint(i, ".l."), s.d
	a.Scale, a.KVNorm = 0.3, &graph.Norm{Kind: graph.RMSNorm, Weight: p + "kvn", Eps: 1e-6}
	if queries > 0 {
		qa := s.linear(p+"qa", graph.RoleQA, s.d, queries)
		a.QA, a.QNorm, in = &qa, s.newNorm(p+"qn"), queries
	}
	a.KVA, a.Q = s.linear(p+"kva", graph.RoleKVA, s.d, a.KeyDim()), s.linear(p+"q", graph.RoleQ, in, a.Heads*a.QueryDim())
	a.KB, a.VB = s.linear(p+"kb", graph.RoleKB, a.NopeDim, a.Rank), s.linear(p+"vb", graph.RoleVB, a.Rank, a.ValueDim)
	a.O = s.linear(p+"o", graph.RoleO, a.Heads*a.ValueDim, s.d)
	g.Blocks[i].Attn, g.Blocks[i].Latent = nil, &a
	return &a
}

// gate gives the attention of block i an output gate.
func (s shape) gate(g *graph.Graph, i int) {
	a := g.Blocks[i].Attn
	gate := s.linear(fmt.Sprint(i, ".og"), graph.RoleOGate, s.d, a.Heads*a.HeadDim)
	a.Gate = &gate
}

// more appends blocks that are shaped by another s: attention with heads of its
// own, the sizes outside as in g.
func (s shape) more(g *graph.Graph, blocks int, edit func(i int, b *graph.Block)) {
	for range blocks {
		i := len(g.Blocks)
		one := s.graph(func(*graph.Graph) {})
		b := one.Blocks[0]
		rename(&b, fmt.Sprint(i, "."))
		edit(i, &b)
		g.Blocks = append(g.Blocks, b)
	}
}

// rename gives a block's tensors names of their own.
func rename(b *graph.Block, p string) {
	for _, part := range b.Parts(0) {
		switch {
		case part.Linear != nil:
			part.Linear.Weight, part.Linear.Input = p+part.Linear.Weight[2:], p+part.Linear.Input[2:]
			if part.Linear.Bias != "" {
				part.Linear.Bias = p + part.Linear.Bias[2:]
			}
		case part.Norm != nil:
			part.Norm.Weight = p + part.Norm.Weight[2:]
			if part.Norm.Bias != "" {
				part.Norm.Bias = p + part.Norm.Bias[2:]
			}
		}
	}
}

// share has block i read the keys and values of another.
func share(g *graph.Graph, i, from int) {
	a := g.Blocks[i].Attn
	a.KVFrom, a.K, a.V, a.KNorm, a.VNorm = &from, nil, nil, nil, nil
}

// headNorms gives block i norms of query, key and value heads, the last without
// weights.
func (s shape) headNorms(g *graph.Graph, i int) {
	p, a := fmt.Sprint(i, "."), g.Blocks[i].Attn
	a.QNorm, a.KNorm, a.VNorm = s.newNorm(p+"q_norm"), s.newNorm(p+"k_norm"), &graph.Norm{Kind: graph.RMSNorm, Eps: 1e-6}
}

// perLayer gives all blocks inputs of so many numbers.
func (s shape) perLayer(g *graph.Graph, n int64) {
	all := n * int64(len(g.Blocks))
	g.PerLayer = &graph.PerLayer{Width: n, Table: "per layer", Scale: 1.5, Projection: s.linear("project", graph.RolePModel, s.d, all),
		ProjectionScale: 0.3, Norm: s.newNorm("per layer norm"), Factor: 0.7}
	for i := range g.Blocks {
		p := fmt.Sprint(i, ".p.")
		g.Blocks[i].PerLayer = &graph.PerLayerInput{Act: graph.GELUTanh, Gate: s.linear(p+"gate", graph.RolePGate, s.d, n),
			Down: s.linear(p+"down", graph.RolePDown, n, s.d), Norm: s.newNorm(p + "norm")}
	}
}

// beside puts a mixture next to the feed-forward layer of block i.
func (s shape) beside(g *graph.Graph, i int, experts, topK int64) *graph.MoE {
	f, p, b := g.Blocks[i].FFN, fmt.Sprint(i, ".b."), &g.Blocks[i]
	s.moe(g, i, experts, topK, true)
	b.FFN, b.DensePostNorm, b.MoENorm, b.MoEPostNorm, b.FFNPostNorm = f, s.newNorm(p+"n1"), s.newNorm(p+"n2"), s.newNorm(p+"n3"), s.newNorm(p+"n4")
	b.MoE.RouterNorm, b.MoE.ExpertScale = s.newNorm(p+"router norm"), p+"expert scale"
	b.MoE.RouterNorm.Scale = 0.2
	return b.MoE
}

// fillWeights makes random weights for a graph, stored in the scheme named,
// and what the stored numbers are. Vectors are always float32.
func fillWeights(t testing.TB, g *graph.Graph, schemeName string, seed uint64) (func(string) formats.Tensor, map[string][]float64) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 1))
	tensors, values := map[string]formats.Tensor{}, map[string][]float64{}
	for _, w := range g.Weights() {
		n, err := tensor.Elements(w.Shape)
		if err != nil {
			t.Fatal(err)
		}
		v := make([]float32, n)
		k := w.Shape[len(w.Shape)-1]
		for i := range v {
			v[i] = float32(rng.NormFloat64() / math.Sqrt(float64(k)) * 1.5)
			if w.Role == graph.RoleNorm || w.Role == graph.RoleEmbed {
				v[i] = float32(rng.NormFloat64())
			}
			if strings.HasSuffix(w.Name, ".decay") { // of either kind: what is remembered fades
				v[i] = -float32(math.Abs(float64(v[i])))
			}
		}
		name := schemeName
		if len(w.Shape) == 1 || w.Role == graph.RoleNorm {
			name = "f32"
		}
		tensors[w.Name], values[w.Name] = store(t, w, name, v)
	}
	return func(name string) formats.Tensor { return tensors[name] }, values
}

// store packs v, and returns what a reader gets back.
func store(t testing.TB, w graph.Weight, name string, v []float32) (formats.Tensor, []float64) {
	t.Helper()
	s, ok := scheme.ByName(name)
	if !ok {
		t.Fatalf("no scheme %q", name)
	}
	data := make([]byte, len(v)*s.DType.Bits()/8)
	if err := tensor.FromFloat32(data, v, s.DType); err != nil {
		t.Fatal(err)
	}
	x, err := scheme.New(w.Name, s, w.Shape, nil, tensor.BytesBlob(data))
	if err != nil {
		t.Fatal(err)
	}
	m, err := scheme.Open(&x)
	if err != nil {
		t.Fatal(err)
	}
	got := make([]float32, len(v))
	m.DecodeRows(got, 0, m.N)
	out := make([]float64, len(v))
	for i, f := range got {
		out[i] = float64(f)
	}
	return x, out
}

// newTiny opens a tiny graph, with the float64 reference beside it. Its
// arithmetic is exact: the tolerances of these tests are float32's.
func newTiny(t testing.TB, g *graph.Graph, schemeName string, o Options) (*Executor, *reference) {
	t.Helper()
	o.Exact = true
	source, values := fillWeights(t, g, schemeName, 7)
	e, err := newExecutor("tiny", g, source, onFlag(t, o))
	opened(t, err)
	t.Cleanup(func() { e.Close() })
	return e, &reference{g: g, weights: values}
}

func tinyIDs(n int) []int32 {
	rng := rand.New(rand.NewPCG(3, 4))
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = rng.Int32N(37)
	}
	return ids
}

func toFloat32(x [][]float64) [][]float32 {
	out := make([][]float32, len(x))
	for r := range x {
		out[r] = make([]float32, len(x[r]))
		for i, v := range x[r] {
			out[r][i] = float32(v)
		}
	}
	return out
}
