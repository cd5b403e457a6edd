package model

import "github.com/nstf/nstf/formats/scheme"

// config returns a config.json for a graph that came from elsewhere, in the
// flat style that every release of transformers reads.
func (a *architecture) config(g *Graph, dtype *scheme.Scheme) map[string]any {
	c := map[string]any{
		"architectures": []string{a.class}, "model_type": a.types[0], "torch_dtype": torchName(dtype),
		"vocab_size": g.Vocab, "tie_word_embeddings": g.Tied(),
	}
	b := &g.Blocks[0]
	switch a.name {
	case "gpt2", "gptj":
		gptConfig(c, g, b)
		return c
	case "gpt_neox":
		c["layer_norm_eps"], c["use_parallel_residual"] = g.Norm.Eps, b.Parallel
		c["rotary_pct"], c["rotary_emb_base"] = float64(g.Ropes[0].Dim)/float64(b.Attn.HeadDim), g.Ropes[0].Theta
		c["attention_bias"] = b.Attn.Q.Bias != ""
	default:
		c["rms_norm_eps"], c["head_dim"], c["num_key_value_heads"] = g.Norm.Eps, b.Attn.HeadDim, b.Attn.KVHeads
		c["attention_bias"] = b.Attn.O.Bias != ""
		if b.FFN != nil {
			c["mlp_bias"] = b.FFN.Up.Bias != ""
		}
	}
	c["hidden_size"], c["num_hidden_layers"], c["max_position_embeddings"] = g.Width, len(g.Blocks), g.Context
	c["num_attention_heads"] = b.Attn.Heads
	c["intermediate_size"] = inner(g)
	c["hidden_act"] = activationName(b)
	ropeConfig(c, g, b)
	mixtureConfig(c, g)
	gemmaConfig(c, a, g)
	windowConfig(c, a, g)
	return c
}

func gptConfig(c map[string]any, g *Graph, b *Block) {
	c["n_embd"], c["n_layer"], c["n_head"], c["n_positions"] = g.Width, len(g.Blocks), b.Attn.Heads, g.Context
	c["n_inner"], c["layer_norm_epsilon"], c["activation_function"] = b.FFN.Up.Out, g.Norm.Eps, "gelu_new"
	if len(g.Ropes) > 0 {
		c["rotary_dim"] = g.Ropes[0].Dim
	}
}

// inner returns the width of the dense feed-forward layers, of the experts
// where there are none.
func inner(g *Graph) int64 {
	for i := range g.Blocks {
		if f := g.Blocks[i].FFN; f != nil {
			return f.Up.Out
		}
	}
	return g.Blocks[0].MoE.Up.Out
}

func activationName(b *Block) string {
	act := SiLU
	if b.FFN != nil {
		act = b.FFN.Act
	}
	return map[Activation]string{SiLU: "silu", GELU: "gelu", GELUTanh: "gelu_pytorch_tanh", GELUQuick: "quick_gelu", ReLU: "relu"}[act]
}

func ropeConfig(c map[string]any, g *Graph, b *Block) {
	if len(g.Ropes) == 0 {
		return
	}
	r := &g.Ropes[0]
	c["rope_theta"] = r.Theta
	if r.Dim != b.Attn.HeadDim {
		c["partial_rotary_factor"] = float64(r.Dim) / float64(b.Attn.HeadDim)
	}
	s := &r.Scaling
	switch s.Kind {
	case ScaleLinear:
		c["rope_scaling"] = map[string]any{"rope_type": "linear", "factor": s.Factor}
	case ScaleDynamic:
		c["rope_scaling"] = map[string]any{"rope_type": "dynamic", "factor": s.Factor}
	case ScaleYarn:
		c["rope_scaling"] = map[string]any{"rope_type": "yarn", "factor": s.Factor, "original_max_position_embeddings": s.Original, "attention_factor": s.Attention,
			"beta_fast": s.BetaFast, "beta_slow": s.BetaSlow}
	case ScaleLongRope:
		c["original_max_position_embeddings"] = s.Original
		c["rope_scaling"] = map[string]any{"type": "longrope", "short_factor": s.Short, "long_factor": s.Long}
	case ScaleFactors:
		c["rope_scaling"] = llama3Config(r)
	}
}

// llama3Config finds the published llama3 scaling that gives a GGUF's rotary
// factors. Source: config.json of Llama 3.1 (factor 8) and 3.2 (factor 32).
func llama3Config(r *Rope) map[string]any {
	for _, factor := range []float64{8, 32} {
		try := Rope{Style: r.Style, Dim: r.Dim, Theta: r.Theta,
			Scaling: RopeScaling{Kind: ScaleLlama3, Factor: factor, LowFreq: 1, HighFreq: 4, Original: 8192}}
		if ropeDifference(&try, r) == "" {
			return map[string]any{"rope_type": "llama3", "factor": factor, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
		}
	}
	return nil // the comparison of the graphs will say so
}

func mixtureConfig(c map[string]any, g *Graph) {
	var dense []int
	var moe *MoE
	for i := range g.Blocks {
		if m := g.Blocks[i].MoE; m != nil {
			moe = m
		} else {
			dense = append(dense, i)
		}
	}
	if moe == nil {
		return
	}
	c["num_experts_per_tok"] = moe.TopK
	if g.Arch == "mixtral" {
		c["num_local_experts"] = moe.Experts
		return
	}
	c["num_experts"], c["moe_intermediate_size"], c["norm_topk_prob"] = moe.Experts, moe.Up.Out, moe.Normalize
	c["mlp_only_layers"] = append([]int{}, dense...)
}

func gemmaConfig(c map[string]any, a *architecture, g *Graph) {
	if a.storedOffset() == 0 {
		return
	}
	at := &g.Blocks[0].Attn
	c["hidden_activation"] = c["hidden_act"]
	c["query_pre_attn_scalar"] = 1 / (float64(at.Scale) * float64(at.Scale))
	c["attn_logit_softcapping"], c["final_logit_softcapping"] = orNull(at.Softcap), orNull(g.Head.Softcap)
	if len(g.Ropes) > 1 {
		c["rope_local_base_freq"] = g.Ropes[1].Theta
	}
}

func orNull(v float32) any {
	if v == 0 {
		return nil
	}
	return v
}

// windowConfig writes the window and, where layers differ, their types.
func windowConfig(c map[string]any, a *architecture, g *Graph) {
	var window int64
	types := make([]string, len(g.Blocks))
	for i := range g.Blocks {
		types[i] = "full_attention"
		if w := g.Blocks[i].Attn.Window; w > 0 {
			window, types[i] = w, "sliding_attention"
		}
	}
	c["sliding_window"] = nil
	if window == 0 {
		return
	}
	c["sliding_window"] = window
	if a.name != "mistral" && a.name != "mixtral" && a.name != "phi3" {
		c["layer_types"], c["use_sliding_window"] = types, true
	}
}
