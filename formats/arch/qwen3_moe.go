package arch

import (
	"slices"

	"github.com/nstf/nstf/formats/graph"
)

// qwen3MoE is qwen3 with a mixture in every decoder_sparse_step-th layer but
// mlp_only_layers. The GGUF of Qwen3-VL with experts is one.
//
// Source: configuration_qwen3_moe.py and modeling_qwen3_moe.py of transformers.
func qwen3MoE() *Architecture {
	return &Architecture{
		name: "qwen3_moe", class: "Qwen3MoeForCausalLM", types: []string{"qwen3_moe"}, gguf: "qwen3moe",
		also:  []string{"qwen3vlmoe"},
		llama: &llamaCPP{},
		fromHF: func(s *settings) *decoder {
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
			m, dense := experts(g)
			c["num_experts"], c["num_experts_per_tok"], c["moe_intermediate_size"] = m.Experts, m.TopK, m.Up.Out
			c["norm_topk_prob"], c["mlp_only_layers"] = m.Normalize, dense
		},
		hfLinks: append([]Link{
			one("model.layers.#.mlp.experts.@.gate_proj", "blocks.#.moe.gate"),
			one("model.layers.#.mlp.experts.@.up_proj", "blocks.#.moe.up"),
			one("model.layers.#.mlp.experts.@.down_proj", "blocks.#.moe.down"),
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
