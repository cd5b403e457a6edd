package model

// gptNeoX runs both branches in parallel behind two LayerNorms, unless
// use_parallel_residual is false, and fuses query, key and value per head.
//
// Source: configuration_gpt_neox.py and modeling_gpt_neox.py of transformers.
func gptNeoX() *architecture {
	return &architecture{
		name: "gpt_neox", class: "GPTNeoXForCausalLM", types: []string{"gpt_neox"}, gguf: "gptneox",
		llama: &llamaCPP{outputBias: required, copyHead: true, parallel: true},
		fromHF: func(s *settings) *decoder {
			d := s.common("gpt_neox", nil)
			d.norm, d.eps = LayerNorm, float32(s.floatOr("layer_norm_eps", 1e-5))
			d.kvHeads = d.heads
			d.act, d.gated = s.activation("hidden_act", "gelu"), false
			d.parallel = s.boolOr("use_parallel_residual", true)
			b := s.boolOr("attention_bias", true)
			d.bias = biases{qkv: b, o: b, ffn: true}
			d.ropes = []Rope{s.rope(d, s.floatOr("rotary_emb_base", 10000), s.floatOr("rotary_pct", 0.25), "")}
			return d
		},
		fromGGUF: func(k *keys) *decoder {
			d := k.common("gpt_neox")
			d.act, d.gated = GELU, false
			d.parallel = k.boolOr("use_parallel_residual", true)
			d.ropes = []Rope{k.rope(d, RopeHalf)}
			return d
		},
		toHF: func(c configWriter, g *Graph) {
			c.common(g)
			b := &g.Blocks[0]
			c["layer_norm_eps"], c["use_parallel_residual"] = g.Norm.Eps, b.Parallel
			c["rotary_pct"], c["rotary_emb_base"] = float64(g.Ropes[0].Dim)/float64(b.Attn.HeadDim), g.Ropes[0].Theta
		},
		hfLinks: []link{
			one("gpt_neox.embed_in", "embed"),
			one("gpt_neox.layers.#.input_layernorm", "blocks.#.attn_norm"),
			one("gpt_neox.layers.#.post_attention_layernorm", "blocks.#.ffn_norm"),
			{foreign: "gpt_neox.layers.#.attention.query_key_value", parts: []string{"blocks.#.attn.q", "blocks.#.attn.k", "blocks.#.attn.v"}, order: perHeadOrder},
			one("gpt_neox.layers.#.attention.dense", "blocks.#.attn.o"),
			one("gpt_neox.layers.#.mlp.dense_h_to_4h", "blocks.#.ffn.up"),
			one("gpt_neox.layers.#.mlp.dense_4h_to_h", "blocks.#.ffn.down"),
			one("gpt_neox.final_layer_norm", "norm"),
			one("embed_out", "head"),
			one("lm_head", "head"), // as transformers 5 writes it
		},
		ggufLinks: append([]link{ggufFused(nil)}, ggufDecoderLinks()...),
	}
}
