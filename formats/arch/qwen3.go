package arch

import "github.com/nstf/nstf/formats/graph"

// qwen3 has no such biases; it normalises each head of query and key.
//
// Qwen3-VL holds one, with another default base.
//
// Source: configuration_qwen3.py and configuration_qwen3_vl.py of transformers.
func qwen3() *Architecture {
	return &Architecture{
		name: "qwen3", class: "Qwen3ForCausalLM", types: []string{"qwen3", "qwen3_vl"}, gguf: "qwen3",
		also: []string{"qwen3vl"}, within: true,
		llama: &llamaCPP{},
		fromHF: func(s *settings) *decoder {
			if s.kind != "qwen3" && s.kind != "" {
				d := s.common("qwen3", map[string]int64{"num_key_value_heads": 32})
				s.qwen3(d, 128, 500000)
				return d
			}
			d := s.common("qwen3", nil)
			s.qwen3(d, 128, 10000)
			s.qwenWindow(d, 28)
			return d
		},
		fromGGUF:  func(k *keys) *decoder { return k.qwen("qwen3") },
		toHF:      configWriter.layered,
		hfLinks:   hfDecoderLinks(),
		ggufLinks: ggufDecoderLinks(),
	}
}

func (s *settings) qwen3(d *decoder, headDim int64, theta float64) {
	d.headDim = s.intOr("head_dim", headDim)
	d.qkNorm = true
	b := s.boolOr("attention_bias", false)
	d.bias = biases{qkv: b, o: b}
	d.ropes = []graph.Rope{s.rope(d, theta)}
}
