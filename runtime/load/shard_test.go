package load_test

import (
	"errors"
	"iter"
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

// Of fewer key-value heads than ranks several have the same one, with other query heads of it.
func TestCutWithinHeads(t *testing.T) {
	g, source := model(4, 2, 96, 22)
	for rank, want := range [][4]int64{{0, 1, 0, 1}, {1, 1, 0, 1}, {2, 2, 1, 1}} { // first and number of query and key-value heads
		s, err := load.Cut(g, source, rank, 3)
		if err != nil {
			t.Fatal(err)
		}
		a := s.Graph.Blocks[0].Attn
		if got := [4]int64{want[0], a.Heads, want[2], a.KVHeads}; got != want || a.Q.Out != 8*want[1] || a.K.Out != 8 || a.O.In != a.Q.Out {
			t.Errorf("rank %d: %+v", rank, a)
		}
		for name, first := range map[string]int64{"q": want[0] * 8 * 32, "k": want[2] * 8 * 32, "o": want[0] * 8} {
			x, y := s.Tensor(name), make([]float32, max(32, a.O.In))
			_, k := x.Rows()
			if err := scheme.DecodeRows(y[:k], &x, 0, 1); err != nil || y[0] != float32(first) {
				t.Errorf("rank %d: %s begins at %v, not %d; %v", rank, name, y[0], first, err)
			}
		}
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
		"1 heads of one of 1 groups": func(g *graph.Graph) { g.Blocks[0] = mamba(1, 1) },
		"a layer norm of all heads": func(g *graph.Graph) {
			g.Blocks[0].Attn.JointNorms, g.Blocks[0].Attn.QNorm = true, &graph.Norm{Kind: graph.LayerNorm}
		},
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
	g.Blocks[0].Attn.KVHeads, g.Blocks[0].Attn.Heads = 2, 2
	if _, err := load.Cut(g, source, 0, 3); err == nil || !strings.Contains(err.Error(), "1 query heads of one of 2 key-value heads on 2 GPUs") {
		t.Errorf("%v", err)
	}
}

// Of a layer that has fewer blocks than there are ranks some have none, others in each block.
func TestCutFewBlocks(t *testing.T) {
	for at := range 2 {
		g, source := model(4, 2, 32, 22)
		g.Blocks = append(make([]graph.Block, at), g.Blocks...)
		for rank := range 2 {
			s, err := load.Cut(g, source, rank, 2)
			if err != nil {
				t.Fatal(err)
			}
			f, mine := s.Graph.Blocks[at].FFN, (rank+at)%2 == 1
			up, down := s.Tensor("up"), s.Tensor("down")
			if (f.Up.Out == 32) != mine || (f.Down.In == 32) != mine || (f.Down.Bias == "db") != mine || (up.Size() > 0) != mine || (down.Size() > 0) != mine {
				t.Errorf("rank %d of block %d: %+v, %d and %d bytes", rank, at, f, up.Size(), down.Size())
			}
		}
	}
}

// mamba is a block with a state space of so many groups of heads.
func mamba(groups, each int64) graph.Block {
	m := &graph.Mamba{Heads: each * groups, HeadDim: 4, Groups: groups, State: 3, Kernel: 2, Conv: "conv", ConvBias: "conv bias", Decay: "decay", DTBias: "dt bias", Skip: "skip",
		Norm: &graph.Norm{Weight: "norm"}}
	v := m.Values()
	m.Z, m.XBC, m.DT = graph.Linear{Weight: "z", In: 32, Out: v}, graph.Linear{Weight: "xbc", In: 32, Out: m.Channels()}, graph.Linear{Weight: "dt", In: 32, Out: m.Heads}
	m.Out = graph.Linear{Weight: "out", In: v, Out: 32}
	return graph.Block{Mamba: m}
}

// plain is tensors of a block's shapes; each number of one is its row, or of what is listed
// its column.
func plain(t *testing.T, b *graph.Block, byColumn ...string) func(string) formats.Tensor {
	t.Helper()
	all := map[string]formats.Tensor{}
	f32, _ := scheme.ByName("f32")
	add := func(name string, shape ...int64) {
		if name == "" {
			return
		}
		n, err := tensor.Elements(shape)
		if err != nil {
			t.Fatal(err)
		}
		x, raw, k := make([]float32, n), make([]byte, 4*n), int64(1)
		if len(shape) > 1 {
			k = shape[len(shape)-1]
		}
		for i := range x {
			if x[i] = float32(int64(i) / k); slices.Contains(byColumn, name) {
				x[i] = float32(int64(i) % k)
			}
		}
		if err := tensor.FromFloat32(raw, x, tensor.F32); err != nil {
			t.Fatal(err)
		}
		if all[name], err = scheme.New(name, f32, shape, nil, tensor.BytesBlob(raw)); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range b.Parts(32) {
		switch {
		case p.Linear != nil && p.Experts > 0:
			add(p.Linear.Weight, p.Experts, p.Out, p.In)
			if p.Linear.Bias != "" { // a number's column is its row of the stack
				add(p.Linear.Bias, p.Experts, p.Out)
			}
		case p.Linear != nil:
			add(p.Linear.Weight, p.Out, p.In)
			add(p.Linear.Bias, p.Out)
		case p.Norm != nil:
			add(p.Norm.Weight, p.Shape()...)
		default:
			add(p.Vector, p.Shape()...)
		}
	}
	add("table", 22, 32)
	return func(name string) formats.Tensor { return all[name] }
}

// Recurrent mixers are cut with what their heads read: tensors of one order keep it, and
// what ranks have is the whole together.
func TestCutMixers(t *testing.T) {
	linear := func(name string, in, out int64) graph.Linear { return graph.Linear{Weight: name, In: in, Out: out} }
	delta := func(tiled bool) graph.Block {
		d := &graph.Delta{Heads: 6, KeyHeads: 3, KeyDim: 2, ValueDim: 4, Kernel: 2, Tiled: tiled, Conv: "conv", Decay: "decay", DTBias: "dt bias", Norm: &graph.Norm{Weight: "norm"}}
		d.QKV, d.Z, d.Beta, d.Alpha, d.Out = linear("qkv", 32, d.Channels()), linear("z", 32, 24), linear("beta", 32, 6), linear("alpha", 32, 6), linear("out", 24, 32)
		return graph.Block{Delta: d}
	}
	channels := delta(false)
	za, alphaA := linear("za", 32, 3), linear("alphaa", 32, 5)
	channels.Delta.ByChannel, channels.Delta.ZA, channels.Delta.AlphaA = true, &za, &alphaA
	channels.Delta.Z, channels.Delta.Alpha = linear("z", 3, 24), linear("alpha", 5, 12)
	latent := graph.Block{Latent: &graph.Latent{Heads: 3, NopeDim: 2, RopeDim: 1, ValueDim: 2, Rank: 3, Rope: -1, KVNorm: &graph.Norm{Weight: "norm"},
		KVA: linear("kva", 32, 4), Q: linear("q", 32, 9), KB: linear("kb", 2, 3), VB: linear("vb", 3, 2), O: linear("out", 6, 32)}}
	short := graph.Block{ShortConv: &graph.ShortConv{Kernel: 2, Conv: "conv", ConvBias: "conv bias", In: linear("in", 32, 15), Out: linear("out", 5, 32)}}
	for _, c := range []struct {
		name  string
		block graph.Block
		want  [2]map[string][]float32 // first numbers of rows, of out of columns
	}{
		{"delta", delta(false), [2]map[string][]float32{
			{"qkv": {0, 1, 6, 7, 12, 13, 14, 15, 16, 17, 18, 19}, "out": {0, 1, 2, 3, 4, 5, 6, 7}, "alpha": {0, 1}},
			{"qkv": {2, 3, 4, 5, 8, 9, 10, 11, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35}, "decay": {2, 3, 4, 5}}}},
		{"delta, tiled", delta(true), [2]map[string][]float32{
			{"qkv": {0, 1, 6, 7, 12, 13, 14, 15, 24, 25, 26, 27}, "out": {0, 1, 2, 3, 12, 13, 14, 15}, "beta": {0, 3}},
			{"conv": {2, 3, 4, 5, 8, 9, 10, 11, 16, 17, 18, 19, 20, 21, 22, 23, 28, 29, 30, 31, 32, 33, 34, 35}, "dt bias": {1, 2, 4, 5}}}},
		{"delta, by channel", channels, [2]map[string][]float32{
			{"za": {0, 1, 2}, "alphaa": {0, 1, 2, 3, 4}, "alpha": {0, 1, 2, 3}, "dt bias": {0, 1, 2, 3}, "beta": {0, 1}},
			{"z": {8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23}, "alpha": {4, 5, 6, 7, 8, 9, 10, 11}, "dt bias": {4, 5, 6, 7, 8, 9, 10, 11}, "decay": {2, 3, 4, 5}}}},
		{"mamba", mamba(2, 2), [2]map[string][]float32{
			{"xbc": {0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 22, 23, 24}, "norm": {0, 1, 2, 3, 4, 5, 6, 7}, "dt": {0, 1}},
			{"conv bias": {8, 9, 10, 11, 12, 13, 14, 15, 19, 20, 21, 25, 26, 27}, "out": {8, 9, 10, 11, 12, 13, 14, 15}, "skip": {2, 3}}}},
		{"mamba, one group", mamba(1, 3), [2]map[string][]float32{
			{"xbc": {0, 1, 2, 3, 12, 13, 14, 15, 16, 17}, "norm": {0, 1, 2, 3}, "dt": {0}},
			{"conv": {4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17}, "out": {4, 5, 6, 7, 8, 9, 10, 11}, "decay": {1, 2}}}},
		{"short convolution", short, [2]map[string][]float32{{"in": {0, 1, 5, 6, 10, 11}, "out": {0, 1}}, {"in": {2, 3, 4, 7, 8, 9, 12, 13, 14}, "conv": {2, 3, 4}}}},
		{"latents", latent, [2]map[string][]float32{{"kb": {0, 1, 2}, "vb": {0, 1}, "q": {0, 1, 2}, "kva": {0, 1, 2, 3}}, {"kb": {3, 4, 5, 6, 7, 8}, "vb": {2, 3, 4, 5}, "out": {2, 3, 4, 5}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := &graph.Graph{Vocab: 22, Width: 32, Embed: graph.Embedding{Table: "table"}, Head: graph.Head{Linear: linear("table", 32, 22)}, Blocks: []graph.Block{c.block}}
			source, memory := plain(t, &c.block, "out"), int64(0)
			for rank := range 2 {
				s, err := load.Cut(g, source, rank, 2)
				if err != nil {
					t.Fatal(err)
				}
				b := &s.Graph.Blocks[0]
				memory += b.Memory()
				for _, p := range b.Parts(32) {
					if p.Linear != nil && p.Experts == 0 {
						if got := s.Tensor(p.Linear.Weight); !slices.Equal(got.Shape, []int64{p.Out, p.In}) {
							t.Errorf("rank %d: %s is %v, the graph says %d by %d", rank, p.Linear.Weight, got.Shape, p.Out, p.In)
						}
					}
				}
				for name, want := range c.want[rank] {
					x := s.Tensor(name)
					n, step := x.Rows()
					switch {
					case name == "out":
						n, step = 1, 1
					case len(x.Shape) == 1:
						step = 1
					}
					_, k := x.Rows()
					all, got := make([]float32, n*k), []float32(nil)
					if err := scheme.DecodeRows(all, &x, 0, n); err != nil {
						t.Fatal(err)
					}
					for i := int64(0); i < n*k; i += step {
						got = append(got, all[i])
					}
					if !slices.Equal(got, want) {
						t.Errorf("rank %d: %s has %v, not %v", rank, name, got, want)
					}
				}
			}
			if m := c.block.Mamba; m != nil && m.Groups == 1 {
				memory -= (m.Kernel - 1) * 2 * m.State // of b and c, which both have
			}
			if memory != c.block.Memory() {
				t.Errorf("together %d numbers are remembered, of %d", memory, c.block.Memory())
			}
		})
	}
}

// Experts are cut as layers are, each by itself; routers are whole, and what is added behind
// sums is one rank's. Of uneven shares the larger ones go round.
func TestCutMixtures(t *testing.T) {
	linear := func(name string, in, out int64) graph.Linear {
		return graph.Linear{Weight: name, In: in, Out: out, Bias: name + " bias"}
	}
	gate, latentDown, latentUp := linear("gate", 4, 5), linear("latent down", 32, 4), linear("latent up", 4, 32)
	block := graph.Block{MoE: &graph.MoE{Act: graph.SiLU, Experts: 3, TopK: 2, SelectBias: "select", Router: linear("router", 32, 3), Gate: &gate, Up: linear("up", 4, 5), Down: linear("down", 5, 4),
		LatentDown: &latentDown, LatentUp: &latentUp, Shared: &graph.FFN{Act: graph.SiLU, Up: linear("shared up", 32, 7), Down: linear("shared down", 7, 32)}}}
	g := &graph.Graph{Vocab: 22, Width: 32, Embed: graph.Embedding{Table: "table"}, Head: graph.Head{Linear: graph.Linear{Weight: "table", In: 32, Out: 22}}, Blocks: []graph.Block{block, block}}
	source := plain(t, &block, "down", "gate bias")
	want := [2]map[string][]float32{
		{"gate": {0, 1, 5, 6, 10, 11}, "up": {0, 1, 5, 6, 10, 11}, "gate bias": {0, 1}, "down": {0, 1}, "router": {0, 1, 2}, "select": {0, 1, 2}, "shared up": {0, 1, 2}, "latent up": slices.Collect(numbers(32))},
		{"gate": {2, 3, 4, 7, 8, 9, 12, 13, 14}, "gate bias": {2, 3, 4}, "down": {2, 3, 4}, "shared up": {3, 4, 5, 6}, "latent down": {0, 1, 2, 3}},
	}
	one := *g
	one.Blocks = g.Blocks[:1]
	for rank := range 2 {
		s, err := load.Cut(&one, source, rank, 2)
		if err != nil {
			t.Fatal(err)
		}
		b := &s.Graph.Blocks[0]
		for _, p := range b.Parts(32) {
			l := p.Linear
			if l == nil {
				continue
			}
			shape := []int64{p.Out, p.In}
			if p.Experts > 0 {
				shape = append([]int64{p.Experts}, shape...)
			}
			if got := s.Tensor(l.Weight); !slices.Equal(got.Shape, shape) {
				t.Errorf("rank %d: %s is %v, the graph says %v", rank, l.Weight, got.Shape, shape)
			}
			if behind := l == &b.MoE.Down || l == b.MoE.LatentUp || l == &b.MoE.Shared.Down; (l.Bias == "") != (behind && rank == 0) {
				t.Errorf("rank %d: the bias of %s is %q", rank, l.Weight, l.Bias)
			}
		}
		for name, want := range want[rank] {
			x := s.Tensor(name)
			n, k := x.Rows()
			all, got := make([]float32, n*k), []float32(nil)
			if err := scheme.DecodeRows(all, &x, 0, n); err != nil {
				t.Fatal(err)
			}
			step := k
			if n == 1 || name == "down" || name == "gate bias" {
				all, step = all[:k], 1
			}
			for i := int64(0); i < int64(len(all)); i += step {
				got = append(got, all[i])
			}
			if !slices.Equal(got, want) {
				t.Errorf("rank %d: %s has %v, not %v", rank, name, got, want)
			}
		}
	}
	a, _ := load.Cut(&one, source, 0, 2)
	g.Blocks = g.Blocks[:0:0]
	g.Blocks = append(g.Blocks, graph.Block{}, block)
	b, err := load.Cut(g, source, 0, 2)
	if err != nil || a.Graph.Blocks[0].MoE.Up.Out != 2 || b.Graph.Blocks[1].MoE.Up.Out != 3 {
		t.Errorf("rank 0 has %d of 5 of the first block, and of the second: %+v, %v", a.Graph.Blocks[0].MoE.Up.Out, b.Graph.Blocks[1].MoE.Up, err)
	}
	if block.MoE.Up.Out != 5 || block.MoE.LatentUp.Bias == "" {
		t.Error("the graph has changed")
	}
}

// numbers are 0 to n-1.
func numbers(n int) iter.Seq[float32] {
	return func(yield func(float32) bool) {
		for i := range n {
			if !yield(float32(i)) {
				return
			}
		}
	}
}
