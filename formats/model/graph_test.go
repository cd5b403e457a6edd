package model

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
)

// small returns a graph with every kind of part.
func small(t *testing.T) *Graph {
	t.Helper()
	d := newDecoder("test")
	d.vocab, d.width, d.context, d.layers, d.heads, d.kvHeads, d.headDim, d.inner = 32, 16, 64, 2, 4, 2, 4, 24
	d.eps, d.postNorms, d.qkNorm, d.positions = 1e-5, true, true, true
	d.ropes = []Rope{{Style: RopeHalf, Dim: 4, Theta: 1e4, Scaling: RopeScaling{Kind: ScaleNone}}}
	d.moe = moeParams{experts: 4, topK: 2, inner: 8, sparse: func(layer int) bool { return layer == 1 }}
	g, err := d.graph()
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestGraphSurvivesJSON(t *testing.T) {
	g := small(t)
	p, err := json.Marshal(g)
	if err != nil {
		t.Fatal(err)
	}
	back, err := ParseGraph(p)
	if err != nil {
		t.Fatal(err)
	}
	again, err := json.Marshal(back)
	if err != nil {
		t.Fatal(err)
	}
	if string(p) != string(again) {
		t.Errorf("%s\nbecame\n%s", p, again)
	}
}

func TestGraphsThatNoRuntimeCanRely(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(g *Graph)
		says   string
	}{
		{"no width", func(g *Graph) { g.Width = 0 }, "width"},
		{"width beyond reason", func(g *Graph) { g.Width = 1 << 40 }, "width"},
		{"no table", func(g *Graph) { g.Embed.Table = "" }, "embed.table"},
		{"scale that is no number", func(g *Graph) { g.Embed.Scale = float32(math.NaN()) }, "embed.scale"},
		{"no norm", func(g *Graph) { g.Blocks[0].FFNNorm = nil }, "ffn_norm"},
		{"norm of unknown kind", func(g *Graph) { g.Norm.Kind = "batch" }, "batch"},
		{"epsilon", func(g *Graph) { g.Norm.Eps = 0 }, "eps"},
		{"heads", func(g *Graph) { g.Blocks[0].Attn.Heads = 3 }, "multiple"},
		{"no heads", func(g *Graph) { g.Blocks[0].Attn.KVHeads = 0 }, "kv_heads"},
		{"rope out of range", func(g *Graph) { g.Blocks[0].Attn.Rope = 7 }, "attn.rope"},
		{"rope below range", func(g *Graph) { g.Blocks[0].Attn.Rope = -2 }, "attn.rope"},
		{"rope wider than the head", func(g *Graph) { g.Ropes[0].Dim = 8 }, "rotates"},
		{"rope style", func(g *Graph) { g.Ropes[0].Style = "spiral" }, "spiral"},
		{"rope scaling", func(g *Graph) { g.Ropes[0].Scaling.Kind = "ntk" }, "ntk"},
		{"factors missing", func(g *Graph) { g.Ropes[0].Scaling.Kind = ScaleFactors }, "factors"},
		{"negative window", func(g *Graph) { g.Blocks[0].Attn.Window = -1 }, "window"},
		{"linear of other size", func(g *Graph) { g.Blocks[0].Attn.Q.Out = 8 }, "attn.q"},
		{"down of other size", func(g *Graph) { g.Blocks[0].FFN.Down.In = 8 }, "ffn.down"},
		{"activation", func(g *Graph) { g.Blocks[0].FFN.Act = "mish" }, "mish"},
		{"both layers", func(g *Graph) { g.Blocks[0].MoE = g.Blocks[1].MoE }, "either"},
		{"neither layer", func(g *Graph) { g.Blocks[0].FFN = nil }, "either"},
		{"more experts used than there are", func(g *Graph) { g.Blocks[1].MoE.TopK = 5 }, "top_k"},
		{"head of other size", func(g *Graph) { g.Head.Out = 31 }, "head"},
	} {
		g := small(t)
		c.change(g)
		if err := g.Check(); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: error %v does not say %q", c.name, err, c.says)
		}
	}
	if _, err := ParseGraph([]byte(`{"arch":"x","novel_operation":1}`)); err == nil || !strings.Contains(err.Error(), "novel_operation") {
		t.Errorf("an unknown key: %v", err)
	}
}

func TestWeightsAreListedOnce(t *testing.T) {
	g := small(t)
	g.Head.Weight = g.Embed.Table
	seen := map[string]bool{}
	for _, w := range g.Weights() {
		if seen[w.Name] {
			t.Errorf("%s is listed twice", w.Name)
		}
		seen[w.Name] = true
		if _, block, _ := split(w.Name); block != w.Block {
			t.Errorf("%s is said to be in block %d", w.Name, w.Block)
		}
	}
	if !g.Tied() || seen["head.weight"] || !seen["blocks.1.moe.gate.weight"] || !seen["embed.positions.weight"] {
		t.Errorf("weights: %v", seen)
	}
}

func FuzzGraph(f *testing.F) {
	f.Add([]byte(`{"arch":"x","context":8,"vocab":4,"width":2}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		g, err := ParseGraph(data)
		if err != nil {
			return
		}
		g.Weights()
		for i := range g.Ropes {
			if len(g.Ropes[i].Scaling.Short) < 1<<12 && g.Ropes[i].Dim < 1<<12 {
				g.Ropes[i].Frequencies(9000)
			}
		}
	})
}
