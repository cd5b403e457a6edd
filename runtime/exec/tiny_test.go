package exec

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
)

// A tiny is a graph of a few hundred numbers made by hand, with random
// weights: the cases together hold every operation and option of a graph.
type tiny struct {
	name  string
	graph *model.Graph
}

// shape is what a tiny graph's blocks have in common.
type shape struct {
	d, heads, kv, dim, inner int64
	norm                     model.NormKind
	bias                     bool
}

func (s shape) linear(name string, role model.Role, in, out int64) model.Linear {
	l := model.Linear{Role: role, Weight: name, In: in, Out: out, Input: name + ".in"}
	if s.bias {
		l.Bias = name + ".bias"
	}
	return l
}

func (s shape) newNorm(name string) *model.Norm {
	n := &model.Norm{Kind: s.norm, Weight: name, Eps: 1e-5}
	if s.norm == model.LayerNorm {
		n.Bias = name + ".bias"
	}
	return n
}

// graph returns two sequential blocks with a gated feed-forward layer.
func (s shape) graph(edit func(g *model.Graph)) *model.Graph {
	g := &model.Graph{
		Arch: "tiny", Context: 400, Vocab: 37, Width: s.d,
		Embed: model.Embedding{Table: "table", Scale: 1},
		Ropes: []model.Rope{{Style: model.RopeHalf, Dim: s.dim, Theta: 100, Scaling: model.RopeScaling{Kind: model.ScaleNone}}},
		Norm:  s.newNorm("norm"),
		Head:  model.Head{Linear: s.linear("head", model.RoleHead, s.d, 37)},
	}
	for i := range 2 {
		p := fmt.Sprint(i, ".")
		gate := s.linear(p+"gate", model.RoleGate, s.d, s.inner)
		g.Blocks = append(g.Blocks, model.Block{
			AttnNorm: s.newNorm(p + "attn_norm"), FFNNorm: s.newNorm(p + "ffn_norm"),
			Attn: model.Attention{
				Heads: s.heads, KVHeads: s.kv, HeadDim: s.dim, Scale: 0.3,
				Q: s.linear(p+"q", model.RoleQ, s.d, s.heads*s.dim), K: s.linear(p+"k", model.RoleK, s.d, s.kv*s.dim),
				V: s.linear(p+"v", model.RoleV, s.d, s.kv*s.dim), O: s.linear(p+"o", model.RoleO, s.heads*s.dim, s.d),
			},
			FFN: &model.FFN{Act: model.SiLU, Gate: &gate, Up: s.linear(p+"up", model.RoleUp, s.d, s.inner), Down: s.linear(p+"down", model.RoleDown, s.inner, s.d)},
		})
	}
	edit(g)
	return g
}

// moe replaces the feed-forward layer of block i by a mixture.
func (s shape) moe(g *model.Graph, i int, experts, topK int64, normalize bool) {
	p := fmt.Sprint(i, ".x.")
	g.Blocks[i].FFN = nil
	router := s.linear(p+"router", model.RoleRouter, s.d, experts)
	g.Blocks[i].MoE = &model.MoE{
		Act: model.SiLU, Experts: experts, TopK: topK, Normalize: normalize, Router: router,
		Gate: s.linear(p+"gate", model.RoleXGate, s.d, s.inner), Up: s.linear(p+"up", model.RoleXUp, s.d, s.inner), Down: s.linear(p+"down", model.RoleXDown, s.inner, s.d),
	}
}

