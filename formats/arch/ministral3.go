package arch

import "github.com/nstf/nstf/formats/graph"

// ministral3 is mistral whose queries grow with their position beyond the context
// before yarn's stretching. Multimodal checkpoints (mistral3) hold it, or mistral,
// under text_config.
//
// Sources: configuration_ministral3.py and modeling_ministral3.py of transformers,
// src/models/mistral3.cpp of llama.cpp.
func ministral3() *Architecture {
	return &Architecture{
		name: "ministral3", class: "Ministral3ForCausalLM", types: []string{"ministral3"}, gguf: "mistral3",
		llama: &llamaCPP{outputBias: optional, wholeRope: true, factors: true},
		fromHF: func(s *settings) *decoder {
			d := s.common("ministral3", map[string]int64{"num_key_value_heads": 8})
			s.headSize(d, 128)
			d.eps = float32(s.floatOr("rms_norm_eps", 1e-5))
			d.window = everyLayer(s.window(0))
			p := s.ropeObject()
			if p == nil { // the class's own
				d.ropes = []graph.Rope{{Style: graph.RopeHalf, Dim: d.headDim, Theta: 1e6, Scaling: graph.RopeScaling{
					Kind: graph.ScaleYarn, Factor: 16, Original: 16384, BetaFast: 32, BetaSlow: 1, Truncate: true, Attention: 1}}}
				d.temperature = &graph.Temperature{Beta: 0.1, Every: 16384}
				return d
			}
			d.ropes = []graph.Rope{s.rope(d, 10000)}
			d.temperature = &graph.Temperature{Beta: float32(p.float("llama_4_scaling_beta")), Every: p.int("original_max_position_embeddings")}
			s.note(p.err)
			return d
		},
		fromGGUF: func(k *keys) *decoder {
			d := k.common("ministral3")
			d.ropes = []graph.Rope{k.rope(d, graph.RopeHalf)}
			r := &d.ropes[0].Scaling
			if m := k.floatOr("rope.scaling.yarn_log_multiplier", 0); m != 0 && r.Kind == graph.ScaleYarn {
				r.Attention /= yarnScale(r.Factor, m)
			}
			if beta := k.floatOr("attention.temperature_scale", 0); beta != 0 {
				d.temperature = &graph.Temperature{Beta: float32(beta), Every: k.intOr("rope.scaling.original_context_length", d.context)}
			} else {
				d.arch = "mistral"
			}
			return d
		},
		toHF: func(c configWriter, g *graph.Graph) {
			c.common(g)
			p, _ := c["rope_scaling"].(map[string]any)
			if p == nil {
				p = map[string]any{"rope_type": "default"}
			}
			p["rope_theta"] = g.Ropes[0].Theta
			if t := g.Blocks[0].Attn.Temperature; t != nil {
				p["llama_4_scaling_beta"], p["original_max_position_embeddings"] = t.Beta, t.Every
			}
			c["rope_parameters"] = p
			delete(c, "rope_scaling")
			delete(c, "rope_theta")
		},
		toGGUF: func(w *keyWriter, g *graph.Graph) {
			if t := g.Blocks[0].Attn.Temperature; t != nil {
				w.float("attention.temperature_scale", float64(t.Beta))
				if g.Ropes[0].Scaling.Kind == graph.ScaleNone {
					w.int("rope.scaling.original_context_length", t.Every)
				}
			}
		},
		hfLinks:   hfDecoderLinks(),
		ggufLinks: llama().ggufLinks,
	}
}
