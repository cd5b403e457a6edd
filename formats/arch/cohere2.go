package arch

import "github.com/nstf/nstf/formats/graph"

// cohere2 is cohere with a window in all but every fourth layer, or in those that
// layer_types names; the others do not rotate.
//
// Sources: configuration_cohere2.py and modeling_cohere2.py of transformers,
// src/models/cohere2.cpp of llama.cpp.
func cohere2() *Architecture {
	return &Architecture{
		name: "cohere2", class: "Cohere2ForCausalLM", types: []string{"cohere2"}, gguf: "cohere2",
		llama: &llamaCPP{squareO: true, wholeRope: true, tiedHead: true, noFFNBias: true, window: required, windowed: true},
		fromHF: func(s *settings) *decoder {
			d := s.cohere("cohere2", 10000)
			every := int64(4)
			if !s.has("layer_types") {
				if every = s.intOr("sliding_window_pattern", 4); every == 0 {
					s.bad("sliding_window_pattern", every)
					every = 4
				}
			}
			d.window = s.slidingLayers(s.windowOf(4096), d.layers, func(layer int) bool { return (int64(layer)+1)%every != 0 })
			d.rope = d.slidingRope(true)
			return d
		},
		fromGGUF: func(k *keys) *decoder {
			d := k.cohere("cohere2")
			d.window = k.slidingLayers(k.int("attention.sliding_window"), d.layers, 4)
			d.rope = d.slidingRope(true)
			return d
		},
		toHF: func(c configWriter, g *graph.Graph) {
			c.cohere(g)
			c.layerTypes(g)
		},
		toGGUF: func(w *keyWriter, g *graph.Graph) {
			cohereKeys(w, g)
			w.windowPattern(g)
		},
		hfLinks:   hfDecoderLinks(),
		ggufLinks: ggufDecoderLinks(),
	}
}
