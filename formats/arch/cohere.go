package arch

import "github.com/nstf/nstf/formats/graph"

// cohere (Command R, Aya 23) runs both branches in parallel behind one LayerNorm
// without bias, rotates interleaved pairs and scales its logits. Command R+ has norms
// of query and key with weights for each head.
//
// Sources: configuration_cohere.py and modeling_cohere.py of transformers,
// src/models/command-r.cpp of llama.cpp.
func cohere() *Architecture {
	return &Architecture{
		name: "cohere", class: "CohereForCausalLM", types: []string{"cohere"}, gguf: "command-r",
		llama: &llamaCPP{squareO: true, wholeRope: true, tiedHead: true, noFFNBias: true, normedFrom: 64},
		fromHF: func(s *settings) *decoder {
			d := s.cohere("cohere", 500000)
			d.qkNorm = s.boolOr("use_qk_norm", false)
			d.headNorms = d.qkNorm
			return d
		},
		fromGGUF: func(k *keys) *decoder {
			d := k.cohere("cohere")
			d.qkNorm = k.hasTensor("blk.0.attn_q_norm.weight")
			d.headNorms = d.qkNorm
			return d
		},
		toHF: func(c configWriter, g *graph.Graph) {
			c.cohere(g)
			c["use_qk_norm"] = g.Blocks[0].Attn.QNorm != nil
		},
		toGGUF:    cohereKeys,
		hfLinks:   hfDecoderLinks(),
		ggufLinks: ggufDecoderLinks(),
	}
}

// cohere reads the keys that both generations share.
func (s *settings) cohere(arch string, theta float64) *decoder {
	d := s.common(arch, nil)
	d.norm, d.noNormBias, d.eps = graph.LayerNorm, true, float32(s.floatOr("layer_norm_eps", 1e-5))
	d.parallel, d.oneNorm = true, true
	d.tied = s.boolOr("tie_word_embeddings", true)
	b := s.boolOr("attention_bias", false)
	d.bias = biases{qkv: b, o: b}
	d.ropes = []graph.Rope{s.rope(d, theta)}
	d.ropes[0].Style = graph.RopeInterleaved
	if d.headScale = float32(s.floatOr("logit_scale", 0.0625)); !(d.headScale > 0) || s.null("logit_scale") {
		s.bad("logit_scale", d.headScale)
	}
	return d
}

func (k *keys) cohere(arch string) *decoder {
	d := k.common(arch)
	d.parallel, d.oneNorm, d.noNormBias = true, true, true
	d.ropes = []graph.Rope{k.rope(d, graph.RopeInterleaved)}
	d.headScale = float32(k.orOne("logit_scale"))
	return d
}

func (c configWriter) cohere(g *graph.Graph) {
	c.common(g)
	c["layer_norm_eps"], c["logit_scale"] = g.Norm.Eps, g.Norm.Factor()
}

func cohereKeys(w *keyWriter, g *graph.Graph) {
	w.float("logit_scale", float64(g.Norm.Factor()))
	if g.Ropes[0].Scaling.Kind == graph.ScaleNone {
		w.str("rope.scaling.type", "none")
	}
}
