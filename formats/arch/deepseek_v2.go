package arch

import "github.com/nstf/nstf/formats/graph"

// deepSeekV2 is DeepSeek-V2 and its Lite: attention over latents, the first layers
// dense, then mixtures whose router scores by softmax, among groups by their best
// expert where topk_method says so, beside a layer that all tokens go through.
//
// Source: configuration_deepseek_v2.py and modeling_deepseek_v2.py of transformers
// 5.23, which do not divide by the sum of the weights, whatever norm_topk_prob says;
// modeling_deepseek.py of deepseek-ai/DeepSeek-V2-Lite, which does.
func deepSeekV2() *Architecture {
	return &Architecture{
		name: "deepseek_v2", class: "DeepseekV2ForCausalLM", types: []string{"deepseek_v2"}, covered: "deepseek2",
		llama: &llamaCPP{denseLead: true, latents: true},
		fromHF: func(s *settings) *decoder {
			d := s.common("deepseek_v2", map[string]int64{})
			s.latents(d, 0, 1536, 128, 128)
			s.deepSeekExperts(d, 64, 0, 1407, 2, 0)
			if s.boolOr("mlp_bias", false) {
				s.refuse("mlp_bias", true)
			}
			if s.truth("norm_topk_prob", false) {
				s.refuse("norm_topk_prob", true)
			}
			s.must("scoring_func", "softmax")
			m := graph.MoE{Scale: float32(s.floatOr("routed_scaling_factor", 1))}
			switch method := s.stringOr("topk_method", "greedy"); method {
			case "greedy":
				s.has("n_group")
				s.has("topk_group")
			case "group_limited_greedy":
				if m.Groups, m.TopGroups, m.GroupBest = s.int("n_group"), s.int("topk_group"), 1; m.Groups == 1 && m.TopGroups == 1 {
					m.Groups, m.TopGroups, m.GroupBest = 0, 0, 0
				}
			default:
				s.refuse("topk_method", method)
			}
			d.softmaxRouter(m)
			return d
		},
		toHF: func(c configWriter, g *graph.Graph) {
			c.latent(g)
			if m, _ := experts(g); m != nil && m.Groups > 0 {
				c["topk_method"] = "group_limited_greedy"
			}
		},
		toGGUF:    (*keyWriter).latent,
		hfLinks:   hfLatentLinks(),
		ggufLinks: ggufLatentLinks(),
	}
}
