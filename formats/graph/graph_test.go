package graph

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats"
)

// small returns a graph with every kind of part.
func small() *Graph {
	linear := func(name string, role Role, in, out int64) Linear {
		return Linear{Role: role, Weight: name + ".weight", Bias: name + ".bias", In: in, Out: out, Input: name + ".in"}
	}
	norm := func(name string) *Norm {
		return &Norm{Kind: LayerNorm, Weight: name + ".weight", Bias: name + ".bias", Eps: 1e-5}
	}
	ffn := func(p string) *FFN {
		gate := linear(p+".gate", RoleGate, 16, 24)
		return &FFN{Act: SiLU, Gate: &gate, Up: linear(p+".up", RoleUp, 16, 24), Down: linear(p+".down", RoleDown, 24, 16)}
	}
	g := &Graph{Arch: "test", Context: 64, Vocab: 32, Width: 16, Norm: norm("norm"),
		Embed: Embedding{Table: "embed.weight", Scale: 1, Positions: "embed.positions.weight"},
		Ropes: []Rope{{Style: RopeHalf, Dim: 4, Theta: 1e4, Scaling: RopeScaling{Kind: ScaleNone}}},
		Head:  Head{Linear: linear("head", RoleHead, 16, 32)}}
	for _, p := range []string{"blocks.0.", "blocks.1."} {
		k, v := linear(p+"attn.k", RoleK, 16, 8), linear(p+"attn.v", RoleV, 16, 8)
		g.Blocks = append(g.Blocks, Block{AttnNorm: norm(p + "attn_norm"), AttnPostNorm: norm(p + "attn_post_norm"), FFNNorm: norm(p + "ffn_norm"), FFNPostNorm: norm(p + "ffn_post_norm"),
			Attn: &Attention{Heads: 4, KVHeads: 2, HeadDim: 4, Scale: 0.5, Sinks: p + "attn.sinks", QNorm: norm(p + "attn.q_norm"), KNorm: norm(p + "attn.k_norm"),
				Q: linear(p+"attn.q", RoleQ, 16, 16), K: &k, V: &v, O: linear(p+"attn.o", RoleO, 16, 16)},
			FFN: ffn(p + "ffn")})
	}
	b, p := &g.Blocks[1], "blocks.1."
	gate, shared := linear(p+"moe.gate", RoleXGate, 16, 8), linear(p+"moe.shared_gate", RoleRouter, 16, 1)
	b.FFN, b.MoE = nil, &MoE{Act: SiLU, Experts: 4, TopK: 2, Score: ScoreSigmoid, SelectBias: p + "moe.select_bias", Groups: 2, TopGroups: 1, Normalize: true, Scale: 2.5,
		Router: linear(p+"moe.router", RoleRouter, 16, 4), Gate: &gate, Up: linear(p+"moe.up", RoleXUp, 16, 8), Down: linear(p+"moe.down", RoleXDown, 8, 16),
		Shared: ffn(p + "moe.shared"), SharedGate: &shared}
	g.MTP = []MTP{{EmbedNorm: norm("mtp.0.embed_norm"), HiddenNorm: norm("mtp.0.hidden_norm"), Project: linear("mtp.0.project", RoleMTPProject, 32, 16),
		Block: g.Blocks[0].mtp("mtp.0.block."), Norm: norm("mtp.0.norm"), Table: "mtp.0.embed.weight"}}
	return g
}

// mtp returns a copy of a dense block as one of multi-token prediction.
func (b *Block) mtp(prefix string) Block {
	var c Block
	data, err := json.Marshal(b)
	if err == nil {
		err = json.Unmarshal([]byte(strings.ReplaceAll(string(data), "blocks.0.", prefix)), &c)
	}
	if err != nil {
		panic(err)
	}
	for _, l := range c.Linears() {
		l.Role = l.Role.MTP()
	}
	return c
}

