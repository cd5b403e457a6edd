package arch

import "github.com/nstf/nstf/formats/graph"

// mistral is llama with a sliding window in every layer, where the
// configuration has one, or in those that layer_types names: transformers
// takes such a configuration for ministral. GGUF knows it as "llama", without
// the window.
//
// Sources: configuration_mistral.py of transformers, whose default window of
// 4096 holds where the key is absent, and configuration_ministral.py.
func mistral() *Architecture {
	return &Architecture{
		name: "mistral", class: "MistralForCausalLM", types: []string{"mistral"}, covered: "llama",
		llama: llama().llama,
		fromHF: func(s *settings) *decoder {
			d := s.common("mistral", map[string]int64{"num_key_value_heads": 8})
			d.ropes = []graph.Rope{s.rope(d, 10000)}
			window := s.window(4096)
			d.window = s.slidingLayers(window, d.layers, func(int) bool { return window > 0 })
			return d
		},
		toHF:      configWriter.common,
		hfLinks:   hfDecoderLinks(),
		ggufLinks: llama().ggufLinks,
	}
}
