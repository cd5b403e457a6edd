package arch

import (
	"fmt"
	"slices"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
)

// llamaCPP is what llama.cpp's loader expects of an architecture, and what its
// code does with it, beyond the keys and tensors that follow from the graph.
// Source: src/llama-model.cpp there, and the files of src/models in newer
// versions.
type llamaCPP struct {
	outputBias  presence // of a bias on attention's output
	copyHead    bool     // output.weight, where the head is tied too
	tiedHead    bool     // no output.weight
	parallel    bool     // the key use_parallel_residual
	window      presence // of the key attention.sliding_window
	windowed    bool     // it attends within that window, in the layers of its own pattern
	noFFNBias   bool     // its feed-forward layer has no biases
	squareO     bool     // heads are together as wide as the model
	wholeRope   bool     // rotary embeddings turn whole heads
	factors     bool     // it reads rope_freqs.weight
	longRope    bool     // it reads rope_factors_long.weight and rope_factors_short.weight
	denseLead   bool     // the first layers may have no experts
	someExperts bool     // and any others
	latents     bool     // its attention is over latents
	normedFrom  int      // layers from which on it expects norms of query and key; 0: by the tensors
	ownRamp     bool     // yarn's ramp is the model's, and llama.cpp's is known to differ

	noConvBias  bool // its short convolutions have no biases
	mambas      bool // state spaces have biases of convolutions alone, and are in some layer
	wideMamba   bool // they are twice as wide as the model
	kimi        bool // delta nets in some layers, latents without rotation and queries of their own in others
	squareDelta bool // values of delta nets are as long as their keys

	capped     bool // it caps logits where the key is absent
	someWindow bool // some layer has a window
	someConv   bool // some layer is a short convolution
	oneBase    bool // layers with a window rotate by the base of the others
}

// A presence says whether something may, must or must not be there.
type presence uint8

const (
	forbidden presence = iota
	optional
	required
)

// An exportRule is one thing that llama.cpp does otherwise than a graph may
// say, and that reading the export's keys back would not show, or not name.
type exportRule struct {
	name string
	// broken says what llama.cpp does otherwise, "" where it does not, and what
	// to do about it.
	broken func(l *llamaCPP, g *graph.Graph) (what, hint string)
}

