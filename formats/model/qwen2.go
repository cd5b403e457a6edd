package model

// qwen2 is llama with biases on query, key and value, and a sliding window
// from layer max_window_layers on where use_sliding_window is set.
//
// Source: configuration_qwen2.py of transformers.
func qwen2() *architecture {
	return &architecture{
		name: "qwen2", class: "Qwen2ForCausalLM", types: []string{"qwen2"}, gguf: "qwen2",
		llama: &llamaCPP{window: optional},
		fromHF: func(s *settings) *decoder {
			d := s.common("qwen2", nil)
			d.bias.qkv = true
			d.ropes = []Rope{s.rope(d, 10000, 1, "")}
			s.qwenWindow(d)
			return d
		},
		fromGGUF: func(k *keys) *decoder { return k.qwen("qwen2") },
		toHF: func(c configWriter, g *Graph) {
			c.common(g)
			c.layerTypes(g)
		},
		hfLinks:   hfDecoderLinks(),
		ggufLinks: ggufDecoderLinks(),
	}
}

func (s *settings) qwenWindow(d *decoder) {
	if !s.boolOr("use_sliding_window", false) {
		return
	}
	window, first := s.window(4096), s.intOr("max_window_layers", 28)
	d.window = s.slidingLayers(window, d.layers, func(layer int) bool { return int64(layer) >= first })
}

// window reads a sliding window: the default where the key is absent, none
// where it is null.
func (s *settings) window(def int64) int64 {
	if s.c.HasKey("sliding_window") {
		def = 0
	}
	return s.intOr("sliding_window", def)
}

func (k *keys) qwen(arch string) *decoder {
	d := k.common(arch)
	d.qkNorm = arch != "qwen2"
	d.ropes = []Rope{k.rope(d, RopeHalf)}
	return d
}