func tinies() []tiny {
	rms := shape{d: 24, heads: 4, kv: 2, dim: 10, inner: 33, norm: model.RMSNorm}
	layer := shape{d: 24, heads: 3, kv: 3, dim: 8, inner: 40, norm: model.LayerNorm, bias: true}
	both := func(g *model.Graph, f func(b *model.Block)) {
		for i := range g.Blocks {
			f(&g.Blocks[i])
		}
	}
	return []tiny{
		{"grouped queries", rms.graph(func(g *model.Graph) {})},
		{"one key-value head, window", shape{d: 20, heads: 5, kv: 1, dim: 6, inner: 17, norm: model.RMSNorm}.graph(func(g *model.Graph) {
			g.Blocks[0].Attn.Window = 1
			g.Blocks[1].Attn.Window = 70
		})},
		{"parallel, one norm, partial interleaved rotation", layer.graph(func(g *model.Graph) {
			g.Ropes[0] = model.Rope{Style: model.RopeInterleaved, Dim: 4, Theta: 50, Scaling: model.RopeScaling{Kind: model.ScaleLinear, Factor: 2}}
			both(g, func(b *model.Block) {
				b.Parallel, b.FFNNorm, b.FFN.Gate, b.FFN.Act = true, nil, nil, model.GELUTanh
			})
		})},
		{"parallel, two norms, post norms", layer.graph(func(g *model.Graph) {
			both(g, func(b *model.Block) {
				b.Parallel, b.FFN.Act = true, model.GELU
				b.AttnPostNorm, b.FFNPostNorm = layer.newNorm(b.Attn.Q.Weight+"ap"), layer.newNorm(b.Attn.Q.Weight+"fp")
			})
		})},
		{"learned positions, tied head, no rotation", layer.graph(func(g *model.Graph) {
			g.Ropes, g.Embed.Positions, g.Head.Weight = nil, "positions", "table"
			both(g, func(b *model.Block) { b.Attn.Rope, b.FFN.Gate, b.FFN.Act = -1, nil, model.ReLU })
		})},
		{"offsets, soft caps, post norms, embedding scale", rms.graph(func(g *model.Graph) {
			g.Embed.Scale, g.Head.Softcap, g.Norm.Offset = 4.5, 2, 1
			both(g, func(b *model.Block) {
				b.Attn.Softcap, b.FFN.Act, b.AttnNorm.Offset = 0.8, model.GELUTanh, 1
				b.AttnPostNorm, b.FFNPostNorm = rms.newNorm(b.Attn.Q.Weight+"ap"), rms.newNorm(b.Attn.Q.Weight+"fp")
			})
			g.Blocks[0].Attn.Window = 9
		})},
		{"query and key norms, two rotations", rms.graph(func(g *model.Graph) {
			g.Ropes = append(g.Ropes, model.Rope{Style: model.RopeHalf, Dim: 6, Theta: 1000, Scaling: model.RopeScaling{Kind: model.ScaleYarn, Factor: 4, Original: 16, BetaFast: 2, BetaSlow: 0.5, Attention: 1.2}})
			g.Blocks[1].Attn.Rope = 1
			both(g, func(b *model.Block) {
				b.Attn.QNorm, b.Attn.KNorm = rms.newNorm(b.Attn.Q.Weight+"n"), rms.newNorm(b.Attn.K.Weight+"n")
				b.FFN.Act = model.GELUQuick
			})
		})},
		{"mixtures", rms.graph(func(g *model.Graph) {
			rms.moe(g, 0, 5, 2, true)
			rms.moe(g, 1, 4, 3, false)
		})},
		{"mixture with biases beside a plain layer, parallel", layer.graph(func(g *model.Graph) {
			layer.moe(g, 1, 3, 1, false)
			both(g, func(b *model.Block) { b.Parallel = true })
		})},
		{"dynamic rotation", rms.graph(func(g *model.Graph) {
			g.Ropes[0].Scaling = model.RopeScaling{Kind: model.ScaleDynamic, Factor: 2, Original: 20}
		})},
		{"longrope", rms.graph(func(g *model.Graph) {
			g.Ropes[0].Scaling = model.RopeScaling{Kind: model.ScaleLongRope, Original: 20, Attention: 1.1,
				Short: []float32{1, 1.1, 1.2, 1.3, 1.4}, Long: []float32{1, 2, 4, 8, 16}}
		})},
	}
}

// fillWeights makes random weights for a graph, stored in the scheme named,
// and what the stored numbers are. Vectors are always float32.
func fillWeights(t testing.TB, g *model.Graph, schemeName string, seed uint64) (func(string) formats.Tensor, map[string][]float64) {
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
			if w.Role == model.RoleNorm || w.Role == model.RoleEmbed {
				v[i] = float32(rng.NormFloat64())
			}
		}
		name := schemeName
		if len(w.Shape) == 1 || w.Role == model.RoleNorm {
			name = "f32"
		}
		tensors[w.Name], values[w.Name] = store(t, w, name, v)
	}
	return func(name string) formats.Tensor { return tensors[name] }, values
}

// store packs v, and returns what a reader gets back.
func store(t testing.TB, w model.Weight, name string, v []float32) (formats.Tensor, []float64) {
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
func newTiny(t testing.TB, g *model.Graph, schemeName string, o Options) (*Executor, *reference) {
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
