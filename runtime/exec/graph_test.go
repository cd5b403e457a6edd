package exec

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/tensor"
	"github.com/nstf/nstf/runtime/device"
)

// The hook sees every linear once per pass, with all rows.
func TestHook(t *testing.T) {
	processorOnly(t, "calibration")
	for _, c := range tinies() {
		seen := map[*model.Linear]int{}
		var first []float32
		hook := func(in device.Input) {
			if len(in.X) != in.T*int(in.Linear.In) {
				t.Errorf("%s: %d numbers for %d rows of %d", in.Linear.Weight, len(in.X), in.T, in.Linear.In)
			}
			if in.Linear == &c.graph.Blocks[0].Attn.Q {
				first = slices.Clone(in.X)
			}
			if (in.Expert >= 0) != (in.Block >= 0 && c.graph.Blocks[in.Block].MoE != nil && in.Linear.Role != model.RoleRouter && in.Linear.Role[:4] == "moe_") {
				t.Errorf("%s of block %d is said to be expert %d's", in.Linear.Weight, in.Block, in.Expert)
			}
			seen[in.Linear] += in.T
		}
		e, ref := newTiny(t, c.graph, "f32", Options{Threads: 2, Hook: hook})
		ids := tinyIDs(12)
		if _, err := sequence(t, e).PrefillLast(context.Background(), ids); err != nil {
			t.Fatal(err)
		}
		for i := range c.graph.Blocks {
			for _, l := range c.graph.Blocks[i].Linears() {
				want := len(ids)
				if m := c.graph.Blocks[i].MoE; m != nil && (l == &m.Gate || l == &m.Up || l == &m.Down) {
					want *= int(m.TopK)
				}
				if seen[l] != want {
					t.Errorf("%s: %s was seen with %d rows, not %d", c.name, l.Weight, seen[l], want)
				}
			}
		}
		if seen[&c.graph.Head.Linear] != 1 {
			t.Errorf("%s: the head was seen with %d rows", c.name, seen[&c.graph.Head.Linear])
		}
		d := int(c.graph.Width)
		x := make([]float64, d)
		for i := range x {
			x[i] = ref.weights["table"][int(ids[0])*d+i] * float64(c.graph.Embed.Scale)
			if c.graph.Embed.Positions != "" {
				x[i] += ref.weights["positions"][i]
			}
		}
		checkLogits(t, c.name+": first input", [][]float32{first[:d]}, toFloat32([][]float64{ref.norm(c.graph.Blocks[0].AttnNorm, x)}), 1e-6)
	}
}

// Graphs that lie are refused, with the place.
func TestMalformedGraphs(t *testing.T) {
	processorOnly(t, "a check before any device")
	rms := shape{d: 8, heads: 2, kv: 1, dim: 4, inner: 6, norm: model.RMSNorm}
	cases := []struct {
		name        string
		edit        func(g *model.Graph)
		unsupported bool
	}{
		{"no blocks", func(g *model.Graph) { g.Blocks = nil }, false},
		{"vocab", func(g *model.Graph) { g.Vocab = 0 }, false},
		{"table of another shape", func(g *model.Graph) { g.Embed.Table = "0.attn_norm" }, false},
		{"no table", func(g *model.Graph) { g.Embed.Table = "" }, false},
		{"no norm", func(g *model.Graph) { g.Norm = nil }, false},
		{"norm of another width", func(g *model.Graph) { g.Norm.Weight = "0.up" }, false},
		{"norm kind", func(g *model.Graph) { g.Norm.Kind = "batch" }, true},
		{"bias on rms", func(g *model.Graph) { g.Norm.Bias = "b" }, true},
		{"ffn norm without a name", func(g *model.Graph) { g.Blocks[0].FFNNorm.Weight = "" }, false},
		{"post norm without a name", func(g *model.Graph) { g.Blocks[0].FFNPostNorm = &model.Norm{Kind: model.RMSNorm} }, false},
		{"query norm without a name", func(g *model.Graph) { g.Blocks[0].Attn.QNorm = &model.Norm{Kind: model.RMSNorm} }, false},
		{"no ffn norm", func(g *model.Graph) { g.Blocks[0].FFNNorm = nil }, false},
		{"no ffn", func(g *model.Graph) { g.Blocks[0].FFN = nil }, false},
		{"activation", func(g *model.Graph) { g.Blocks[1].FFN.Act = "swosh" }, true},
		{"heads", func(g *model.Graph) { g.Blocks[0].Attn.Heads = 3 }, false},
		{"kv heads", func(g *model.Graph) { g.Blocks[0].Attn.KVHeads = 0 }, false},
		{"huge head", func(g *model.Graph) { g.Blocks[0].Attn.HeadDim = 1 << 62 }, false},
		{"window", func(g *model.Graph) { g.Blocks[0].Attn.Window = -1 }, false},
		{"rope index", func(g *model.Graph) { g.Blocks[0].Attn.Rope = 1 }, false},
		{"rope dim", func(g *model.Graph) { g.Ropes[0].Dim = 6 }, false},
		{"odd rope dim", func(g *model.Graph) { g.Ropes[0].Dim = 3 }, false},
		{"rope style", func(g *model.Graph) { g.Ropes[0].Style = "spiral" }, true},
		{"rope scaling", func(g *model.Graph) { g.Ropes[0].Scaling.Kind = "warp" }, true},
		{"longrope without factors", func(g *model.Graph) { g.Ropes[0].Scaling.Kind = model.ScaleLongRope }, false},
		{"linear between other sizes", func(g *model.Graph) { g.Blocks[0].Attn.O.Out = 9 }, false},
		{"two linears in one tensor", func(g *model.Graph) { g.Blocks[0].Attn.K.Weight = "0.q" }, false},
		{"too many experts", func(g *model.Graph) { rms.moe(g, 0, 2, 3, false) }, false},
		{"expert that is no stack", func(g *model.Graph) { rms.moe(g, 0, 2, 1, false); g.Blocks[0].MoE.Up.Role = model.RoleUp }, false},
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
