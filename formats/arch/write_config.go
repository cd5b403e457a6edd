package arch

import (
	"github.com/nstf/nstf/formats/graph"
)

// A configWriter is a config.json in the making.
type configWriter map[string]any

// Config returns a config.json for a graph that came from elsewhere, in the
// flat style that every release of transformers reads; dtype is its name there.
func (a *Architecture) Config(g *graph.Graph, dtype string) map[string]any {
	c := configWriter{
		"architectures": []string{a.class}, "model_type": a.types[0], "torch_dtype": dtype,
		"vocab_size": g.Vocab, "tie_word_embeddings": g.Tied(),
		"pad_token_id": nil, // a class's own may lie behind the vocabulary
	}
	a.toHF(c, g)
	return c
}

// common writes the keys that the llama family spells alike: the inverse of
// settings.common.
func (c configWriter) common(g *graph.Graph) { c.decoder(g, &g.Blocks[0]) }

// layered is common with the kind of each layer.
func (c configWriter) layered(g *graph.Graph) {
	c.common(g)
	c.layerTypes(g)
}

// decoder is common of a graph where not every block has attention as b has it.
func (c configWriter) decoder(g *graph.Graph, b *graph.Block) {
	c.heads(g, b)
	c.rope(g, b)
	c.window(g)
}

// heads is decoder without what changes by position.
func (c configWriter) heads(g *graph.Graph, b *graph.Block) {
	c["hidden_size"], c["num_hidden_layers"], c["max_position_embeddings"] = g.Width, len(g.Blocks), g.Context
	c["num_attention_heads"], c["intermediate_size"], c["hidden_act"] = b.Attn.Heads, inner(g), activationName(b)
	c["rms_norm_eps"], c["head_dim"], c["num_key_value_heads"] = g.Norm.Eps, b.Attn.HeadDim, b.Attn.KVHeads
	c["attention_bias"] = b.Attn.O.Bias != ""
}

// gpt writes the keys that GPT-2 and GPT-J spell alike.
func (c configWriter) gpt(g *graph.Graph) {
	b := &g.Blocks[0]
	c["n_embd"], c["n_layer"], c["n_head"], c["n_positions"] = g.Width, len(g.Blocks), b.Attn.Heads, g.Context
	c["n_inner"], c["layer_norm_epsilon"], c["activation_function"] = b.FFN.Up.Out, g.Norm.Eps, "gelu_new"
}

// inner returns the width of the dense feed-forward layers, of the experts
// where there are none.
func inner(g *graph.Graph) int64 {
	for i := range g.Blocks {
		if f := g.Blocks[i].FFN; f != nil {
			return f.Up.Out
		}
	}
	if m, _ := experts(g); m != nil {
		return m.Up.Out
	}
	return 0
}

func activationName(b *graph.Block) string {
	act := graph.SiLU
	if b.FFN != nil {
		act = b.FFN.Act
	}
	return map[graph.Activation]string{graph.SiLU: "silu", graph.GELU: "gelu", graph.GELUTanh: "gelu_pytorch_tanh", graph.GELUQuick: "quick_gelu", graph.ReLU: "relu", graph.ReLU2: "relu2", graph.ActXIELU: "xielu"}[act]
}

func (c configWriter) rope(g *graph.Graph, b *graph.Block) {
	r := &g.Ropes[0]
	c["rope_theta"] = r.Theta
	if r.Dim != b.Attn.HeadDim {
		c["partial_rotary_factor"] = float64(r.Dim) / float64(b.Attn.HeadDim)
	}
	s := &r.Scaling
	switch s.Kind {
	case graph.ScaleLinear:
		c["rope_scaling"] = map[string]any{"rope_type": "linear", "factor": s.Factor}
	case graph.ScaleDynamic:
		c["rope_scaling"] = map[string]any{"rope_type": "dynamic", "factor": s.Factor}
	case graph.ScaleYarn:
		c["rope_scaling"] = map[string]any{"rope_type": "yarn", "factor": s.Factor, "original_max_position_embeddings": s.Original, "attention_factor": s.Attention,
			"beta_fast": s.BetaFast, "beta_slow": s.BetaSlow}
	case graph.ScaleLongRope:
		c["original_max_position_embeddings"] = s.Original
		c["rope_scaling"] = map[string]any{"type": "longrope", "short_factor": s.Short, "long_factor": s.Long}
	case graph.ScaleFactors:
		c["rope_scaling"] = llama3Config(r)
	}
}

