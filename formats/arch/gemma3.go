package arch

import "github.com/nstf/nstf/formats/graph"

// gemma3 has no attention cap (its class has the key, its code does not apply
// it); it normalises query and key, and rotates the
// layers with a window by another base than those without: five to one.
// Multimodal checkpoints hold the text model under text_config.
//
// Source: configuration_gemma3.py and modeling_gemma3.py of transformers.
func gemma3() *Architecture {
	return &Architecture{
		name: "gemma3", class: "Gemma3ForCausalLM", types: []string{"gemma3_text", "gemma3"}, gguf: "gemma3", within: true,
		llama: &llamaCPP{window: optional, windowed: true},
		fromHF: func(s *settings) *decoder {
			d := s.gemma("gemma3", gemma3Defaults(), 0)
			d.qkNorm = true
			if s.kind == "gemma3" { // the class of multimodal checkpoints has the key, too, and applies none
				d.headSoftcap = 0
			}
			d.ropes = s.layerRopes(d, "rope_theta", 1e6, "rope_local_base_freq", 10000)
			every := s.intOr("sliding_window_pattern", 6)
			if every < 1 || s.null("sliding_window_pattern") {
				s.bad("sliding_window_pattern", every)
				every = 1
			}
			d.window = s.slidingLayers(s.window(4096), d.layers, func(layer int) bool { return (int64(layer)+1)%every != 0 })
			d.rope = d.localRope
			return d
		},
		fromGGUF: func(k *keys) *decoder {
			d := k.gemma("gemma3")
			d.qkNorm = true
			// llama.cpp computes the score's scale: D/H for the 27B model (62
			// layers), the head's size for the others.
			if d.layers == 62 {
				d.scale = rsqrt(float64(d.width / max(d.heads, 1)))
			}
			d.headSoftcap = float32(k.floatOr("final_logit_softcapping", 0))
			global := k.rope(d, graph.RopeHalf)
			local := graph.Rope{Style: graph.RopeHalf, Dim: global.Dim, Theta: k.floatOr("rope.freq_base_swa", 10000), Scaling: graph.RopeScaling{Kind: graph.ScaleNone}}
			d.ropes = []graph.Rope{global, local}
			d.window = k.slidingLayers(k.intOr("attention.sliding_window", 0), d.layers, 6)
			d.rope = d.localRope
			return d
		},
		offset: 1,
		toHF: func(c configWriter, g *graph.Graph) {
			c.gemma(g)
			c["rope_local_base_freq"] = g.Ropes[1].Theta
		},
		hfLinks:   hfGemmaLinks(),
		ggufLinks: ggufGemmaLinks(),
	}
}

// layerRopes reads the rotary embedding of the layers without a window and
// that of those with one, each with its flat key and default base. rope_parameters has an object for each;
// rope_scaling, in older files, describes the first.
func (s *settings) layerRopes(d *decoder, key string, theta float64, localKey string, localTheta float64) []graph.Rope {
	p, old := s.object("rope_parameters"), s.object("rope_scaling")
	if p != nil && old != nil && len(old.c.Keys()) > 0 {
		s.refuse("rope_scaling", "beside rope_parameters")
	}
	if old != nil && old.has("type") && !old.has("rope_type") {
		s.refuse("rope_scaling.type", "without rope_type") // which transformers goes by here: it would not scale
	}
	global, local := old, (*settings)(nil)
	if p != nil {
		for _, key := range p.c.Keys() {
			if key != "full_attention" && key != "sliding_attention" {
				s.refuse("rope_parameters."+key, "for no type of layer")
			}
		}
		global, local = p.object("full_attention"), p.object("sliding_attention")
		s.note(p.err)
	}
	return []graph.Rope{s.layerRope(d, global, key, theta), s.layerRope(d, local, localKey, localTheta)}
}

// layerRope reads a type of layer's rotary embedding. transformers looks for
// yarn's truncate beside the types, where we refuse it, so within them it says
// nothing.
func (s *settings) layerRope(d *decoder, p *settings, key string, theta float64) graph.Rope {
	if p != nil && !p.boolOr("truncate", true) {
		p.refuse("truncate", false)
	}
	return s.whole(d, s.rotation(d, p, s.base(p, key, theta), s.floatOr("partial_rotary_factor", 1)))
}

// localRope gives layers with a window the second rotary embedding.
func (d *decoder) localRope(layer int) int {
	if d.window(layer) > 0 {
		return 1
	}
	return 0
}

// gemma3Defaults are the sizes that published multimodal configurations leave
// out. Source: configuration_gemma3.py of transformers.
func gemma3Defaults() map[string]int64 {
	return map[string]int64{
		"vocab_size": 262208, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26,
		"num_attention_heads": 8, "num_key_value_heads": 4, "max_position_embeddings": 131072,
	}
}
