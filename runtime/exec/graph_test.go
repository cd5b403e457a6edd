package exec

import (
	"errors"
	"math"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/tensor"
)

// Graphs that lie are refused, with the place.
func TestMalformedGraphs(t *testing.T) {
	processorOnly(t, "a check before any device")
	rms := shape{d: 8, heads: 2, kv: 1, dim: 4, inner: 6, norm: graph.RMSNorm}
	cases := []struct {
		name        string
		edit        func(g *graph.Graph)
		unsupported bool
	}{
		{"no blocks", func(g *graph.Graph) { g.Blocks = nil }, false},
		{"vocab", func(g *graph.Graph) { g.Vocab = 0 }, false},
		{"table of another shape", func(g *graph.Graph) { g.Embed.Table = "0.attn_norm" }, false},
		{"no table", func(g *graph.Graph) { g.Embed.Table = "" }, false},
		{"no norm", func(g *graph.Graph) { g.Norm = nil }, false},
		{"norm of another width", func(g *graph.Graph) { g.Norm.Weight = "0.up" }, false},
		{"norm kind", func(g *graph.Graph) { g.Norm.Kind = "batch" }, true},
		{"bias on rms", func(g *graph.Graph) { g.Norm.Bias = "b" }, true},
		{"norm with a scale that is no number", func(g *graph.Graph) { g.Blocks[0].FFNNorm.Scale = float32(math.Inf(1)) }, false},
		{"no keys", func(g *graph.Graph) { g.Blocks[0].Attn.K = nil }, false},
		{"keys of a later block", func(g *graph.Graph) { share(g, 0, 1) }, false},
		{"per-layer input without embeddings", func(g *graph.Graph) { rms.perLayer(g, 3); g.PerLayer = nil }, false},
		{"no ffn norm", func(g *graph.Graph) { g.Blocks[0].FFNNorm = nil }, false},
		{"no ffn", func(g *graph.Graph) { g.Blocks[0].FFN = nil }, false},
		{"activation", func(g *graph.Graph) { g.Blocks[1].FFN.Act = "swosh" }, true},
		{"heads", func(g *graph.Graph) { g.Blocks[0].Attn.Heads = 3 }, false},
		{"kv heads", func(g *graph.Graph) { g.Blocks[0].Attn.KVHeads = 0 }, false},
		{"huge head", func(g *graph.Graph) { g.Blocks[0].Attn.HeadDim = 1 << 62 }, false},
		{"window", func(g *graph.Graph) { g.Blocks[0].Attn.Window = -1 }, false},
		{"rope index", func(g *graph.Graph) { g.Blocks[0].Attn.Rope = 1 }, false},
		{"rope dim", func(g *graph.Graph) { g.Ropes[0].Dim = 6 }, false},
		{"odd rope dim", func(g *graph.Graph) { g.Ropes[0].Dim = 3 }, false},
		{"rope style", func(g *graph.Graph) { g.Ropes[0].Style = "spiral" }, true},
		{"rope scaling", func(g *graph.Graph) { g.Ropes[0].Scaling.Kind = "warp" }, true},
		{"longrope without factors", func(g *graph.Graph) { g.Ropes[0].Scaling.Kind = graph.ScaleLongRope }, false},
		{"linear between other sizes", func(g *graph.Graph) { g.Blocks[0].Attn.O.Out = 9 }, false},
		{"two linears in one tensor", func(g *graph.Graph) { g.Blocks[0].Attn.K.Weight = "0.q" }, false},
		{"too many experts", func(g *graph.Graph) { rms.moe(g, 0, 2, 3, false) }, false},
		{"expert that is no stack", func(g *graph.Graph) { rms.moe(g, 0, 2, 1, false); g.Blocks[0].MoE.Up.Role = graph.RoleUp }, false},
	}
	for _, c := range cases {
		g := rms.graph(c.edit)
		source := func(name string) formats.Tensor {
			for _, w := range g.Weights() {
				if w.Name == name {
					n, err := tensor.Elements(w.Shape)
					if err != nil || n > 1e6 {
						t.Fatalf("%s: weight %s of shape %v was asked for", c.name, name, w.Shape)
					}
					x, _ := store(t, w, "f32", make([]float32, n))
					return x
				}
			}
			panic("no tensor " + name)
		}
		_, err := newExecutor("tiny.file", g, source, Options{Threads: 1})
		var f *formats.FormatError
		var u *formats.UnsupportedError
		switch {
		case c.unsupported && (!errors.As(err, &u) || u.File != "tiny.file"),
			!c.unsupported && (!errors.As(err, &f) || f.File != "tiny.file"):
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