func TestGraphSurvivesJSON(t *testing.T) {
	g := small()
	p, err := json.Marshal(g)
	if err != nil {
		t.Fatal(err)
	}
	back, err := Parse(p)
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
		{"both layers, parallel", func(g *Graph) { g.Blocks[0].MoE, g.Blocks[0].Parallel = g.Blocks[1].MoE, true }, "either"},
		{"neither layer", func(g *Graph) { g.Blocks[0].FFN = nil }, "where there is none"},
		{"more experts used than there are", func(g *Graph) { g.Blocks[1].MoE.TopK = 5 }, "top_k"},
		{"score", func(g *Graph) { g.Blocks[1].MoE.Score = "votes" }, "votes"},
		{"groups of unequal size", func(g *Graph) { g.Blocks[1].MoE.Groups = 3 }, "groups"},
		{"three of a group count", func(g *Graph) { g.Blocks[1].MoE.GroupBest = 3 }, "group_best"},
		{"masked groups where there are none", func(g *Graph) { m := g.Blocks[1].MoE; m.Groups, m.TopGroups, m.ZeroMasked = 0, 0, true }, "groups"},
		{"negative epsilon", func(g *Graph) { g.Blocks[1].MoE.Epsilon = -1 }, "epsilon"},
		{"shared layer of other size", func(g *Graph) { g.Blocks[1].MoE.Shared.Down.In = 8 }, "moe.shared.down"},
		{"shared gate of two outputs", func(g *Graph) { g.Blocks[1].MoE.SharedGate.Out = 2 }, "moe.shared_gate"},
		{"more experts than in the groups", func(g *Graph) { g.Blocks[1].MoE.TopK = 3 }, "top_k"},
		{"gate of no shared layer", func(g *Graph) { g.Blocks[1].MoE.Shared = nil }, "shared_gate"},
		{"stack in a place of one matrix", func(g *Graph) { g.Blocks[0].Attn.Q.Role = RoleXUp }, "role"},
		{"no mixer", func(g *Graph) { g.Blocks[0].Attn = nil }, "mixer"},
		{"no norm of further tokens", func(g *Graph) { g.MTP[0].HiddenNorm = nil }, "hidden_norm"},
		{"projection of one hidden state", func(g *Graph) { g.MTP[0].Project.In = 16 }, "mtp[0].project"},
		{"block of further tokens with a role of the model's", func(g *Graph) { g.MTP[0].Block.Attn.Q.Role = RoleQ }, "mtp[0].block.attn.q"},
		{"block with a role of further tokens", func(g *Graph) { g.Blocks[0].Attn.Q.Role = RoleQ.MTP() }, "blocks[0].attn.q"},
		{"head of further tokens of other size", func(g *Graph) { l := g.Head.Linear; l.Role, l.Out = RoleHead.MTP(), 8; g.MTP[0].Head = &l }, "mtp[0].head"},
		{"no mixer for further tokens", func(g *Graph) { g.MTP[0].Block.Attn = nil }, "mixer"},
		{"head of other size", func(g *Graph) { g.Head.Out = 31 }, "head"},
	} {
		g := small()
		c.change(g)
		if err := g.Check(); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: error %v does not say %q", c.name, err, c.says)
		}
	}
	_, err := Parse([]byte(`{"arch":"x","blocks":[{"attn_norm":null,"novel_operation":{}}]}`))
	if u := (*formats.UnsupportedError)(nil); !errors.As(err, &u) || !strings.Contains(err.Error(), `operation "novel_operation"`) {
		t.Errorf("an unknown operation: %v", err)
	}
}

func TestWeightsAreListedOnce(t *testing.T) {
	g := small()
	g.Head.Weight = g.Embed.Table
	seen := map[string]bool{}
	for _, w := range g.Weights() {
		if seen[w.Name] {
			t.Errorf("%s is listed twice", w.Name)
		}
		seen[w.Name] = true
		if in := strings.HasPrefix(w.Name, fmt.Sprintf("blocks.%d.", w.Block)); in != (w.Block >= 0) {
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
		g, err := Parse(data)
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
