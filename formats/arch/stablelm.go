package arch

import "github.com/nstf/nstf/formats/graph"

// stableLM is llama with LayerNorms that rotates a quarter of each head;
// use_parallel_residual lets both branches read one norm, qk_layernorm gives query and
// key norms with weights for each head.
//
// Source: configuration_stablelm.py and modeling_stablelm.py of transformers.
func stableLM() *Architecture {
	return &Architecture{
		name: "stablelm", class: "StableLmForCausalLM", types: []string{"stablelm"}, gguf: "stablelm",
		llama: &llamaCPP{copyHead: true, parallel: true, squareO: true, noFFNBias: true},
		fromHF: func(s *settings) *decoder {
			d := s.common("stablelm", map[string]int64{"num_key_value_heads": 32})
			d.norm, d.eps = graph.LayerNorm, float32(s.floatOr("layer_norm_eps", 1e-5))
			d.parallel = s.boolOr("use_parallel_residual", false)
			d.oneNorm = d.parallel
			d.bias.qkv = s.boolOr("use_qkv_bias", false)
			if d.headDim != d.width/max(d.heads, 1) {
				s.refuse("head_dim", d.headDim) // which transformers takes for the rotary embedding alone
			}
			d.qkNorm = s.boolOr("qk_layernorm", false)
			d.headNorms = d.qkNorm
			p := s.ropeObject()
			d.ropes = []graph.Rope{s.rotation(d, p, s.base(p, "rope_theta", 10000), s.floatOr("partial_rotary_factor", 0.25))}
			return d
		},
		fromGGUF: func(k *keys) *decoder {
			d := k.common("stablelm")
			d.parallel = !k.hasTensor("blk.0.ffn_norm.weight") // as llama.cpp does, whatever the key says
			d.oneNorm = d.parallel
			d.qkNorm = k.hasTensor("blk.0.attn_q_norm.weight")
			d.headNorms = d.qkNorm
			d.ropes = []graph.Rope{k.rope(d, graph.RopeHalf)}
			return d
		},
		toHF: func(c configWriter, g *graph.Graph) {
			c.common(g)
			b := &g.Blocks[0]
			c["partial_rotary_factor"] = float64(g.Ropes[0].Dim) / float64(b.Attn.HeadDim)
			c["layer_norm_eps"], c["use_parallel_residual"], c["use_qkv_bias"] = g.Norm.Eps, b.Parallel, b.Attn.Q.Bias != ""
			c["qk_layernorm"] = b.Attn.QNorm != nil
		},
		hfLinks: append([]Link{
			{Foreign: "model.layers.#.self_attn.q_layernorm.norms.@", Parts: []string{"blocks.#.attn.q_norm"}},
			{Foreign: "model.layers.#.self_attn.k_layernorm.norms.@", Parts: []string{"blocks.#.attn.k_norm"}},
		}, hfDecoderLinks()...),
		ggufLinks: ggufDecoderLinks(),
	}
}
