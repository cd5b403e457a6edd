package arch

import "github.com/nstf/nstf/formats/graph"

// olmo3 is olmo2 with a window in all but every fourth layer, or in those that
// layer_types names; a scaling of the rotary embedding holds for the others.
//
// Source: configuration_olmo3.py and modeling_olmo3.py of transformers.
func olmo3() *Architecture {
	return &Architecture{
		name: "olmo3", class: "Olmo3ForCausalLM", types: []string{"olmo3"}, covered: "olmo2",
		llama: olmoLlama(),
		fromHF: func(s *settings) *decoder {
			d := s.olmo("olmo3")
			d.ropes = s.layerRopes(d, "rope_theta", 500000, "", 500000)
			d.window = s.slidingLayers(s.windowOf(4096), d.layers, func(layer int) bool { return (layer+1)%4 != 0 })
			d.rope = d.localRope
			return d
		},
		toHF: func(c configWriter, g *graph.Graph) {
			c.layered(g)
			scaled, local := c["rope_scaling"], map[string]any{"rope_type": "default", "rope_theta": g.Ropes[1].Theta}
			global, _ := scaled.(map[string]any)
			if global == nil {
				global = map[string]any{"rope_type": "default"}
			}
			global["rope_theta"] = g.Ropes[0].Theta
			c["rope_parameters"] = map[string]any{"full_attention": global, "sliding_attention": local}
			delete(c, "rope_scaling")
			delete(c, "rope_theta")
		},
		toGGUF:    (*keyWriter).windowPattern,
		hfLinks:   hfPostNormLinks(),
		ggufLinks: ggufPostNormLinks(),
	}
}
