package arch

import (
	"slices"

	"github.com/nstf/nstf/formats/graph"
)

// glm4MoELite is GLM-4.7-Flash: deepseek_v3 with other sizes, and a list of which
// layers have mixtures.
//
// Source: configuration_glm4_moe_lite.py and modular_glm4_moe_lite.py of transformers
// 5.23.
func glm4MoELite() *Architecture {
	return &Architecture{
		name: "glm4_moe_lite", class: "Glm4MoeLiteForCausalLM", types: []string{"glm4_moe_lite"}, covered: "deepseek2",
		llama: &llamaCPP{denseLead: true, latents: true},
		fromHF: func(s *settings) *decoder {
			d := s.common("glm4_moe_lite", map[string]int64{"vocab_size": 154880, "hidden_size": 2048, "intermediate_size": 10240, "num_hidden_layers": 47,
				"num_attention_heads": 20, "max_position_embeddings": 202752})
			d.eps = float32(s.floatOr("rms_norm_eps", 1e-5))
			s.latents(d, 20, 768, 192, 256)
			p, partial := s.ropeObject(), s.floatOr("partial_rotary_factor", 1)
			if p != nil {
				partial = p.floatOr("partial_rotary_factor", partial)
			}
			if partial != 1 { // of what is rotated already
				s.refuse("partial_rotary_factor", partial)
			}
			s.deepSeekExperts(d, 64, 4, 1536, 1, 1)
			s.sparseLayers(d)
			s.noAuxRouter(d, 1, 1, 1.8)
			d.mtp = s.intOr("num_nextn_predict_layers", 0)
			return d
		},
		toHF: func(c configWriter, g *graph.Graph) {
			latentConfig(c, g)
			types := make([]string, len(g.Blocks))
			for i := range types {
				if types[i] = "dense"; g.Blocks[i].MoE != nil {
					types[i] = "sparse"
				}
			}
			c["mlp_layer_types"] = types
		},
		toGGUF:    (*keyWriter).latent,
		hfLinks:   append(hfLatentLinks(), behindLinks(hfMTPLinks(), hfLatentLinks())...),
		ggufLinks: append(ggufLatentLinks(), behindLinks(ggufMTPLinks(), ggufLatentLinks())...),
	}
}

// sparseLayers reads which layers have mixtures, where the configuration lists them;
// modules of multi-token prediction have.
func (s *settings) sparseLayers(d *decoder) {
	if !s.has("mlp_layer_types") {
		return
	}
	types, err := s.c.Strings("mlp_layer_types")
	s.note(err)
	if s.err != nil {
		return
	}
	if len(types) < d.layers {
		s.bad("mlp_layer_types", types)
		return
	}
	for _, t := range slices.Compact(slices.Sorted(slices.Values(types))) {
		if t != "dense" && t != "sparse" {
			s.refuse("mlp_layer_types", t)
		}
	}
	d.moe.sparse = func(layer int) bool { return layer >= d.layers || types[layer] == "sparse" }
}
