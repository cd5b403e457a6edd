package arch

import "github.com/nstf/nstf/formats/graph"

// qwen2MoE is qwen2 with a mixture in every decoder_sparse_step-th layer but
// mlp_only_layers, and beside it a layer that all tokens go through, behind a gate
// of its own.
//
// Source: configuration_qwen2_moe.py and modeling_qwen2_moe.py of transformers.
func qwen2MoE() *Architecture {
	return &Architecture{
		name: "qwen2_moe", class: "Qwen2MoeForCausalLM", types: []string{"qwen2_moe"}, gguf: "qwen2moe",
		llama: &llamaCPP{copyHead: true, squareO: true},
		fromHF: func(s *settings) *decoder {
			d := s.common("qwen2_moe", map[string]int64{"num_key_value_heads": 16})
			d.bias.qkv = s.boolOr("qkv_bias", true)
			d.ropes = []graph.Rope{s.rope(d, 10000)}
			window := int64(0)
			if s.boolOr("use_sliding_window", false) {
				window = s.window(4096)
			}
			first := s.intOr("max_window_layers", 28)
			d.window = s.slidingLayers(window, d.layers, func(layer int) bool { return window > 0 && int64(layer) < first && layer%2 == 0 })
			s.qwen3Experts(d)
			d.moe.experts, d.moe.topK = s.intOr("num_experts", 60), s.intOr("num_experts_per_tok", 4)
			d.moe.inner, d.moe.shared = s.intOr("moe_intermediate_size", 1408), s.intOr("shared_expert_intermediate_size", 5632)
			d.moe.sharedGate = true
			return d
		},
		fromGGUF: func(k *keys) *decoder {
			d := k.qwen("qwen2")
			d.arch = "qwen2_moe"
			d.moe = moeParams{
				experts: k.int("expert_count"), topK: k.int("expert_used_count"), inner: k.int("expert_feed_forward_length"),
				shared: k.intOr("expert_shared_feed_forward_length", d.inner), sharedGate: true,
			}
			return d
		},
		toHF: func(c configWriter, g *graph.Graph) {
			c.layered(g)
			m, dense := c.mixture(g, "num_experts", "moe_intermediate_size")
			c["qkv_bias"] = g.Blocks[0].Attn.Q.Bias != ""
			c["shared_expert_intermediate_size"], c["norm_topk_prob"], c["mlp_only_layers"] = m.Shared.Up.Out, m.Normalize, dense
		},
		hfLinks: append([]Link{
			one("model.layers.#.mlp.experts.@.gate_proj", "blocks.#.moe.gate"),
			one("model.layers.#.mlp.experts.@.up_proj", "blocks.#.moe.up"),
			one("model.layers.#.mlp.experts.@.down_proj", "blocks.#.moe.down"),
			one("model.layers.#.mlp.shared_expert.gate_proj", "blocks.#.moe.shared.gate"),
			one("model.layers.#.mlp.shared_expert.up_proj", "blocks.#.moe.shared.up"),
			one("model.layers.#.mlp.shared_expert.down_proj", "blocks.#.moe.shared.down"),
			one("model.layers.#.mlp.shared_expert_gate", "blocks.#.moe.shared_gate"),
		}, append(hfStackedExperts(), hfDecoderLinks()...)...),
		ggufLinks: ggufDecoderLinks(),
	}
}
