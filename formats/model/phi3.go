package model

// phi3 is llama with one matrix for query, key and value and one for gate and
// up, and LongRoPE. Phi-4 and Phi-4-mini share it.
//
// Source: configuration_phi3.py and modeling_phi3.py of transformers.
func phi3() *architecture {
	return &architecture{
		name: "phi3", class: "Phi3ForCausalLM", types: []string{"phi3"}, gguf: "phi3",
		llama: &llamaCPP{window: required, windowUnused: true},
		fromHF: func(s *settings) *decoder {
			d := s.common("phi3", nil)
			d.eps = float32(s.floatOr("rms_norm_eps", 1e-5))
			d.ropes = []Rope{s.rope(d, 10000, 1, "")}
			d.window = everyLayer(s.intOr("sliding_window", 0))
			return d
		},
		fromGGUF: func(k *keys) *decoder {
			d := k.common("phi3")
			d.ropes = []Rope{k.rope(d, RopeHalf)}
			d.window = everyLayer(k.intOr("attention.sliding_window", oldPhi3Window(d)))
			return d
		},
		toHF: configWriter.common,
		hfLinks: append([]link{
			{foreign: "model.layers.#.self_attn.qkv_proj", parts: []string{"blocks.#.attn.q", "blocks.#.attn.k", "blocks.#.attn.v"}},
			{foreign: "model.layers.#.mlp.gate_up_proj", parts: []string{"blocks.#.ffn.gate", "blocks.#.ffn.up"}},
		}, hfDecoderLinks()...),
		ggufLinks: append([]link{
			ggufFused(nil),
			{foreign: "blk.#.ffn_up", parts: []string{"blocks.#.ffn.gate", "blocks.#.ffn.up"}},
		}, ggufDecoderLinks()...),
	}
}

// oldPhi3Window is the window of the files of Phi-3 that were made before the
// key existed; those of 128k tokens have one as long as their context.
// Source: llama.cpp's loader, and config.json of the models it names.
func oldPhi3Window(d *decoder) int64 {
	if (d.layers == 32 || d.layers == 40) && d.context == 4096 {
		return 2047
	}
	return 0
}
