package arch

import "github.com/nstf/nstf/formats/graph"

// qwen2 is llama with biases on query, key and value, and a sliding window
// from layer max_window_layers on where use_sliding_window is set.
//
// Qwen2-VL and Qwen2.5-VL hold one, with other defaults. Their positions have three
// parts, which are one number where there is nothing but text.
//
// Source: configuration_qwen2.py, configuration_qwen2_vl.py, configuration_qwen2_5_vl.py
// and modeling_qwen2_5_vl.py of transformers.
func qwen2() *Architecture {
	return &Architecture{
		name: "qwen2", class: "Qwen2ForCausalLM", types: []string{"qwen2", "qwen2_vl", "qwen2_5_vl"}, gguf: "qwen2",
		also: []string{"qwen2vl"}, within: true,
		llama: &llamaCPP{squareO: true},
		fromHF: func(s *settings) *decoder {
			if s.kind != "qwen2" && s.kind != "" {
				d := s.common("qwen2", map[string]int64{"num_key_value_heads": 8})
				d.eps, d.bias.qkv = float32(s.floatOr("rms_norm_eps", 1e-5)), true
				d.ropes = []graph.Rope{s.rope(d, 1e6)}
				s.qwenWindow(d, 80)
				return d
			}
			d := s.common("qwen2", nil)
			d.bias.qkv = true
			d.ropes = []graph.Rope{s.rope(d, 10000)}
			s.qwenWindow(d, 28)
			return d
		},
		fromGGUF:  func(k *keys) *decoder { return k.qwen("qwen2") },
		toHF:      configWriter.layered,
		hfLinks:   hfDecoderLinks(),
		ggufLinks: ggufDecoderLinks(),
	}
}

// qwenWindow reads a window of the layers from max_window_layers on, which is from
// where that key is absent.
func (s *settings) qwenWindow(d *decoder, from int64) {
	window := int64(0)
	if s.boolOr("use_sliding_window", false) {
		window = s.window(4096)
	}
	first := s.intOr("max_window_layers", from)
	d.window = s.slidingLayers(window, d.layers, func(layer int) bool { return window > 0 && int64(layer) >= first })
}

func (k *keys) qwen(arch string) *decoder {
	d := k.common(arch)
	d.qkNorm = arch != "qwen2"
	d.ropes = []graph.Rope{k.rope(d, graph.RopeHalf)}
	return d
}
