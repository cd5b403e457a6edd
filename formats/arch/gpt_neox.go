package arch

import "github.com/nstf/nstf/formats/graph"

// gptNeoX runs both branches in parallel behind two LayerNorms, unless
// use_parallel_residual is false, and fuses query, key and value per head.
//
// Source: configuration_gpt_neox.py and modeling_gpt_neox.py of transformers.
func gptNeoX() *Architecture {
	return &Architecture{
		name: "gpt_neox", class: "GPTNeoXForCausalLM", types: []string{"gpt_neox"}, gguf: "gptneox",
		llama: &llamaCPP{outputBias: required, copyHead: true, parallel: true, squareO: true},
		fromHF: func(s *settings) *decoder {
			d := s.common("gpt_neox", nil)
			d.norm, d.eps = graph.LayerNorm, float32(s.floatOr("layer_norm_eps", 1e-5))
			d.kvHeads = d.heads
			d.act, d.gated = s.activation("hidden_act", "gelu"), false
			d.parallel = s.boolOr("use_parallel_residual", true)
			b := s.boolOr("attention_bias", true)
			d.bias = biases{qkv: b, o: b, ffn: true}
			if d.headDim != d.width/max(d.heads, 1) {
				s.refuse("head_dim", d.headDim) // which transformers takes for the rotary embedding alone
			}
			p := s.ropeObject()
			d.ropes = []graph.Rope{s.rotation(d, p, s.base(p, "rotary_emb_base", 10000), s.floatOr("rotary_pct", 0.25))}
			return d
		},
		fromGGUF: func(k *keys) *decoder {
			d := k.common("gpt_neox")
			d.act, d.gated = graph.GELU, false
			d.parallel = k.boolOr("use_parallel_residual", true)
			d.ropes = []graph.Rope{k.rope(d, graph.RopeHalf)}
			return d
		},
		toHF: func(c configWriter, g *graph.Graph) {
			c.common(g)
			delete(c, "rope_theta") // which its class calls otherwise
			delete(c, "partial_rotary_factor")
			b := &g.Blocks[0]
			c["layer_norm_eps"], c["use_parallel_residual"] = g.Norm.Eps, b.Parallel
			c["rotary_pct"], c["rotary_emb_base"] = float64(g.Ropes[0].Dim)/float64(b.Attn.HeadDim), g.Ropes[0].Theta
		},
		hfLinks: []Link{
			one("gpt_neox.embed_in", "embed"),
			one("gpt_neox.layers.#.input_layernorm", "blocks.#.attn_norm"),
			one("gpt_neox.layers.#.post_attention_layernorm", "blocks.#.ffn_norm"),
			{Foreign: "gpt_neox.layers.#.attention.query_key_value", Parts: []string{"blocks.#.attn.q", "blocks.#.attn.k", "blocks.#.attn.v"}, Order: perHeadOrder},
			one("gpt_neox.layers.#.attention.dense", "blocks.#.attn.o"),
			one("gpt_neox.layers.#.mlp.dense_h_to_4h", "blocks.#.ffn.up"),
			one("gpt_neox.layers.#.mlp.dense_4h_to_h", "blocks.#.ffn.down"),
			one("gpt_neox.final_layer_norm", "norm"),
			one("embed_out", "head"),
			one("lm_head", "head"), // as transformers 5 writes it
		},
		ggufLinks: append([]Link{ggufFused(nil)}, ggufDecoderLinks()...),
	}
}
