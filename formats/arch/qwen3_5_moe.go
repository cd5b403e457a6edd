package arch

import "github.com/nstf/nstf/formats/graph"

// qwen3_5_moe is qwen3_5 with a mixture in every layer, whose weights always are
// divided by their sum.
//
// Source: configuration_qwen3_5_moe.py and modeling_qwen3_5_moe.py of transformers.
func qwen35MoE() *Architecture {
	return &Architecture{
		name: "qwen3_5_moe", class: "Qwen3_5MoeForCausalLM", types: []string{"qwen3_5_moe_text", "qwen3_5_moe"}, within: true, gguf: "qwen35moe",
		llama: &llamaCPP{squareDelta: true},
		fromHF: func(s *settings) *decoder {
			d := s.qwenHybrid("qwen3_5_moe", true, 2, 1)
			d.mtp = s.qwenModules()
			d.moe = moeParams{experts: s.intOr("num_experts", 256), topK: s.intOr("num_experts_per_tok", 8),
				inner: s.intOr("moe_intermediate_size", 512), normalize: true,
				shared: s.intOr("shared_expert_intermediate_size", 512), sharedGate: true}
			return d
		},
		fromGGUF: func(k *keys) *decoder {
			d := k.qwenHybrid("qwen3_5_moe", true)
			k.sections(d)
			k.qwenMixture(d)
			return d
		},
		offset: 1,
		toHF: func(c configWriter, g *graph.Graph) {
			c.qwenHybrid(g)
			m, _ := c.mixture(g, "num_experts", "moe_intermediate_size")
			c["shared_expert_intermediate_size"], c["mtp_num_hidden_layers"] = m.Shared.Up.Out, len(g.MTP)
		},
		toGGUF: func(w *keyWriter, g *graph.Graph) {
			w.qwenHybrid(g)
			w.sections(g)
		},
		hfLinks:   append(hfDeltaLinks(), hfHybridLinks()...),
		ggufLinks: ggufHybridLinks(true, ggufDeltaLinks()...),
	}
}
