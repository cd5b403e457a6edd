package arch

import (
	"strings"

	"github.com/nstf/nstf/formats/graph"
)

// ernie45MoE is ernie45 with mixtures from a layer on, whose router scores by softmax,
// chooses with a bias and divides by a sum of at least moe_norm_min, beside a layer that
// all tokens go through.
//
// Sources: configuration_ernie4_5_moe.py and modeling_ernie4_5_moe.py of transformers,
// src/models/ernie4-5-moe.cpp of llama.cpp.
func ernie45MoE() *Architecture {
	return &Architecture{
		name: "ernie4_5_moe", class: "Ernie4_5_MoeForCausalLM", types: []string{"ernie4_5_moe"}, gguf: "ernie4_5-moe",
		llama: &llamaCPP{wholeRope: true, denseLead: true},
		fromHF: func(s *settings) *decoder {
			d := s.common("ernie4_5_moe", map[string]int64{"num_key_value_heads": 4})
			d.eps = float32(s.floatOr("rms_norm_eps", 1e-5))
			d.tied = s.boolOr("tie_word_embeddings", true)
			if s.boolOr("use_bias", false) {
				s.refuse("use_bias", true)
			}
			d.ropes = []graph.Rope{s.rope(d, 500000)}
			d.ropes[0].Style = graph.RopeInterleaved
			d.moe = moeParams{experts: s.intOr("moe_num_experts", s.intOr("num_experts", 64)), topK: s.intOr("moe_k", s.intOr("num_experts_per_tok", 6)),
				inner: s.intOr("moe_intermediate_size", 1536), normalize: true}
			d.moe.shared = s.sharedWidth("moe_num_shared_experts", 2, d.moe.inner)
			first, last, every := s.intOr("moe_layer_start_index", 1), s.intOr("moe_layer_end_index", -1), s.intOr("moe_layer_interval", 1)
			if last == -1 {
				last = int64(d.layers) - 1
			}
			if every < 1 {
				s.bad("moe_layer_interval", every)
				every = 1
			}
			d.moe.sparse = func(layer int) bool { n := int64(layer); return (n+1)%every == 0 && n >= first && n <= last }
			d.flooredRouter(float32(s.floatOr("moe_norm_min", 1e-12)))
			return d
		},
		fromGGUF: func(k *keys) *decoder {
			d := k.common("ernie4_5_moe")
			d.ropes = []graph.Rope{k.rope(d, graph.RopeInterleaved)}
			first, every := k.intOr("leading_dense_block_count", 0), max(k.int("interleave_moe_layer_step"), 1)
			d.moe = moeParams{experts: k.int("expert_count"), topK: k.int("expert_used_count"), inner: k.int("expert_feed_forward_length"),
				shared: k.intOr("expert_shared_feed_forward_length", 0), normalize: true}
			d.moe.sparse = func(layer int) bool { n := int64(layer); return (n+1)%every == 0 && n >= first }
			d.flooredRouter(1e-12)
			return d
		},
		toHF: func(c configWriter, g *graph.Graph) {
			c.common(g)
			delete(c, "head_dim")
			delete(c, "attention_bias")
			m, dense := mixed(g)
			c["moe_num_experts"], c["moe_k"], c["moe_intermediate_size"], c["moe_norm_min"] = m.Experts, m.TopK, m.Up.Out, m.Floor
			c["moe_layer_start_index"], c["moe_num_shared_experts"] = len(dense), sharedExperts(m)
		},
		toGGUF: func(w *keyWriter, g *graph.Graph) {
			_, dense := experts(g)
			w.int("leading_dense_block_count", int64(len(dense)))
			w.int("interleave_moe_layer_step", 1)
		},
		hfLinks: append([]Link{
			one("model.layers.#.mlp.experts.@.gate_proj", "blocks.#.moe.gate"),
			one("model.layers.#.mlp.experts.@.up_proj", "blocks.#.moe.up"),
			one("model.layers.#.mlp.experts.@.down_proj", "blocks.#.moe.down"),
			{Foreign: "model.layers.#.mlp.moe_statics.e_score_correction_bias", Parts: []string{"blocks.#.moe.select_bias"}, Shape: oneGroup},
			{Foreign: "model.layers.#.mlp.gate.moe_statics.e_score_correction_bias", Parts: []string{"blocks.#.moe.select_bias"}, Shape: oneGroup},
			one("model.layers.#.mlp.shared_experts.gate_proj", "blocks.#.moe.shared.gate"),
			one("model.layers.#.mlp.shared_experts.up_proj", "blocks.#.moe.shared.up"),
			one("model.layers.#.mlp.shared_experts.down_proj", "blocks.#.moe.shared.down"),
		}, append(hfStackedExperts(), hfDecoderLinks()...)...),
		ggufLinks: append([]Link{ggufSelectBias}, ggufDecoderLinks()...),
	}
}

// oneGroup is the shape of a bias that a checkpoint has by groups, of which there is one.
func oneGroup(g *graph.Graph, block int) []int64 { return []int64{1, g.Blocks[block].MoE.Experts} }

// flooredRouter gives every mixture a bias for the choice and a floor of what it divides by.
func (d *decoder) flooredRouter(floor float32) {
	d.each = func(_ int, b *graph.Block) {
		if m := b.MoE; m != nil {
			m.SelectBias, m.Floor = strings.TrimSuffix(m.Router.Weight, "router.weight")+"select_bias", floor
		}
	}
}
