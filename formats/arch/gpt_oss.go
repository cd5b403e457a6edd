package arch

import (
	"strings"

	"github.com/nstf/nstf/formats/graph"
)

// gptOSS has a mixture in every layer, whose experts' gates are limited, a sink per
// head, biases on everything but norms and head, and a window in every other layer,
// the first among them. Its router chooses by logits; a softmax over the chosen
// gives their weights.
//
// Checkpoints keep the experts in MXFP4, gate and up taking turns row by row, or plain
// and then transposed. llama.cpp rounds the bounds of yarn's ramp, which the model
// does not (truncate is false in its config.json): a GGUF is read as the model means it.
//
// Sources: configuration_gpt_oss.py and modeling_gpt_oss.py of transformers 5.23;
// llama.cpp's conversion/gpt_oss.py and src/models/openai-moe.cpp.
func gptOSS() *Architecture {
	return &Architecture{
		name: "gpt_oss", class: "GptOssForCausalLM", types: []string{"gpt_oss"}, gguf: "gpt-oss",
		llama: &llamaCPP{outputBias: required, window: required, windowed: true, ownRamp: true},
		fromHF: func(s *settings) *decoder {
			d := s.common("gpt_oss", map[string]int64{"num_key_value_heads": 8})
			if !s.null("head_dim") {
				d.headDim = s.intOr("head_dim", 64)
			}
			d.eps = float32(s.floatOr("rms_norm_eps", 1e-5))
			d.act = graph.SiLU // whatever hidden_act says: the class does not look at it
			b := s.boolOr("attention_bias", true)
			d.bias = biases{qkv: b, o: b}
			d.ropes = []graph.Rope{s.gptOSSRope(d)}
			d.window = s.slidingLayers(s.window(128), d.layers, func(layer int) bool { return layer%2 == 0 })
			d.moe = moeParams{
				experts: s.intOr("num_experts", s.intOr("num_local_experts", 128)), topK: s.intOr("num_experts_per_tok", 4), inner: d.inner,
			}
			g := graph.Gating{Alpha: s.positive("swiglu_alpha", gptOSSAlpha), Limit: s.positive("swiglu_limit", gptOSSLimit), UpOffset: 1}
			d.gptOSS(g)
			return d
		},
		fromGGUF: func(k *keys) *decoder {
			d := k.common("gpt_oss")
			d.ropes = []graph.Rope{k.rope(d, graph.RopeHalf)}
			d.ropes[0].Scaling.Truncate = false
			d.window = k.slidingLayers(k.int("attention.sliding_window"), d.layers, 2)
			d.moe = moeParams{experts: k.int("expert_count"), topK: k.int("expert_used_count"), inner: k.int("expert_feed_forward_length")}
			d.gptOSS(graph.Gating{Alpha: gptOSSAlpha, Limit: gptOSSLimit, UpOffset: 1})
			return d
		},
		toHF: func(c configWriter, g *graph.Graph) {
			c.layered(g)
			m, _ := c.mixture(g, "num_local_experts", "intermediate_size")
			c["swiglu_alpha"], c["swiglu_limit"] = m.Alpha, m.Limit
			if r, ok := c["rope_scaling"].(map[string]any); ok {
				r["truncate"] = g.Ropes[0].Scaling.Truncate
			} else {
				c["rope_parameters"] = map[string]any{"rope_type": "default", "rope_theta": g.Ropes[0].Theta}
			}
		},
		hfLinks: append([]Link{
			one("model.layers.#.self_attn.sinks", "blocks.#.attn.sinks"),
			one("model.layers.#.mlp.router", "blocks.#.moe.router"),
			{Foreign: "model.layers.#.mlp.experts.gate_up_proj", Parts: []string{"blocks.#.moe.gate", "blocks.#.moe.up"}, Alternating: true, Transposed: true, Bare: true},
			{Foreign: "model.layers.#.mlp.experts.down_proj", Parts: []string{"blocks.#.moe.down"}, Transposed: true, Bare: true},
		}, hfDecoderLinks()...),
		ggufLinks: append([]Link{
			one("blk.#.attn_sinks.weight", "blocks.#.attn.sinks"),
			one("blk.#.post_attention_norm", "blocks.#.ffn_norm"),
		}, ggufDecoderLinks()...),
	}
}

// The constants of its gates, which GGUF does not say. Source: build_moe_ffn in
// llama.cpp's src/llama-graph.cpp, and the defaults of the configuration class.
const (
	gptOSSAlpha = 1.702
	gptOSSLimit = 7
)

// gptOSS gives every block what no other architecture has.
func (d *decoder) gptOSS(gates graph.Gating) {
	d.each = func(_ int, b *graph.Block) {
		a, m := b.Attn, b.MoE
		a.Sinks = strings.TrimSuffix(a.Q.Weight, ".q.weight") + ".sinks"
		m.Score, m.Gating = graph.ScoreSelected, gates
		for _, l := range []*graph.Linear{&m.Router, m.Gate, &m.Up, &m.Down} {
			l.Bias = strings.TrimSuffix(l.Weight, ".weight") + ".bias"
		}
	}
}

// gptOSSRope reads its rotary embedding, which is yarn's where nothing describes it.
func (s *settings) gptOSSRope(d *decoder) graph.Rope {
	const theta, factor = 150000, 32
	if s.ropeObject() != nil {
		return s.rope(d, theta)
	}
	r := s.rotation(d, nil, s.base(nil, "rope_theta", theta), s.floatOr("partial_rotary_factor", 1))
	r.Scaling = graph.RopeScaling{Kind: graph.ScaleYarn, Factor: factor, Original: 4096, BetaFast: 32, BetaSlow: 1, Attention: yarnScale(factor, 1)}
	return s.whole(d, r)
}

// positive reads an optional number for which 0 would mean something else than its
// absence does in a graph.
func (s *settings) positive(key string, def float64) float32 {
	v := s.floatOr(key, def)
	if !(v > 0) {
		s.bad(key, v)
	}
	return float32(v)
}
