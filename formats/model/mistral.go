package model

// mistral is llama with a sliding window in every layer, where the
// configuration has one. GGUF knows it as "llama", without the window.
//
// Source: configuration_mistral.py of transformers, whose default window of
// 4096 holds where the key is absent.
func mistral() *architecture {
	return &architecture{
		name: "mistral", class: "MistralForCausalLM", types: []string{"mistral"}, llamaCPP: true,
		fromHF: func(s *settings) *decoder {
			d := s.common("mistral", nil)
			d.ropes = []Rope{s.rope(d, 10000, 1, "")}
			window := int64(4096)
			if s.c.HasKey("sliding_window") {
				window = s.intOr("sliding_window", 0) // null: none
			}
			d.window = everyLayer(window)
			return d
		},
		hfLinks:   hfDecoderLinks(),
		ggufLinks: llama().ggufLinks,
	}
}