// llama3Config finds the published llama3 scaling that gives a GGUF's rotary
// factors. Source: config.json of Llama 3.1 (factor 8) and 3.2 (factor 32).
func llama3Config(r *graph.Rope) map[string]any {
	for _, factor := range []float64{8, 32} {
		try := graph.Rope{Style: r.Style, Dim: r.Dim, Theta: r.Theta,
			Scaling: graph.RopeScaling{Kind: graph.ScaleLlama3, Factor: factor, LowFreq: 1, HighFreq: 4, Original: 8192}}
		if graph.RopeDifference(&try, r) == "" {
			return map[string]any{"rope_type": "llama3", "factor": factor, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
		}
	}
	return nil // the comparison of the graphs will say so
}

// mixture writes the keys of a mixture under its names for the number of experts and
// for the width of one. What it returns is that of [mixed].
func (c configWriter) mixture(g *graph.Graph, number, width string) (*graph.MoE, []int) {
	m, dense := mixed(g)
	c[number], c["num_experts_per_tok"], c[width] = m.Experts, m.TopK, m.Up.Out
	return m, dense
}

// sharedExperts returns how many experts the shared one is as wide as, 0 where there is none.
func sharedExperts(m *graph.MoE) int64 {
	if m.Shared == nil {
		return 0
	}
	return m.Shared.Up.Out / m.Up.Out
}

// experts returns the mixture's constants and the layers that have none.
func experts(g *graph.Graph) (*graph.MoE, []int) {
	dense := []int{}
	var moe *graph.MoE
	for i := range g.Blocks {
		if m := g.Blocks[i].MoE; m != nil {
			moe = m
		} else {
			dense = append(dense, i)
		}
	}
	return moe, dense
}

// mixed is experts for configurations that state a mixture's constants even where no
// layer has one: ones stand for them.
func mixed(g *graph.Graph) (*graph.MoE, []int) {
	m, dense := experts(g)
	if m == nil {
		one := graph.Linear{Out: 1}
		m = &graph.MoE{Experts: 1, TopK: 1, Normalize: true, Up: one, Shared: &graph.FFN{Up: one}}
	}
	return m, dense
}

// gemma writes what Gemma's configurations have beside the common keys.
func (c configWriter) gemma(g *graph.Graph) {
	c.layered(g)
	at := g.Blocks[0].Attn
	c["hidden_activation"] = c["hidden_act"]
	c["query_pre_attn_scalar"] = 1 / (float64(at.Scale) * float64(at.Scale))
	c["attn_logit_softcapping"], c["final_logit_softcapping"] = orNull(at.Softcap), orNull(g.Head.Softcap)
}

func orNull(v float32) any {
	if v == 0 {
		return nil
	}
	return v
}

// window writes the window of the layers that have one.
func (c configWriter) window(g *graph.Graph) {
	c["sliding_window"] = nil
	for i := range g.Blocks {
		if w := window(&g.Blocks[i]); w > 0 {
			c["sliding_window"], c["use_sliding_window"] = w, true
		}
	}
}

// layerTypes says for each layer whether it has a window.
func (c configWriter) layerTypes(g *graph.Graph) {
	types := make([]string, len(g.Blocks))
	for i := range g.Blocks {
		types[i] = "full_attention"
		if window(&g.Blocks[i]) > 0 {
			types[i] = "sliding_attention"
		}
	}
	c["layer_types"] = types
}

// attention returns the first attention of a graph, one of zeros where no block has
// any.
func attention(g *graph.Graph) *graph.Attention {
	for i := range g.Blocks {
		if a := g.Blocks[i].Attn; a != nil {
			return a
		}
	}
	return &graph.Attention{}
}

// window returns the window of a block, 0 for none.
func window(b *graph.Block) int64 {
	if b.Attn == nil {
		return 0
	}
	return b.Attn.Window
}
