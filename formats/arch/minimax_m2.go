package arch

import "github.com/nstf/nstf/formats/graph"

// miniMaxM2 is MiniMax-M2: a mixture in every layer whose router scores by sigmoid and
// chooses with a bias, norms of query and key over all heads at once, and rotary
// embeddings of a part of each head, which published configurations count by rotary_dim.
//
// Source: configuration_minimax_m2.py and modeling_minimax_m2.py of transformers 5.23;
// llama.cpp's conversion/minimax.py and src/models/minimax-m2.cpp.
func miniMaxM2() *Architecture {
	return &Architecture{
		name: "minimax_m2", class: "MiniMaxM2ForCausalLM", types: []string{"minimax_m2"}, gguf: "minimax-m2",
		llama: &llamaCPP{copyHead: true},
		fromHF: func(s *settings) *decoder {
			d := s.common("minimax_m2", map[string]int64{"intermediate_size": 1536, "num_key_value_heads": 8})
			s.headSize(d, 128)
			d.qkNorm, d.jointNorms = true, true
			s.miniMaxCode()
			partial := s.floatOr("partial_rotary_factor", 1)
			if n := s.intOr("rotary_dim", 0); s.has("rotary_dim") && !s.has("partial_rotary_factor") && d.headDim > 0 {
				partial = float64(n) / float64(d.headDim)
			}
			p := s.ropeObject()
			d.ropes = []graph.Rope{s.rotation(d, p, s.base(p, "rope_theta", 5000000), partial)}
			d.moe = moeParams{experts: s.intOr("num_local_experts", s.intOr("num_experts", 256)), topK: s.intOr("num_experts_per_tok", 8), inner: d.inner, normalize: true}
			d.sigmoidRouter(graph.MoE{})
			return d
		},
		fromGGUF: func(k *keys) *decoder {
			d := k.common("minimax_m2")
			d.qkNorm, d.jointNorms = true, true
			d.ropes = []graph.Rope{k.rope(d, graph.RopeHalf)}
			d.moe = moeParams{experts: k.int("expert_count"), topK: k.int("expert_used_count"), inner: k.int("expert_feed_forward_length"), normalize: true}
			k.sigmoidGating()
			d.sigmoidRouter(graph.MoE{})
			return d
		},
		toHF: func(c configWriter, g *graph.Graph) {
			c.common(g)
			delete(c, "attention_bias")
			c.mixture(g, "num_local_experts", "intermediate_size")
			delete(c, "partial_rotary_factor")
			c["rotary_dim"] = g.Ropes[0].Dim
		},
		toGGUF: func(w *keyWriter, _ *graph.Graph) { w.int("expert_gating_func", ggufSigmoid) },
		hfLinks: append([]Link{
			one("model.layers.#.block_sparse_moe.gate", "blocks.#.moe.router"),
			bare("model.layers.#.block_sparse_moe.e_score_correction_bias", "blocks.#.moe.select_bias"),
			one("model.layers.#.block_sparse_moe.experts.@.w1", "blocks.#.moe.gate"),
			one("model.layers.#.block_sparse_moe.experts.@.w3", "blocks.#.moe.up"),
			one("model.layers.#.block_sparse_moe.experts.@.w2", "blocks.#.moe.down"),
			bare("model.layers.#.mlp.e_score_correction_bias", "blocks.#.moe.select_bias"),
		}, append(hfStackedExperts(), hfDecoderLinks()...)...),
		ggufLinks: append([]Link{ggufSelectBias}, ggufDecoderLinks()...),
	}
}

// miniMaxCode refuses what the keys of published configurations may say and the code
// of transformers does not do.
func (s *settings) miniMaxCode() {
	for _, f := range []struct {
		key  string
		want bool
	}{{"use_qk_norm", true}, {"use_routing_bias", true}} {
		if s.boolOr(f.key, f.want) != f.want {
			s.refuse(f.key, !f.want)
		}
	}
	for _, f := range []struct{ key, want string }{{"scoring_func", "sigmoid"}, {"qk_norm_type", "per_layer"}} {
		if v := s.stringOr(f.key, f.want); v != f.want {
			s.refuse(f.key, v)
		}
	}
	if n := s.intOr("shared_intermediate_size", 0); n != 0 {
		s.refuse("shared_intermediate_size", n)
	}
	if s.has("attn_type_list") {
		list, err := s.c.Ints("attn_type_list")
		s.note(err)
		for _, n := range list {
			if n != 1 {
				s.refuse("attn_type_list", n)
			}
		}
	}
}
