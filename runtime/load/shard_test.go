package load_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
	"github.com/nstf/nstf/runtime/load"
)

// model is a graph of one block, whose down is in blocks of 32, and its tensors, of which
// each number of a plain one is its place.
func model(heads, kv, inner, vocab int64) (*graph.Graph, func(string) formats.Tensor) {
	const dim, width = 8, 32
	linear := func(name string, in, out int64) graph.Linear { return graph.Linear{Weight: name, In: in, Out: out} }
	k, v := linear("k", width, kv*dim), linear("v", width, kv*dim)
	k.Bias = "kb"
	gate := linear("gate", width, inner)
	down := linear("down", inner, width)
	down.Bias = "db"
	g := &graph.Graph{Vocab: vocab, Width: width, Embed: graph.Embedding{Table: "table"}, Head: graph.Head{Linear: linear("table", width, vocab)}, Norm: &graph.Norm{Weight: "n"},
		Blocks: []graph.Block{{Attn: &graph.Attention{Heads: heads, KVHeads: kv, HeadDim: dim, Q: linear("q", width, heads*dim), K: &k, V: &v, O: linear("o", heads*dim, width)},
			FFN: &graph.FFN{Act: graph.SiLU, Gate: &gate, Up: linear("up", width, inner), Down: down}}}}
	shapes := map[string][]int64{"q": {heads * dim, width}, "k": {kv * dim, width}, "v": {kv * dim, width}, "kb": {kv * dim}, "o": {width, heads * dim},
		"gate": {inner, width}, "up": {inner, width}, "down": {width, inner}, "db": {width}, "table": {vocab, width}, "n": {width}}
	return g, func(name string) formats.Tensor {
		shape, how := shapes[name], "f32"
		n, err := tensor.Elements(shape)
		if err != nil {
			panic(err)
		}
		if name == "down" {
			how = "q8_0"
		}
		s, _ := scheme.ByName(how)
		size, err := s.Size(shape, nil)
		if err != nil {
			panic(err)
		}
		raw := make([]byte, size)
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(i)
		}
		if how == "f32" {
			if err := tensor.FromFloat32(raw, x, tensor.F32); err != nil {
				panic(err)
			}
		}
		t, err := scheme.New(name, s, shape, nil, tensor.BytesBlob(raw))
		if err != nil {
			panic(err)
		}
		return t
	}
}

// Shards have neighbouring heads, rows and columns, which are the whole together; the
// embedding is whole, biases behind a sum are one rank's.
func TestCut(t *testing.T) {
	const heads, kv, inner, vocab, ranks = 10, 5, 96, 22, 2 // of which few are divided evenly
	g, source := model(heads, kv, inner, vocab)
	var rows, columns, logits, biases int64
	for rank := range ranks {
		s, err := load.Cut(g, source, rank, ranks)
		if err != nil {
			t.Fatal(err)
		}
		b := &s.Graph.Blocks[0]
		a, f := b.Attn, b.FFN
		if a.Heads != 2*a.KVHeads || a.Q.Out != a.Heads*8 || a.K.Out != a.KVHeads*8 || a.O.In != a.Q.Out || f.Down.In != f.Up.Out || f.Gate.Out != f.Up.Out {
			t.Errorf("rank %d: %+v, %+v", rank, a, f)
		}
		for name, shape := range map[string][]int64{"q": {a.Q.Out, 32}, "o": {32, a.O.In}, "kb": {a.K.Out}, "down": {32, f.Down.In}, "gate": {f.Up.Out, 32}, "table": {vocab, 32},
			s.Graph.Head.Weight: {s.Graph.Head.Out, 32}} {
			if got := s.Tensor(name); !slices.Equal(got.Shape, shape) {
				t.Errorf("rank %d: %s is %v, not %v", rank, name, got.Shape, shape)
			}
		}
		o, x := s.Tensor("o"), make([]float32, 32*a.O.In)
		if err := scheme.DecodeRows(x, &o, 0, 32); err != nil {
			t.Fatal(err)
		}
		for i, v := range x {
			if at := int64(i); v != float32(at/a.O.In*heads*8+columns+at%a.O.In) {
				t.Fatalf("rank %d: number %d of o is %v", rank, i, v)
			}
		}
		head, y := s.Tensor(s.Graph.Head.Weight), make([]float32, 32)
		if err := scheme.DecodeRows(y, &head, 0, 1); err != nil || y[0] != float32(32*logits) || logits != int64(s.Units*rank/ranks*s.Unit) {
			t.Errorf("rank %d: its logits begin at %v, not %d; %v", rank, y[0]/32, logits, err)
		}
		if f.Down.Bias != "" {
			biases++
		}
		rows, columns, logits = rows+f.Up.Out, columns+a.O.In, logits+s.Graph.Head.Out
	}
	if rows != inner || columns != heads*8 || logits != vocab || biases != 1 {
		t.Errorf("together %d rows, %d columns, %d logits, %d biases", rows, columns, logits, biases)
	}
	if g.Blocks[0].Attn.Heads != heads || g.Head.Weight != "table" {
		t.Error("the graph has changed")
	}
}

// What cannot be cut is refused by name, and says what to do instead.
func TestCutRefuses(t *testing.T) {
	change := func(f func(g *graph.Graph)) (*graph.Graph, func(string) formats.Tensor) {
		g, source := model(4, 2, 96, 22)
		f(g)
		return g, source
	}
	for want, f := range map[string]func(g *graph.Graph){
		"a mixture of experts":         func(g *graph.Graph) { g.Blocks[0].MoE = &graph.MoE{} },
		"recurrent blocks":             func(g *graph.Graph) { g.Blocks[0].Delta = &graph.Delta{} },
		"attention over latents":       func(g *graph.Graph) { g.Blocks[0].Latent = &graph.Latent{} },
		"norms of all heads":           func(g *graph.Graph) { g.Blocks[0].Attn.JointNorms = true },
		"a tensor that is read in two": func(g *graph.Graph) { g.Blocks[0].FFN.Gate.Weight = "o" },
	} {
		g, source := change(f)
		_, err := load.Cut(g, source, 0, 2)
		var unsupported *formats.UnsupportedError
		if !errors.As(err, &unsupported) || !strings.Contains(err.Error(), want) || !strings.Contains(unsupported.Hint, "--split layers") {
			t.Errorf("%s: %v", want, err)
		}
	}
	g, source := model(4, 2, 96, 22)
	if _, err := load.Cut(g, source, 0, 3); err == nil || !strings.Contains(err.Error(), "2 key-value heads on 3 GPUs") {
		t.Errorf("%v", err)
	}
	g, source = model(4, 2, 32, 22)
	if _, err := load.Cut(g, source, 0, 2); err == nil || !strings.Contains(err.Error(), "32 columns in blocks of 32 on 2 GPUs") {
		t.Errorf("%v", err)
	}
}
