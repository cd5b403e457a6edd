package arch

import "github.com/nstf/nstf/formats/graph"

// qwen3_5 is Qwen3.5, 3.6 and 3.8: qwen3_next with dense layers, and a matrix for each
// projection of its delta nets. Multimodal checkpoints hold the text model under
// text_config; of text, the three parts of a position are one number, so that its
// rotary embedding is a plain one of a part of each head.
//
// Source: configuration_qwen3_5.py and modeling_qwen3_5.py of transformers.
func qwen35() *Architecture {
	return &Architecture{
		name: "qwen3_5", class: "Qwen3_5ForCausalLM", types: []string{"qwen3_5_text", "qwen3_5"}, within: true, gguf: "qwen35",
		llama: &llamaCPP{squareDelta: true},
		fromHF: func(s *settings) *decoder {
			d := s.qwenHybrid("qwen3_5", true, 4, 12288)
			d.mtp = s.qwenModules()
			return d
		},
		fromGGUF: func(k *keys) *decoder {
			d := k.qwenHybrid("qwen3_5", true)
			k.sections(d)
			return d
		},
		offset: 1,
		toHF: func(c configWriter, g *graph.Graph) {
			c.qwenHybrid(g)
			c["mtp_num_hidden_layers"] = len(g.MTP)
		},
		toGGUF: func(w *keyWriter, g *graph.Graph) {
			w.qwenHybrid(g)
			w.sections(g)
		},
		hfLinks:   append(hfDeltaLinks(), hfHybridLinks()...),
		ggufLinks: ggufHybridLinks(true, ggufDeltaLinks()...),
	}
}

// qwenModules counts modules of multi-token prediction. More than one share tensors,
// which no graph says: they pass through.
func (s *settings) qwenModules() int64 {
	if n := s.intOr("mtp_num_hidden_layers", 0); n == 1 {
		return 1
	}
	return 0
}

// hfDeltaLinks are projections of delta nets that have a matrix each.
func hfDeltaLinks() []Link {
	const delta = "model.layers.#.linear_attn."
	return []Link{
		{Foreign: delta + "in_proj_qkv", Parts: []string{"blocks.#.delta.qkv"}, Order: valueHeads(false, wide, behindKeys)},
		{Foreign: delta + "in_proj_z", Parts: []string{"blocks.#.delta.z"}, Order: valueHeads(false, wide, nil)},
		{Foreign: delta + "in_proj_b", Parts: []string{"blocks.#.delta.beta"}, Order: valueHeads(false, nil, nil)},
		{Foreign: delta + "in_proj_a", Parts: []string{"blocks.#.delta.alpha"}, Order: valueHeads(false, nil, nil)},
	}
}

// ggufDeltaLinks are the same in GGUF.
func ggufDeltaLinks() []Link {
	return []Link{
		{Foreign: "blk.#.ssm_beta", Parts: []string{"blocks.#.delta.beta"}, Order: valueHeads(true, nil, nil)},
		{Foreign: "blk.#.ssm_alpha", Parts: []string{"blocks.#.delta.alpha"}, Order: valueHeads(true, nil, nil)},
	}
}
