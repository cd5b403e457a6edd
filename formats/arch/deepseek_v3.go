package arch

import "github.com/nstf/nstf/formats/graph"

// deepSeekV3 is DeepSeek-V3, R1 and V3.1, and Kimi K2: attention over latents, the
// first layers dense, then mixtures whose router scores by sigmoid and chooses among
// groups with a bias, beside a layer that all tokens go through. Behind the last layer
// a checkpoint keeps modules of multi-token prediction, which transformers leaves out.
//
// Source: configuration_deepseek_v3.py and modeling_deepseek_v3.py of transformers
// 5.23; moonshotai/Kimi-K2-Instruct, whose model_type names the same class.
func deepSeekV3() *Architecture {
	return &Architecture{
		name: "deepseek_v3", class: "DeepseekV3ForCausalLM", types: []string{"deepseek_v3", "kimi_k2"}, gguf: "deepseek2",
		llama: &llamaCPP{denseLead: true, latents: true},
		fromHF: func(s *settings) *decoder {
			d := s.common("deepseek_v3", map[string]int64{"vocab_size": 129280, "hidden_size": 7168, "intermediate_size": 18432, "num_hidden_layers": 61,
				"num_attention_heads": 128, "max_position_embeddings": 4096})
			s.latents(d, 128, 1536, 128, 128)
			s.deepSeekExperts(d, 256, 8, 2048, 1, 3)
			s.noAuxRouter(d, 8, 4, 2.5)
			d.mtp = s.intOr("num_mtp_layers", s.intOr("num_nextn_predict_layers", 1))
			return d
		},
		fromGGUF:  (*keys).latents,
		toHF:      latentConfig,
		toGGUF:    (*keyWriter).latent,
		hfLinks:   append(hfLatentLinks(), behindLinks(hfMTPLinks(), hfLatentLinks())...),
		ggufLinks: append(ggufLatentLinks(), behindLinks(ggufMTPLinks(), ggufLatentLinks())...),
	}
}

// routerGroups reads how many groups of experts there are and how many of them a token
// uses, with the defaults of a class; one of one is none.
func (s *settings) routerGroups(groups, top int64) (int64, int64) {
	if groups, top = s.intOr("n_group", groups), s.intOr("topk_group", top); groups == 1 && top == 1 {
		return 0, 0
	}
	return groups, top
}

// noAuxRouter reads the router of DeepSeek-V3 with the defaults of a class.
func (s *settings) noAuxRouter(d *decoder, groups, top int64, scale float64) {
	d.moe.normalize = s.truth("norm_topk_prob", true)
	s.must("scoring_func", "sigmoid")
	s.must("topk_method", "noaux_tc")
	groups, top = s.routerGroups(groups, top)
	d.sigmoidRouter(graph.MoE{Groups: groups, TopGroups: top, Epsilon: 1e-20, Scale: s.positive("routed_scaling_factor", scale)})
}

func latentConfig(c configWriter, g *graph.Graph) {
	c.latent(g)
	c["num_nextn_predict_layers"] = len(g.MTP)
}
