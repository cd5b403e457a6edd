package arch

import (
	"math"

	"github.com/nstf/nstf/formats/graph"
)

// hunYuanDense is llama with norms of query and key behind the rotation, whose
// base alpha raises once and for all.
//
// Sources: configuration_hunyuan_v1_dense.py and modeling_hunyuan_v1_dense.py of
// transformers, src/models/hunyuan-dense.cpp of llama.cpp.
func hunYuanDense() *Architecture {
	return &Architecture{
		name: "hunyuan_v1_dense", class: "HunYuanDenseV1ForCausalLM", types: []string{"hunyuan_v1_dense"}, gguf: "hunyuan-dense",
		llama: &llamaCPP{wholeRope: true, noFFNBias: true},
		fromHF: func(s *settings) *decoder {
			d := s.common("hunyuan_v1_dense", nil)
			d.eps = float32(s.floatOr("rms_norm_eps", 1e-5))
			d.headDim, d.qkNorm, d.lateNorms = s.int("head_dim"), true, true
			b := s.boolOr("attention_bias", false)
			d.bias = biases{qkv: b, o: b}
			d.ropes = []graph.Rope{s.hunYuanRope(d)}
			return d
		},
		fromGGUF: func(k *keys) *decoder {
			d := k.common("hunyuan_v1_dense")
			d.qkNorm, d.lateNorms = true, true
			d.ropes = []graph.Rope{k.rope(d, graph.RopeHalf)}
			return d
		},
		toHF: configWriter.common,
		hfLinks: append([]Link{
			one("model.layers.#.self_attn.query_layernorm", "blocks.#.attn.q_norm"),
			one("model.layers.#.self_attn.key_layernorm", "blocks.#.attn.k_norm"),
		}, hfDecoderLinks()...),
		ggufLinks: ggufDecoderLinks(),
	}
}

// hunYuanRope reads a rotary embedding. Dynamic scaling with an alpha stands still:
// it raises the base by alpha^(dim/(dim-2)).
func (s *settings) hunYuanRope(d *decoder) graph.Rope {
	p := s.ropeObject()
	if p == nil || p.stringOr("rope_type", p.stringOr("type", "default")) != "dynamic" || p.floatOr("alpha", 0) == 0 {
		return s.rope(d, 10000)
	}
	r := graph.Rope{Style: graph.RopeHalf, Dim: d.headDim, Scaling: graph.RopeScaling{Kind: graph.ScaleNone}}
	if d.headDim <= 2 {
		s.bad("head_dim", d.headDim)
		return r
	}
	theta, alpha := p.floatOr("rope_theta", s.base(p, "rope_theta", 10000)), p.float("alpha")
	r.Theta = theta * math.Pow(alpha, float64(d.headDim)/float64(d.headDim-2))
	s.note(p.err)
	return r
}
