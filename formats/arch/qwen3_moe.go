package arch

import (
	"slices"

	"github.com/nstf/nstf/formats/graph"
)

// qwen3MoE is qwen3 with a mixture in every decoder_sparse_step-th layer but
// mlp_only_layers. Qwen3-VL with experts holds one, with other defaults and, as it is
// published, stacks of experts that are transposed.
//
// Source: configuration_qwen3_moe.py, modeling_qwen3_moe.py, configuration_qwen3_vl_moe.py
// and conversion_mapping.py of transformers.
func qwen3MoE() *Architecture {
	return &Architecture{
		name: "qwen3_moe", class: "Qwen3MoeForCausalLM", types: []string{"qwen3_moe", "qwen3_vl_moe"}, gguf: "qwen3moe",
		also: []string{"qwen3vlmoe"}, within: true,
		llama: &llamaCPP{},
		fromHF: func(s *settings) *decoder {
			if s.kind == "qwen3_vl_moe" {
				d := s.common("qwen3_moe", map[string]int64{"num_key_value_heads": 16})
				d.tied = s.boolOr("tie_word_embeddings", true)
				s.qwen3(d, d.headDim, 500000)
				s.qwen3Experts(d)
				d.moe.experts, d.moe.topK = s.intOr("num_local_experts", s.intOr("num_experts", 60)), s.intOr("num_experts_per_tok", 4)
				d.moe.inner, d.moe.normalize = s.intOr("moe_intermediate_size", 1408), true
				return d
			}
			d := s.common("qwen3_moe", nil)
			s.qwen3(d, d.headDim, 10000)
			if s.boolOr("use_sliding_window", false) {
				d.window = everyLayer(s.window(4096))
			}
			s.qwen3Experts(d)
			return d
		},
		fromGGUF: func(k *keys) *decoder {
			d := k.qwen("qwen3_moe")
			d.moe = moeParams{
				experts: k.int("expert_count"), topK: k.int("expert_used_count"), inner: k.int("expert_feed_forward_length"),
				normalize: k.boolOr("expert_weights_norm", true),
				sparse:    func(layer int) bool { return k.hasTensor(Fill("blk.#.ffn_gate_inp.weight", layer, 0)) },
			}
			return d
		},
		toHF: func(c configWriter, g *graph.Graph) {
			c.common(g)
			m, dense := c.mixture(g, "num_experts", "moe_intermediate_size")
			c["norm_topk_prob"], c["mlp_only_layers"] = m.Normalize, dense
		},
		hfLinks: append([]Link{
			one("model.layers.#.mlp.experts.@.gate_proj", "blocks.#.moe.gate"),
			one("model.layers.#.mlp.experts.@.up_proj", "blocks.#.moe.up"),
			one("model.layers.#.mlp.experts.@.down_proj", "blocks.#.moe.down"),
			{Foreign: "model.layers.#.mlp.experts.gate_up_proj", Parts: []string{"blocks.#.moe.gate", "blocks.#.moe.up"}, Order: perExpertOrder, Bare: true, Either: true},
			{Foreign: "model.layers.#.mlp.experts.down_proj", Parts: []string{"blocks.#.moe.down"}, Bare: true, Either: true},
		}, append(hfStackedExperts(), hfDecoderLinks()...)...),
		ggufLinks: ggufDecoderLinks(),
	}
}

func (s *settings) qwen3Experts(d *decoder) {
	step := s.intOr("decoder_sparse_step", 1)
	if step < 1 {
		s.bad("decoder_sparse_step", step)
		return
	}
	var dense []int64
	if s.has("mlp_only_layers") {
		var err error
		dense, err = s.c.Ints("mlp_only_layers") // which has says is read
		s.note(err)
	}
	d.moe = moeParams{
		experts: s.intOr("num_local_experts", s.intOr("num_experts", 128)), topK: s.intOr("num_experts_per_tok", 8),
		inner: s.intOr("moe_intermediate_size", 768), normalize: s.boolOr("norm_topk_prob", false),
		sparse: func(layer int) bool {
			return !slices.Contains(dense, int64(layer)) && (int64(layer)+1)%step == 0
		},
	}
}
