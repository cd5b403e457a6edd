package arch

import "github.com/nstf/nstf/formats/graph"

// lfm2MoE is lfm2 with mixtures in all layers but the first: a router by sigmoid, whose
// choice a bias may move.
//
// Source: configuration_lfm2_moe.py and modeling_lfm2_moe.py of transformers 5.23;
// src/models/lfm2moe.cpp of llama.cpp.
func lfm2MoE() *Architecture {
	return &Architecture{
		name: "lfm2_moe", class: "Lfm2MoeForCausalLM", types: []string{"lfm2_moe"}, gguf: "lfm2moe",
		llama: lfm2Llama(),
		fromHF: func(s *settings) *decoder {
			d := s.lfm2("lfm2_moe", 7168)
			first := s.intOr("num_dense_layers", 2)
			d.moe = moeParams{
				experts: s.intOr("num_local_experts", s.intOr("num_experts", 32)), topK: s.intOr("num_experts_per_tok", 4),
				inner: s.intOr("moe_intermediate_size", 1792), normalize: s.boolOr("norm_topk_prob", true),
				sparse: func(layer int) bool { return int64(layer) >= first },
			}
			d.lfm2Router(s.boolOr("use_expert_bias", true), s.positive("routed_scaling_factor", 1))
			return d
		},
		fromGGUF: func(k *keys) *decoder {
			d := k.lfm2("lfm2_moe")
			first := k.intOr("leading_dense_block_count", 0)
			d.moe = moeParams{
				experts: k.int("expert_count"), topK: k.int("expert_used_count"), inner: k.int("expert_feed_forward_length"),
				normalize: true, sparse: func(layer int) bool { return int64(layer) >= first },
			}
			k.sigmoidGating()
			d.lfm2Router(true, 1)
			return d
		},
		toHF: func(c configWriter, g *graph.Graph) {
			c.lfm2(g)
			m, dense := c.mixture(g, "num_experts", "moe_intermediate_size")
			c["num_dense_layers"], c["norm_topk_prob"], c["routed_scaling_factor"] = len(dense), m.Normalize, m.Factor()
			c["use_expert_bias"] = m.SelectBias != ""
		},
		toGGUF: func(w *keyWriter, g *graph.Graph) {
			w.lfm2(g)
			_, dense := experts(g)
			w.int("leading_dense_block_count", int64(len(dense)))
			w.int("expert_gating_func", ggufSigmoid)
		},
		hfLinks: append([]Link{
			one("model.layers.#.feed_forward.gate", "blocks.#.moe.router"),
			one("model.layers.#.feed_forward.expert_bias", "blocks.#.moe.select_bias"),
			one("model.layers.#.feed_forward.experts.@.w1", "blocks.#.moe.gate"),
			one("model.layers.#.feed_forward.experts.@.w3", "blocks.#.moe.up"),
			one("model.layers.#.feed_forward.experts.@.w2", "blocks.#.moe.down"),
			{Foreign: "model.layers.#.feed_forward.experts.gate_up_proj", Parts: []string{"blocks.#.moe.gate", "blocks.#.moe.up"}, Order: perExpertOrder, Bare: true},
			{Foreign: "model.layers.#.feed_forward.experts.down_proj", Parts: []string{"blocks.#.moe.down"}, Bare: true},
		}, hfLFM2Links()...),
		ggufLinks: ggufLFM2Links(),
	}
}

// lfm2Router gives mixtures their router, beside what convolutions change of a block.
func (d *decoder) lfm2Router(biased bool, scale float32) {
	convolutions := d.each
	d.sigmoidRouter(graph.MoE{Epsilon: 1e-6, Scale: scale})
	router := d.each
	d.each = func(layer int, b *graph.Block) {
		convolutions(layer, b)
		router(layer, b)
		if b.MoE != nil && !biased {
			b.MoE.SelectBias = ""
		}
	}
}
