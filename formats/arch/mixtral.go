package arch

import "github.com/nstf/nstf/formats/graph"

// mixtral is mistral with a mixture of experts in every layer; the chosen
// experts' weights sum to one. GGUF knows it as "llama" with expert_count.
//
// Sources: configuration_mixtral.py and modeling_mixtral.py of transformers.
func mixtral() *Architecture {
	return &Architecture{
		name: "mixtral", class: "MixtralForCausalLM", types: []string{"mixtral"}, covered: "llama",
		llama: llama().llama,
		fromHF: func(s *settings) *decoder {
			d := s.common("mixtral", map[string]int64{"num_key_value_heads": 8})
			d.eps = float32(s.floatOr("rms_norm_eps", 1e-5))
			d.ropes = []graph.Rope{s.rope(d, 1e6)}
			d.window = everyLayer(s.window(0))
			d.moe = moeParams{
				experts: s.intOr("num_experts", s.intOr("num_local_experts", 8)), topK: s.intOr("num_experts_per_tok", 2),
				inner: d.inner, normalize: true,
			}
			return d
		},
		toHF: func(c configWriter, g *graph.Graph) {
			c.common(g)
			c.mixture(g, "num_local_experts", "intermediate_size")
		},
		hfLinks: append([]Link{
			one("model.layers.#.block_sparse_moe.gate", "blocks.#.moe.router"),
			one("model.layers.#.block_sparse_moe.experts.@.w1", "blocks.#.moe.gate"),
			one("model.layers.#.block_sparse_moe.experts.@.w3", "blocks.#.moe.up"),
			one("model.layers.#.block_sparse_moe.experts.@.w2", "blocks.#.moe.down"),
		}, append(hfStackedExperts(), hfDecoderLinks()...)...),
		ggufLinks: llama().ggufLinks,
	}
}

// hfStackedExperts are the names under which transformers 5 keeps experts in
// memory, and some checkpoints on disk: one tensor for all experts.
func hfStackedExperts() []Link {
	return []Link{
		one("model.layers.#.mlp.gate", "blocks.#.moe.router"),
		{Foreign: "model.layers.#.mlp.experts.gate_up_proj", Parts: []string{"blocks.#.moe.gate", "blocks.#.moe.up"}, Order: perExpertOrder, Bare: true},
		{Foreign: "model.layers.#.mlp.experts.down_proj", Parts: []string{"blocks.#.moe.down"}, Bare: true},
	}
}
