package arch

import "github.com/nstf/nstf/formats/graph"

// exaone4 has norms behind its branches alone and norms of each head of query and
// key. Where it has windows, layers without one do not rotate.
//
// Sources: configuration_exaone4.py and modeling_exaone4.py of transformers,
// src/models/exaone4.cpp of llama.cpp, which has windows in the model of 64 layers
// alone.
func exaone4() *Architecture {
	return &Architecture{
		name: "exaone4", class: "Exaone4ForCausalLM", types: []string{"exaone4"}, gguf: "exaone4",
		llama: &llamaCPP{squareO: true, wholeRope: true, factors: true, noFFNBias: true, window: optional, windowed: true},
		fromHF: func(s *settings) *decoder {
			d := s.common("exaone4", map[string]int64{"num_key_value_heads": 32})
			d.eps = float32(s.floatOr("rms_norm_eps", 1e-5))
			d.bare, d.postNorms, d.qkNorm = true, true, true
			d.ropes = []graph.Rope{s.rope(d, 10000)}
			window := s.window(4096)
			every := int64(4)
			if s.has("layer_types") {
				s.read["sliding_window_pattern"] = true // which may be a text then: "LLLG"
			} else if every = s.intOr("sliding_window_pattern", 4); every == 0 || window == 0 || s.null("sliding_window_pattern") {
				s.bad("sliding_window_pattern", every)
				every = 4
			}
			d.window = s.slidingLayers(window, d.layers, func(layer int) bool { return window > 0 && (int64(layer)+1)%every != 0 })
			d.rope = d.slidingRope(window > 0)
			return d
		},
		fromGGUF: func(k *keys) *decoder {
			d := k.common("exaone4")
			d.bare, d.postNorms, d.qkNorm = true, true, true
			d.ropes = []graph.Rope{k.rope(d, graph.RopeHalf)}
			if d.layers == 64 {
				d.window = k.slidingLayers(k.intOr("attention.sliding_window", 4096), d.layers, 4)
				d.rope = d.slidingRope(true)
			}
			return d
		},
		toHF:      configWriter.layered,
		toGGUF:    func(w *keyWriter, g *graph.Graph) { w.windowPattern(g) },
		hfLinks:   hfPostNormLinks(),
		ggufLinks: ggufPostNormLinks(),
	}
}

// slidingRope rotates the layers with a window alone, where there are windows.
func (d *decoder) slidingRope(windows bool) func(int) int {
	return func(layer int) int {
		if windows && (d.window == nil || d.window(layer) == 0) {
			return -1
		}
		return 0
	}
}
