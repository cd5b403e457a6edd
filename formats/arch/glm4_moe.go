package arch

import (
	"strings"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
)

// glm4MoE is GLM-4.5 to 4.7 and their Air: the first layers dense, then mixtures whose
// router scores by sigmoid and chooses among groups with a bias, beside a layer that
// all tokens go through; rotary embeddings of half of each head. Behind the last layer
// a checkpoint keeps modules of multi-token prediction, which transformers leaves out.
//
// Source: configuration_glm4_moe.py and modeling_glm4_moe.py of transformers 5.23;
// llama.cpp's conversion/glm.py and src/models/glm4-moe.cpp.
func glm4MoE() *Architecture {
	return &Architecture{
		name: "glm4_moe", class: "Glm4MoeForCausalLM", types: []string{"glm4_moe"}, gguf: "glm4moe",
		llama: &llamaCPP{denseLead: true},
		fromHF: func(s *settings) *decoder {
			d := s.common("glm4_moe", map[string]int64{"num_key_value_heads": 8})
			d.eps = float32(s.floatOr("rms_norm_eps", 1e-5))
			d.bias.qkv, d.qkNorm = s.boolOr("attention_bias", false), s.boolOr("use_qk_norm", false)
			p := s.ropeObject()
			d.ropes = []graph.Rope{s.rotation(d, p, s.base(p, "rope_theta", 10000), s.floatOr("partial_rotary_factor", 0.5))}
			first := s.intOr("first_k_dense_replace", 1)
			d.moe = moeParams{
				experts: s.intOr("num_local_experts", s.intOr("n_routed_experts", 128)), topK: s.intOr("num_experts_per_tok", 8),
				inner: s.intOr("moe_intermediate_size", 1408), normalize: s.boolOr("norm_topk_prob", true),
				sparse: func(layer int) bool { return int64(layer) >= first },
			}
			d.moe.shared = s.sharedWidth("n_shared_experts", 1, d.moe.inner)
			d.mtp = s.intOr("num_mtp_layers", s.intOr("num_nextn_predict_layers", 1))
			groups, top := s.routerGroups(1, 1)
			d.sigmoidRouter(graph.MoE{Groups: groups, TopGroups: top, Epsilon: 1e-20, Scale: s.positive("routed_scaling_factor", 1)})
			return d
		},
		fromGGUF: func(k *keys) *decoder {
			d := k.common("glm4_moe")
			d.qkNorm = k.hasTensor("blk.0.attn_q_norm.weight")
			d.ropes = []graph.Rope{k.rope(d, graph.RopeHalf)}
			d.mtp = k.intOr("nextn_predict_layers", 0)
			d.layers -= int(min(max(d.mtp, 0), int64(d.layers)-1))
			first := k.intOr("leading_dense_block_count", 0)
			d.moe = moeParams{
				experts: k.int("expert_count"), topK: k.int("expert_used_count"), inner: k.int("expert_feed_forward_length"),
				normalize: k.boolOr("expert_weights_norm", false), sparse: func(layer int) bool { return int64(layer) >= first },
			}
			d.moe.shared = d.moe.inner * min(max(k.int("expert_shared_count"), 0), 1<<16)
			k.sigmoidGating()
			d.sigmoidRouter(graph.MoE{Epsilon: 1e-20, Scale: float32(k.floatOr("expert_weights_scale", 1))})
			return d
		},
		toHF: func(c configWriter, g *graph.Graph) {
			c.common(g)
			c["partial_rotary_factor"] = float64(g.Ropes[0].Dim) / float64(g.Blocks[0].Attn.HeadDim)
			c["attention_bias"], c["use_qk_norm"] = g.Blocks[0].Attn.Q.Bias != "", g.Blocks[0].Attn.QNorm != nil
			m, dense := c.mixture(g, "n_routed_experts", "moe_intermediate_size")
			c["norm_topk_prob"], c["first_k_dense_replace"], c["num_nextn_predict_layers"] = m.Normalize, len(dense), len(g.MTP)
			c["n_group"], c["topk_group"], c["routed_scaling_factor"] = max(m.Groups, 1), max(m.TopGroups, 1), m.Factor()
			c["n_shared_experts"] = sharedExperts(m)
		},
		toGGUF: func(w *keyWriter, g *graph.Graph) {
			m, dense := mixed(g)
			w.int("leading_dense_block_count", int64(len(dense)))
			w.int("expert_shared_count", sharedExperts(m))
			w.int("expert_gating_func", ggufSigmoid)
			w.float("expert_weights_scale", float64(m.Factor()))
			w.raw(w.prefix+"expert_weights_norm", m.Normalize)
			if n := int64(len(g.MTP)); n > 0 {
				w.int("nextn_predict_layers", n)
			}
		},
		hfLinks:   append(hfGLMLinks(), behindLinks(hfMTPLinks(), hfGLMLinks())...),
		ggufLinks: append(ggufGLMLinks(), behindLinks(ggufMTPLinks(), ggufGLMLinks())...),
	}
}

