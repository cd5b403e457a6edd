package arch

import "github.com/nstf/nstf/formats/graph"

// granite is llama with four multipliers. That of the branches, r, has no place in
// a graph: x + r*f(norm(x)) is r times what x/r + f(norm(x/r)) is, for a norm does
// not see a factor but in its epsilon. So hidden states here are those of the
// model divided by r: the embedding's factor is divided by r, and each epsilon
// by r*r.
//
// Sources: configuration_granite.py and modeling_granite.py of transformers,
// src/models/granite.cpp of llama.cpp.
func granite() *Architecture {
	return &Architecture{
		name: "granite", class: "GraniteForCausalLM", types: []string{"granite"}, gguf: "granite",
		llama: &llamaCPP{outputBias: optional, wholeRope: true, factors: true},
		fromHF: func(s *settings) *decoder {
			d := s.common("granite", nil)
			b := s.boolOr("attention_bias", false)
			d.bias = biases{qkv: b, o: b, ffn: s.boolOr("mlp_bias", false)}
			d.ropes = []graph.Rope{s.rope(d, 10000)}
			d.scale = s.multiplier("attention_multiplier")
			d.headScale = 1 / s.multiplier("logits_scaling")
			d.divideBy(s.multiplier("embedding_multiplier"), s.multiplier("residual_multiplier"))
			return d
		},
		fromGGUF: func(k *keys) *decoder {
			d := k.common("granite")
			d.ropes = []graph.Rope{k.rope(d, graph.RopeHalf)}
			d.scale = float32(k.floatOr("attention.scale", 0))
			d.headScale = 1 / float32(k.positive("logit_scale", k.float("logit_scale")))
			d.divideBy(float32(k.orOne("embedding_scale")), float32(k.orOne("residual_scale")))
			return d
		},
		toHF: func(c configWriter, g *graph.Graph) {
			c.common(g)
			c["attention_multiplier"], c["embedding_multiplier"], c["residual_multiplier"] = g.Blocks[0].Attn.Scale, g.Embed.Scale, 1.0
			c["logits_scaling"], c["mlp_bias"] = 1/float64(g.Norm.Factor()), g.Blocks[0].FFN.Up.Bias != ""
		},
		toGGUF: func(w *keyWriter, g *graph.Graph) {
			w.float("attention.scale", float64(g.Blocks[0].Attn.Scale))
			w.float("embedding_scale", float64(g.Embed.Scale))
			w.float("logit_scale", 1/float64(g.Norm.Factor()))
		},
		hfLinks:   hfDecoderLinks(),
		ggufLinks: append(ggufRotaryLinks(), ggufDecoderLinks()...),
	}
}

// multiplier reads a factor, 1 where it is absent, which must be above 0.
func (s *settings) multiplier(key string) float32 {
	v := s.floatOr(key, 1)
	if !(v > 0) {
		s.bad(key, v)
		return 1
	}
	return float32(v)
}

// orOne reads a factor that llama.cpp takes for 1 where it is 0 or absent.
func (k *keys) orOne(key string) float64 {
	v := k.floatOr(key, 1)
	if v == 0 {
		return 1
	}
	return k.positive(key, v)
}

// divideBy takes a factor on the branches, r, into the embedding's and the
// epsilons.
func (d *decoder) divideBy(embedding, r float32) {
	d.embedScale = embedding / r
	d.eps /= r * r
}