// exportRules returns the rules, each of which a test breaks.
func exportRules() []exportRule {
	return []exportRule{
		{"experts", func(l *llamaCPP, g *graph.Graph) (string, string) {
			n, lead := 0, true
			for i := range g.Blocks {
				if g.Blocks[i].MoE != nil {
					n++
				} else {
					lead = lead && n == 0
				}
			}
			if n == 0 || n == len(g.Blocks) || l.denseLead && lead || l.someExperts {
				return "", ""
			}
			return fmt.Sprintf("expects experts in every layer of %q, here %d of %d have them", g.Arch, n, len(g.Blocks)), ""
		}},
		{"output bias", func(l *llamaCPP, g *graph.Graph) (string, string) {
			switch bias := attention(g).O.Bias; {
			case l.outputBias == required && bias == "":
				return fmt.Sprintf("expects biases in the attention of %q", g.Arch), ""
			case l.outputBias == forbidden && bias != "":
				return fmt.Sprintf("has no such bias in %q as %s", g.Arch, bias), ""
			}
			return "", ""
		}},
		{"feed-forward bias", func(l *llamaCPP, g *graph.Graph) (string, string) {
			for i := range g.Blocks {
				if f := g.Blocks[i].FFN; l.noFFNBias && f != nil && f.Up.Bias != "" {
					return fmt.Sprintf("has no such bias in %q as %s", g.Arch, f.Up.Bias), ""
				}
			}
			return "", ""
		}},
		{"convolution's bias", func(l *llamaCPP, g *graph.Graph) (string, string) {
			for i := range g.Blocks {
				if n := g.Blocks[i].ShortConv; l.noConvBias && n != nil && n.ConvBias != "" {
					return fmt.Sprintf("has no such bias in %q as %s", g.Arch, n.ConvBias), ""
				}
			}
			return "", ""
		}},
		{"norms of heads", func(l *llamaCPP, g *graph.Graph) (string, string) {
			if has, wants := attention(g).QNorm != nil, len(g.Blocks) >= l.normedFrom; l.normedFrom > 0 && has != wants {
				return fmt.Sprintf("expects norms of query and key in %q of %d layers and more, and in no other: here are %d", g.Arch, l.normedFrom, len(g.Blocks)), ""
			}
			return "", ""
		}},
		{"latents", func(l *llamaCPP, g *graph.Graph) (string, string) {
			if !l.latents {
				return "", ""
			}
			a, lead := latentOf(g), attention(g).Heads == 0
			n := len(g.Blocks)
			switch m, _ := experts(g); {
			case !lead || m == nil:
				return fmt.Sprintf("expects latents in every layer of %q, and mixtures", g.Arch), ""
			case a.O.Bias != "":
				return fmt.Sprintf("has no such bias in %q as %s", g.Arch, a.O.Bias), ""
			case !l.kimi && g.Ropes[0].Scaling.Kind == graph.ScaleLinear:
				return fmt.Sprintf("multiplies the scores of %q by what yarn would, where the rotary scaling is linear", g.Arch), ""
			case !l.kimi && a.QA != nil && (n == 26 || n == 27 || n == 48 && g.Vocab == 128256):
				return fmt.Sprintf("takes %q of %d layers for one whose queries come by no latent", g.Arch, n), ""
			}
			return "", ""
		}},
		{"delta nets beside latents", func(l *llamaCPP, g *graph.Graph) (string, string) {
			a, n := latentOf(g), firstDelta(g)
			switch {
			case !l.kimi:
				return "", ""
			case n == nil || a.Heads == 0:
				return fmt.Sprintf("expects delta nets in some layers of %q and latents in others", g.Arch), ""
			case a.QA != nil:
				return fmt.Sprintf("has no queries by a latent in %q, as %s", g.Arch, a.QA.Weight), ""
			}
			return "", ""
		}},
		{"state spaces", func(l *llamaCPP, g *graph.Graph) (string, string) {
			n := firstMamba(g)
			switch {
			case !l.mambas:
				return "", ""
			case n == nil:
				return fmt.Sprintf("expects a state space in some layer of %q", g.Arch), ""
			case n.ConvBias == "" || n.Norm == nil || n.Z.Bias != "":
				return fmt.Sprintf("expects norms and biases of the convolutions, and none of the projections, in the state spaces of %q", g.Arch), ""
			case n.MinStep != 0 || n.MaxStep != 0:
				return fmt.Sprintf("does not limit the steps of state spaces in %q", g.Arch), ""
			case n.Values() != 2*g.Width && l.wideMamba:
				return fmt.Sprintf("expects state spaces of %q to be twice as wide as the model, not %d", g.Arch, n.Values()), ""
			}
			return "", ""
		}},
		{"head", func(l *llamaCPP, g *graph.Graph) (string, string) {
			if l.tiedHead && !g.Tied() {
				return fmt.Sprintf("takes the embedding table of %q for its head, this model has a head of its own", g.Arch), ""
			}
			return "", ""
		}},
		{"width of heads", func(l *llamaCPP, g *graph.Graph) (string, string) {
			if a := attention(g); l.squareO && a.Heads*a.HeadDim != g.Width {
				return fmt.Sprintf("expects the heads of %q to be together as wide as the model, %d, not %d times %d", g.Arch, g.Width, a.Heads, a.HeadDim), ""
			}
			return "", ""
		}},
		{"windows", func(l *llamaCPP, g *graph.Graph) (string, string) {
			some := slices.ContainsFunc(g.Blocks, func(b graph.Block) bool { return window(&b) > 0 })
			switch {
			case l.someWindow && !some:
				return fmt.Sprintf("expects a window in some layer of %q", g.Arch), ""
			case l.oneBase && some && len(g.Ropes) > 1 && g.Ropes[1].Theta != g.Ropes[0].Theta:
				return fmt.Sprintf("rotates all layers of %q by the base %v, this model those with a window by %v", g.Arch, g.Ropes[0].Theta, g.Ropes[1].Theta), ""
			}
			return "", ""
		}},
		{"short convolutions", func(l *llamaCPP, g *graph.Graph) (string, string) {
			if l.someConv && !slices.ContainsFunc(g.Blocks, func(b graph.Block) bool { return b.ShortConv != nil }) {
				return fmt.Sprintf("expects a convolution in some layer of %q", g.Arch), ""
			}
			return "", ""
		}},
		{"shared keys and values", func(_ *llamaCPP, g *graph.Graph) (string, string) {
			first := len(g.Blocks)
			for i := range g.Blocks {
				a := g.Blocks[i].Attn
				if a == nil || a.KVFrom == nil {
					continue
				}
				first = min(first, i)
				want := first - 1
				if a.Window > 0 {
					want--
				}
				if *a.KVFrom != want {
					return fmt.Sprintf("takes the keys and values of layer %d from layer %d in %q, this model from %d", i, want, g.Arch, *a.KVFrom), ""
				}
			}
			return "", ""
		}},
		{"values of delta nets", func(l *llamaCPP, g *graph.Graph) (string, string) {
			for i := range g.Blocks {
				if n := g.Blocks[i].Delta; l.squareDelta && n != nil && n.KeyDim != n.ValueDim {
					return fmt.Sprintf("takes values of %q for as long as their keys, %d, here they have %d numbers", g.Arch, n.KeyDim, n.ValueDim), ""
				}
			}
			return "", ""
		}},
		{"sliding window", func(l *llamaCPP, g *graph.Graph) (string, string) {
			n := shortestWindow(g)
			if n == 0 || n >= g.Context || l.windowed {
				return "", ""
			}
			return fmt.Sprintf("attends beyond the sliding window of %d tokens in %q", n, g.Arch),
				fmt.Sprintf("up to %d tokens the model is the same: a config.json with max_position_embeddings %d says that it is made for no more", n, n)
		}},
		{"partial rotary embedding", func(l *llamaCPP, g *graph.Graph) (string, string) {
			for i := range g.Ropes {
				if n := attention(g).HeadDim; l.wholeRope && g.Ropes[i].Dim != n {
					return fmt.Sprintf("rotates whole heads of %d in %q, here %d numbers of each", n, g.Arch, g.Ropes[i].Dim), ""
				}
			}
			return "", ""
		}},
		{"yarn's ramp", func(l *llamaCPP, g *graph.Graph) (string, string) {
			if l.ownRamp {
				return "", "" // Deviation says so
			}
			for i := range g.Ropes {
				r := g.Ropes[i]
				s := r.Scaling
				if r.Scaling.BetaFast, r.Scaling.BetaSlow, r.Scaling.Truncate = yarnBetaFast, yarnBetaSlow, true; s.Kind == graph.ScaleYarn && graph.RopeDifference(&g.Ropes[i], &r) != "" {
					return fmt.Sprintf("disregards yarn's beta_fast %v, beta_slow %v and truncate %v in %q: it takes %d, %d and true",
						s.BetaFast, s.BetaSlow, s.Truncate, g.Arch, yarnBetaFast, yarnBetaSlow), ""
				}
			}
			return "", ""
		}},
		{"yarn's attention factor", func(_ *llamaCPP, g *graph.Graph) (string, string) {
			if len(g.Ropes) < 2 || g.Ropes[0].Scaling.Kind != graph.ScaleYarn {
				return "", ""
			}
			s := &g.Ropes[0].Scaling
			if usual := yarnScale(s.Factor, 1); s.Attention != 0 && !graph.Near(s.Attention, usual) {
				return fmt.Sprintf("would scale the layers with a window by yarn's attention factor too: %v, not %v", s.Attention, usual), ""
			}
			return "", ""
		}},
		{"rotary factors", func(l *llamaCPP, g *graph.Graph) (string, string) {
			for i := range g.Ropes {
				switch kind := g.Ropes[i].Scaling.Kind; {
				case !l.factors && (kind == graph.ScaleLlama3 || kind == graph.ScaleFactors), !l.longRope && kind == graph.ScaleLongRope:
					return fmt.Sprintf("has no rotary scaling %q in %q", kind, g.Arch), ""
				}
			}
			return "", ""
		}},
	}
}

