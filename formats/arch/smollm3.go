package arch

import "github.com/nstf/nstf/formats/graph"

// smolLM3 is llama that rotates nothing in every fourth layer, or in those that
// no_rope_layers names by 0; use_sliding_window gives these a window.
//
// Sources: configuration_smollm3.py and modeling_smollm3.py of transformers,
// src/models/smollm3.cpp of llama.cpp, which knows every fourth layer only.
func smolLM3() *Architecture {
	return &Architecture{
		name: "smollm3", class: "SmolLM3ForCausalLM", types: []string{"smollm3"}, gguf: "smollm3",
		llama: &llamaCPP{wholeRope: true, noFFNBias: true},
		fromHF: func(s *settings) *decoder {
			d := s.common("smollm3", map[string]int64{"num_key_value_heads": 4})
			d.tied = s.boolOr("tie_word_embeddings", true)
			b := s.boolOr("attention_bias", false)
			d.bias = biases{qkv: b, o: b, ffn: s.boolOr("mlp_bias", false)}
			d.ropes = []graph.Rope{s.rope(d, 2e6)}
			d.rope = s.ropeLayers(d.layers)
			window, use := s.window(0), s.boolOr("use_sliding_window", false)
			d.window = s.slidingLayers(window, d.layers, func(layer int) bool { return use && window > 0 && d.rope(layer) < 0 })
			return d
		},
		fromGGUF: func(k *keys) *decoder {
			d := k.common("smollm3")
			d.ropes = []graph.Rope{k.rope(d, graph.RopeHalf)}
			d.rope = everyFourthPlain
			return d
		},
		toHF: func(c configWriter, g *graph.Graph) {
			c.layered(g)
			c.ropeLayers(g)
			c["mlp_bias"] = g.Blocks[0].FFN.Up.Bias != ""
		},
		hfLinks:   hfDecoderLinks(),
		ggufLinks: append(ggufRotaryLinks(), ggufDecoderLinks()...),
	}
}

// everyFourthPlain leaves every fourth layer without rotation.
func everyFourthPlain(layer int) int {
	if (layer+1)%4 == 0 {
		return -1
	}
	return 0
}

// ropeLayers reads which layers rotate: 1 in no_rope_layers, in spite of its name,
// or all but every no_rope_layer_interval-th.
func (s *settings) ropeLayers(layers int) func(int) int {
	every := s.intOr("no_rope_layer_interval", 4)
	if !s.has("no_rope_layers") {
		if every == 0 {
			s.bad("no_rope_layer_interval", every)
			return everyFourthPlain
		}
		return func(layer int) int {
			if (int64(layer)+1)%every == 0 {
				return -1
			}
			return 0
		}
	}
	list, err := s.c.Ints("no_rope_layers")
	s.note(err)
	if len(list) < layers {
		s.bad("no_rope_layers", list)
		return everyFourthPlain
	}
	return func(layer int) int {
		if list[layer] == 0 {
			return -1
		}
		return 0
	}
}

// ropeLayers writes which layers rotate.
func (c configWriter) ropeLayers(g *graph.Graph) {
	list := make([]int, len(g.Blocks))
	for i := range g.Blocks {
		if g.Blocks[i].Attn.Rope >= 0 {
			list[i] = 1
		}
	}
	c["no_rope_layers"] = list
}
