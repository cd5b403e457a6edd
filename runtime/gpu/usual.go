package gpu

import (
	"fmt"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
	"github.com/nstf/nstf/kernels/hip"
)

// A usualShape is a model that many have: the numbers that kernels depend on.
type usualShape struct {
	name                              string
	width, heads, kvHeads, dim, inner int64
	vocab                             int64
	headNorms, biases                 bool // norms of queries and keys, biases of q, k and v
	tied                              bool
}

var usualShapes = []usualShape{
	{"TinyLlama 1.1B", 2048, 32, 4, 64, 5632, 32000, false, false, false},
	{"Llama 3.2 1B", 2048, 32, 8, 64, 8192, 128256, false, false, true},
	{"Llama 3.2 3B", 3072, 24, 8, 128, 8192, 128256, false, false, true},
	{"Llama 3.1 8B", 4096, 32, 8, 128, 14336, 128256, false, false, false},
	{"Llama 3.1 70B", 8192, 64, 8, 128, 28672, 128256, false, false, false},
	{"Mistral 7B", 4096, 32, 8, 128, 14336, 32768, false, false, false},
	{"Qwen2.5 7B", 3584, 28, 4, 128, 18944, 152064, false, true, false},
	{"Qwen2.5 14B", 5120, 40, 8, 128, 13824, 152064, false, true, false},
	{"Qwen3 0.6B", 1024, 16, 8, 128, 3072, 151936, true, false, true},
	{"Qwen3 4B", 2560, 32, 8, 128, 9728, 151936, true, false, true},
	{"Qwen3 8B", 4096, 32, 8, 128, 12288, 151936, true, false, false},
	{"Qwen3 14B", 5120, 40, 8, 128, 17408, 151936, true, false, false},
}

// A usualMix is the schemes of a usual quantization: of most matrices, of those
// that are given more bits (values, down projections), of table and head.
type usualMix struct{ most, more, head string }

var usualMixes = []usualMix{
	{"q4_k", "q6_k", "q6_k"}, {"q5_k", "q6_k", "q6_k"}, {"q6_k", "q6_k", "q6_k"},
	{"q4_0", "q4_0", "q6_k"}, {"q8_0", "q8_0", "q8_0"}, {"bf16", "bf16", "bf16"},
}

// UsualUnits lists the kernels that models of usual shapes need, in usual
// quantizations and at the default options.
func UsualUnits(t hip.Target) ([]hip.Unit, error) {
	units := &unitSet{seen: map[hip.Unit]bool{}}
	for i := range usualShapes {
		for _, mix := range usualMixes {
			g, tensors, err := usualShapes[i].graph(mix)
			if err != nil {
				return nil, err
			}
			list, err := Units(g, func(name string) formats.Tensor { return tensors[name] }, t, Options{})
			if err != nil {
				return nil, fmt.Errorf("%s in %s: %w", usualShapes[i].name, mix.most, err)
			}
			units.add(list...)
		}
	}
	return units.list, nil
}

// graph builds a model of the shape: two blocks, in the second of which what may
// be given more bits is. Its tensors have no bytes.
func (s *usualShape) graph(mix usualMix) (*graph.Graph, map[string]formats.Tensor, error) {
	tensors := map[string]formats.Tensor{}
	var failed error
	add := func(name, of string, shape ...int64) string {
		t, err := unread(name, of, shape)
		if err != nil && failed == nil {
			failed = err
		}
		tensors[name] = t
		return name
	}
	linear := func(name, of string, out, in int64, bias bool) graph.Linear {
		l := graph.Linear{Weight: add(name, of, out, in), In: in, Out: out, Input: name}
		if bias {
			l.Bias = add(name+".bias", "f32", out)
		}
		return l
	}
	norm := func(name string, n int64) *graph.Norm {
		return &graph.Norm{Kind: graph.RMSNorm, Weight: add(name, "f32", n), Eps: 1e-5}
	}
	g := &graph.Graph{Context: 8192, Vocab: s.vocab, Width: s.width,
		Embed: graph.Embedding{Table: add("table", mix.head, s.vocab, s.width), Scale: 1},
		Ropes: []graph.Rope{{Style: graph.RopeHalf, Dim: s.dim, Theta: 10000}},
		Norm:  norm("norm", s.width),
	}
	head := "table"
	if !s.tied {
		head = add("head", mix.head, s.vocab, s.width)
	}
	g.Head.Linear = graph.Linear{Weight: head, In: s.width, Out: s.vocab, Input: "head"}
	for i, more := range []string{mix.most, mix.more} {
		name := func(n string) string { return fmt.Sprintf("%d.%s", i, n) }
		b := graph.Block{AttnNorm: norm(name("attn_norm"), s.width), FFNNorm: norm(name("ffn_norm"), s.width)}
		k, v := linear(name("k"), mix.most, s.kvHeads*s.dim, s.width, s.biases), linear(name("v"), more, s.kvHeads*s.dim, s.width, s.biases)
		b.Attn = &graph.Attention{Heads: s.heads, KVHeads: s.kvHeads, HeadDim: s.dim, Scale: 1,
			Q: linear(name("q"), mix.most, s.heads*s.dim, s.width, s.biases), K: &k, V: &v, O: linear(name("o"), mix.most, s.width, s.heads*s.dim, false)}
		if s.headNorms {
			b.Attn.QNorm, b.Attn.KNorm = norm(name("q_norm"), s.dim), norm(name("k_norm"), s.dim)
		}
		gate := linear(name("gate"), mix.most, s.inner, s.width, false)
		b.FFN = &graph.FFN{Act: graph.SiLU, Gate: &gate, Up: linear(name("up"), mix.most, s.inner, s.width, false), Down: linear(name("down"), more, s.width, s.inner, false)}
		g.Blocks = append(g.Blocks, b)
	}
	return g, tensors, failed
}

// unread makes a tensor whose bytes nobody will ask for.
func unread(name, of string, shape []int64) (formats.Tensor, error) {
	t := formats.Tensor{Name: name, Shape: shape, Scheme: of}
	s, ok := scheme.ByName(of)
	if !ok {
		return t, fmt.Errorf("no scheme %q", of)
	}
	parts, err := s.Parts(shape, nil)
	for _, p := range parts {
		t.Parts = append(t.Parts, formats.Part{Name: p.Name, DType: p.DType, Shape: p.Shape, Data: tensor.NewBlob(nil, 0, p.Bytes)})
	}
	return t, err
}