// The turns between which llama.cpp blends by yarn. It reads other values for
// grok and mistral3 only, neither of which we know. Source: the initial values
// in src/llama-hparams.h, and the readers in src/models.
const (
	yarnBetaFast = 32
	yarnBetaSlow = 1
)

// LlamaCPP refuses a graph that llama.cpp would execute otherwise, or not at all,
// with a [formats.UnsupportedError] that names no file. a may be nil, of an unknown architecture.
func (a *Architecture) LlamaCPP(g *graph.Graph) error {
	if a == nil || a.llama == nil {
		e := formats.Unsupportedf("", "", "llama.cpp does not run architecture %q", g.Arch)
		e.Hint = "export to a folder instead: -o DIR/ writes safetensors"
		return e
	}
	for _, r := range exportRules() {
		if what, hint := r.broken(a.llama, g); what != "" {
			e := formats.Unsupportedf("", "", "llama.cpp %s", what)
			e.Hint = hint
			return e
		}
	}
	return nil
}

// Deviation says what llama.cpp is known to compute a little otherwise in graphs that
// it runs all the same, "" for nothing.
func (a *Architecture) Deviation(g *graph.Graph) string {
	if l, n := latentOf(g), firstDelta(g); a.llama.kimi && (l.KVNorm.Eps != g.Norm.Eps || n.Eps != g.Norm.Eps) {
		return fmt.Sprintf("llama.cpp adds %g in the norms of latents and to the lengths of queries and keys, where this model adds %g and %g: logits will differ a little",
			g.Norm.Eps, l.KVNorm.Eps, n.Eps)
	}
	if l := latentOf(g); a.llama.latents && l.Heads > 0 && l.KVNorm.Eps != g.Norm.Eps {
		return fmt.Sprintf("llama.cpp adds %g in the norms of latents where this model adds %g: logits will differ a little", g.Norm.Eps, l.KVNorm.Eps)
	}
	if !a.llama.ownRamp {
		return ""
	}
	for i := range g.Ropes {
		if s := &g.Ropes[i].Scaling; s.Kind == graph.ScaleYarn && !s.Truncate {
			return "llama.cpp rounds the bounds of yarn's ramp to whole pairs, this model does not: logits of long texts will differ a little"
		}
	}
	return ""
}

// CopiesHead reports whether llama.cpp insists on a head of its own where the
// model's is tied to the embedding table.
func (a *Architecture) CopiesHead() bool { return a.llama != nil && a.llama.copyHead }

// shortestWindow returns the sliding window of the layer with the shortest, 0
// where none has any.
func shortestWindow(g *graph.Graph) int64 {
	shortest := int64(0)
	for i := range g.Blocks {
		if n := window(&g.Blocks[i]); n > 0 && (shortest == 0 || n < shortest) {
			shortest = n
		}
	}
	return shortest
}
