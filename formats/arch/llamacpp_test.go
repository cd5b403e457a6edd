package arch

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/hf"
)

// Each rule of the export has a graph that breaks it alone, of a model that
// GGUF can say otherwise; the error names the reason.
func TestExportRules(t *testing.T) {
	cases := map[string]struct {
		micro  string
		change func(g *graph.Graph)
		says   string
	}{
		"experts": {"mixtral", func(g *graph.Graph) {
			g.Blocks[0].MoE, g.Blocks[0].FFN = nil, &graph.FFN{}
		}, "expects experts in every layer"},
		"output bias":            {"qwen3", func(g *graph.Graph) { g.Blocks[0].Attn.O.Bias = "bias" }, "no such bias"},
		"feed-forward bias":      {"seed_oss", func(g *graph.Graph) { g.Blocks[0].FFN.Up.Bias = "bias" }, "no such bias"},
		"convolution's bias":     {"lfm2", func(g *graph.Graph) { g.Blocks[0].ShortConv.ConvBias = "bias" }, "no such bias"},
		"latents":                {"deepseek_v3", func(g *graph.Graph) { g.Blocks[0].Latent.O.Bias = "bias" }, "no such bias"},
		"state spaces":           {"granitemoehybrid", func(g *graph.Graph) { g.Blocks[0].Mamba.MaxStep = 1 }, "does not limit the steps"},
		"norms of heads":         {"cohere", func(g *graph.Graph) { g.Blocks[0].Attn.QNorm = g.Norm }, "64 layers and more"},
		"head":                   {"gemma2", func(g *graph.Graph) { g.Head.Weight = "head.weight" }, "a head of its own"},
		"width of heads":         {"qwen2", func(g *graph.Graph) { g.Blocks[0].Attn.Heads++ }, "as wide as the model"},
		"shared keys and values": {"gemma4-mm", func(g *graph.Graph) { *g.Blocks[3].Attn.KVFrom-- }, "from layer 1"},
		"values of delta nets":   {"qwen3_5-mm", func(g *graph.Graph) { g.Blocks[0].Delta.ValueDim++ }, "as long as their keys"},
		"delta nets beside latents": {"kimi_linear", func(g *graph.Graph) {
			a := g.Blocks[1].Latent
			a.QA = &graph.Linear{Weight: "blocks.1.latent.q_a.weight"}
		}, "no queries by a latent"},
		"windows": {"gemma4-dense", func(g *graph.Graph) {
			for i := range g.Blocks {
				g.Blocks[i].Attn.Window = 0
			}
		}, "a window in some layer"},
		"short convolutions": {"lfm2", func(g *graph.Graph) {
			for i := range g.Blocks {
				g.Blocks[i].ShortConv = nil
			}
		}, "a convolution in some layer"},
		"sliding window":           {"llama-2", func(g *graph.Graph) { g.Blocks[1].Attn.Window = 8 }, "beyond the sliding window of 8 tokens"},
		"partial rotary embedding": {"llama-2", func(g *graph.Graph) { g.Ropes[0].Dim /= 2 }, "rotates whole heads"},
		"yarn's ramp":              {"llama-yarn", func(g *graph.Graph) { g.Ropes[0].Scaling.BetaFast = 2 }, "beta_fast 2"},
		"yarn's attention factor": {"gemma3", func(g *graph.Graph) {
			s := &g.Ropes[0].Scaling
			*s = graph.RopeScaling{Kind: graph.ScaleYarn, Factor: 4, Original: 64, BetaFast: yarnBetaFast, BetaSlow: yarnBetaSlow, Truncate: true, Attention: 1.5}
		}, "attention factor too: 1.5"},
		"rotary factors": {"qwen2", func(g *graph.Graph) {
			r := &g.Ropes[0]
			r.Scaling = graph.RopeScaling{Kind: graph.ScaleFactors, Short: make([]float32, r.Dim/2)}
		}, `no rotary scaling "factors"`},
	}
	for _, r := range exportRules() {
		c, ok := cases[r.name]
		if !ok {
			t.Errorf("no case breaks the rule %q", r.name)
			continue
		}
		delete(cases, r.name)
		t.Run(r.name, func(t *testing.T) {
			g, a := graphOf(t, c.micro)
			if err := a.LlamaCPP(g); err != nil {
				t.Fatalf("the model itself breaks a rule: %v", err)
			}
			c.change(g)
			err := a.LlamaCPP(g)
			var u *formats.UnsupportedError
			if !errors.As(err, &u) || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "llama.cpp") {
				t.Errorf("error %v does not say %q", err, c.says)
			}
		})
	}
	for name := range cases {
		t.Errorf("there is no rule %q", name)
	}
}

// graphOf returns the graph of a micro checkpoint, and its architecture.
func graphOf(t *testing.T, micro string) (*graph.Graph, *Architecture) {
	t.Helper()
	p, err := os.ReadFile("../../testdata/micro/" + micro + "/config.json")
	if err != nil {
		t.Fatal(err)
	}
	c, err := hf.ParseConfig("config.json", p)
	if err != nil {
		t.Fatal(err)
	}
	g, a, err := OfConfig(micro, c)
	if err != nil {
		t.Fatal(err)
	}
	return g, a
}
