package model

// gemma3 has no attention cap; it normalises query and key, and rotates the
// layers with a window by another base than those without: five to one.
// Multimodal checkpoints hold the text model under text_config.
//
// Source: configuration_gemma3.py and modeling_gemma3.py of transformers.
func gemma3() *architecture {
	return &architecture{
		name: "gemma3", class: "Gemma3ForCausalLM", types: []string{"gemma3_text", "gemma3"}, gguf: "gemma3",
		llama: &llamaCPP{window: optional},
		fromHF: func(s *settings) *decoder {
			d := s.gemma("gemma3", gemma3Defaults(), 0, 0)
			d.qkNorm = true
			global := s.rope(d, 1e6, 1, "full_attention")
			theta := s.floatOr("rope_local_base_freq", 10000)
			local := Rope{Style: RopeHalf, Dim: d.headDim, Theta: theta, Scaling: RopeScaling{Kind: ScaleNone}}
			if p, ok := s.c.Sub("rope_parameters"); ok && p.Has("sliding_attention") {
				local = s.rope(d, theta, 1, "sliding_attention")
			}
			d.ropes = []Rope{global, local}
			every := s.intOr("sliding_window_pattern", s.intOr("_sliding_window_pattern", 6))
			if every < 1 {
				s.bad("sliding_window_pattern", every)
				every = 1
			}
			d.window = s.slidingLayers(s.intOr("sliding_window", 4096), d.layers, func(layer int) bool { return (int64(layer)+1)%every != 0 })
			d.rope = d.localRope
			return d
		},
		fromGGUF: func(k *keys) *decoder {
			d := k.gemma("gemma3")
			d.qkNorm = true
			// llama.cpp computes the score's scale: D/H for the 27B model (62
			// layers), the head's size for the others.
			if d.layers == 62 {
				d.scale = rsqrt(float64(d.width / max(d.heads, 1)))
			}
			d.headSoftcap = float32(k.floatOr("final_logit_softcapping", 0))
			global := k.rope(d, RopeHalf)
			local := Rope{Style: RopeHalf, Dim: global.Dim, Theta: k.floatOr("rope.freq_base_swa", 10000), Scaling: RopeScaling{Kind: ScaleNone}}
			d.ropes = []Rope{global, local}
			d.window = k.slidingLayers(k.intOr("attention.sliding_window", 0), d.layers, 6)
			d.rope = d.localRope
			return d
		},
		offset: 1,
		toHF: func(c configWriter, g *Graph) {
			c.gemma(g)
			c["rope_local_base_freq"] = g.Ropes[1].Theta
		},
		hfLinks:   hfGemmaLinks(),
		ggufLinks: ggufGemmaLinks(),
	}
}

// localRope gives layers with a window the second rotary embedding.
func (d *decoder) localRope(layer int) int {
	if d.window(layer) > 0 {
		return 1
	}
	return 0
}

// gemma3Defaults are the sizes that published multimodal configurations leave
// out. Source: configuration_gemma3.py of transformers.
func gemma3Defaults() map[string]int64 {
	return map[string]int64{
		"vocab_size": 262208, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26,
		"num_attention_heads": 8, "num_key_value_heads": 4, "max_position_embeddings": 131072,
	}
}