func hfGLMLinks() []Link {
	return append([]Link{
		one("model.layers.#.mlp.experts.@.gate_proj", "blocks.#.moe.gate"),
		one("model.layers.#.mlp.experts.@.up_proj", "blocks.#.moe.up"),
		one("model.layers.#.mlp.experts.@.down_proj", "blocks.#.moe.down"),
		one("model.layers.#.mlp.gate.e_score_correction_bias", "blocks.#.moe.select_bias"),
		one("model.layers.#.mlp.shared_experts.gate_proj", "blocks.#.moe.shared.gate"),
		one("model.layers.#.mlp.shared_experts.up_proj", "blocks.#.moe.shared.up"),
		one("model.layers.#.mlp.shared_experts.down_proj", "blocks.#.moe.shared.down"),
	}, append(hfStackedExperts(), hfDecoderLinks()...)...)
}

// hfMTPLinks are what modules of multi-token prediction have beside their block, as
// DeepSeek-V3 names them.
func hfMTPLinks() []Link {
	return []Link{
		one("model.layers.#.enorm", "mtp.#.embed_norm"),
		one("model.layers.#.hnorm", "mtp.#.hidden_norm"),
		one("model.layers.#.eh_proj", "mtp.#.project"),
		one("model.layers.#.embed_tokens", "mtp.#.embed"),
		one("model.layers.#.shared_head.norm", "mtp.#.norm"),
		one("model.layers.#.shared_head.head", "mtp.#.head"),
	}
}

func ggufGLMLinks() []Link {
	return append([]Link{
		one("blk.#.post_attention_norm", "blocks.#.ffn_norm"),
		ggufSelectBias,
	}, ggufDecoderLinks()...)
}

func ggufMTPLinks() []Link {
	return []Link{
		one("blk.#.nextn.enorm", "mtp.#.embed_norm"),
		one("blk.#.nextn.hnorm", "mtp.#.hidden_norm"),
		one("blk.#.nextn.eh_proj", "mtp.#.project"),
		one("blk.#.nextn.embed_tokens", "mtp.#.embed"),
		one("blk.#.nextn.shared_head_norm", "mtp.#.norm"),
		one("blk.#.nextn.shared_head_head", "mtp.#.head"),
	}
}

// sigmoidRouter gives every mixture a router by sigmoid with a bias for the choice,
// and the constants that m has.
func (d *decoder) sigmoidRouter(m graph.MoE) {
	d.each = func(_ int, b *graph.Block) {
		x := b.MoE
		if x == nil {
			return
		}
		x.Score, x.SelectBias = graph.ScoreSigmoid, strings.TrimSuffix(x.Router.Weight, "router.weight")+"select_bias"
		x.Groups, x.TopGroups, x.Epsilon, x.Scale = m.Groups, m.TopGroups, m.Epsilon, m.Scale
		if x.Scale == 1 {
			x.Scale = 0
		}
	}
}

// sharedWidth reads how many experts' width the layer has that all tokens go through.
func (s *settings) sharedWidth(key string, def, inner int64) int64 {
	n := s.intOr(key, def)
	if n < 0 || n > 1<<16 {
		s.bad(key, n)
		return 0
	}
	return n * inner
}

// ggufSigmoid is llama.cpp's number of the router's score by sigmoid.
const ggufSigmoid = 2

// sigmoidGating refuses a file whose router scores otherwise.
func (k *keys) sigmoidGating() {
	if v := k.intOr("expert_gating_func", ggufSigmoid); v != ggufSigmoid && v != 0 {
		k.note(formats.Unsupportedf(k.f.Name(), k.prefix+"expert_gating_func", "value %d", v))
	}
}
