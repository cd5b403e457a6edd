package arch

import "github.com/nstf/nstf/formats/graph"

// hunYuanMoE is hunYuanDense with a mixture in every layer, beside a layer of the same
// width that all tokens go through.
//
// Sources: configuration_hunyuan_v1_moe.py and modeling_hunyuan_v1_moe.py of
// transformers, src/models/hunyuan-moe.cpp of llama.cpp.
func hunYuanMoE() *Architecture {
	return &Architecture{
		name: "hunyuan_v1_moe", class: "HunYuanMoEV1ForCausalLM", types: []string{"hunyuan_v1_moe"}, gguf: "hunyuan-moe",
		llama: &llamaCPP{wholeRope: true},
		fromHF: func(s *settings) *decoder {
			d := s.common("hunyuan_v1_moe", nil)
			d.eps = float32(s.floatOr("rms_norm_eps", 1e-5))
			d.headDim, d.qkNorm, d.lateNorms = s.int("head_dim"), true, true
			b := s.boolOr("attention_bias", false)
			d.bias = biases{qkv: b, o: b}
			d.ropes = []graph.Rope{s.hunYuanRope(d)}
			d.moe = moeParams{experts: s.intOr("num_local_experts", s.sameInt("num_experts", 1)), topK: s.intOr("num_experts_per_tok", s.sameInt("moe_topk", 1)),
				inner: d.inner, shared: d.inner, normalize: true}
			return d
		},
		fromGGUF: func(k *keys) *decoder {
			d := k.common("hunyuan_v1_moe")
			d.qkNorm, d.lateNorms = true, true
			d.ropes = []graph.Rope{k.rope(d, graph.RopeHalf)}
			d.moe = moeParams{experts: k.int("expert_count"), topK: k.int("expert_used_count"), inner: d.inner,
				shared: k.intOr("expert_shared_feed_forward_length", d.inner), normalize: true}
			return d
		},
		toHF: func(c configWriter, g *graph.Graph) {
			c.common(g)
			m, _ := experts(g)
			c["num_experts"], c["moe_topk"], c["intermediate_size"] = m.Experts, m.TopK, m.Up.Out
		},
		hfLinks: append([]Link{
			one("model.layers.#.self_attn.query_layernorm", "blocks.#.attn.q_norm"),
			one("model.layers.#.self_attn.key_layernorm", "blocks.#.attn.k_norm"),
			one("model.layers.#.mlp.gate.wg", "blocks.#.moe.router"),
			one("model.layers.#.mlp.experts.@.gate_proj", "blocks.#.moe.gate"),
			one("model.layers.#.mlp.experts.@.up_proj", "blocks.#.moe.up"),
			one("model.layers.#.mlp.experts.@.down_proj", "blocks.#.moe.down"),
			one("model.layers.#.mlp.shared_mlp.gate_proj", "blocks.#.moe.shared.gate"),
			one("model.layers.#.mlp.shared_mlp.up_proj", "blocks.#.moe.shared.up"),
			one("model.layers.#.mlp.shared_mlp.down_proj", "blocks.#.moe.shared.down"),
		}, append(hfStackedExperts(), hfDecoderLinks()...)...),
		ggufLinks: ggufDecoderLinks(),
	}
}

// sameInt reads an integer that may be given for each layer, the same for all.
func (s *settings) sameInt(key string, def int64) int64 {
	list, err := s.c.Ints(key)
	if err != nil || len(list) == 0 {
		return s.intOr(key, def)
	}
	s.read[key] = true
	for _, n := range list {
		if n != list[0] {
			s.refuse(key, "another for each layer")
		}
	}
	return list[0]
}
