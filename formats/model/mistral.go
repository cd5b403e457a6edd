package model

// mistral is llama with a sliding window in every layer, where the
// configuration has one. GGUF knows it as "llama", without the window.
//
// Source: configuration_mistral.py of transformers, whose default window of
// 4096 holds where the key is absent.
func mistral() *architecture {
	return &architecture{
		name: "mistral", class: "MistralForCausalLM", types: []string{"mistral"},
		llama: &llamaCPP{outputBias: optional},
		fromHF: func(s *settings) *decoder {
			d := s.common("mistral", map[string]int64{"num_key_value_heads": 8})
			d.ropes = []Rope{s.rope(d, 10000, 1, "")}
			d.window = everyLayer(s.window(4096))
			return d
		},
		toHF:      configWriter.common,
		hfLinks:   hfDecoderLinks(),
		ggufLinks: llama().ggufLinks,
	}
}
