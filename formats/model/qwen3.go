package model

// qwen3 has no such biases; it normalises each head of query and key.
//
// Source: configuration_qwen3.py of transformers.
func qwen3() *architecture {
	return &architecture{
		name: "qwen3", class: "Qwen3ForCausalLM", types: []string{"qwen3"}, gguf: "qwen3",
		llama: &llamaCPP{window: optional},
		fromHF: func(s *settings) *decoder {
			d := s.common("qwen3", nil)
			s.qwen3(d, 128)
			s.qwenWindow(d)
			return d
		},
		fromGGUF: func(k *keys) *decoder { return k.qwen("qwen3") },
		toHF: func(c configWriter, g *Graph) {
			c.common(g)
			c.layerTypes(g)
		},
		hfLinks:   hfDecoderLinks(),
		ggufLinks: ggufDecoderLinks(),
	}
}

func (s *settings) qwen3(d *decoder, headDim int64) {
	d.headDim = s.intOr("head_dim", headDim)
	d.qkNorm = true
	b := s.boolOr("attention_bias", false)
	d.bias = biases{qkv: b, o: b}
	d.ropes = []Rope{s.rope(d, 10000, 1, "")}
}
