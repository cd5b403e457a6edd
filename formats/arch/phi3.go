package arch

import "github.com/nstf/nstf/formats/graph"

// phi3 is llama with one matrix for query, key and value and one for gate and
// up, and LongRoPE. Phi-4 and Phi-4-mini share it.
//
// Source: configuration_phi3.py and modeling_phi3.py of transformers.
func phi3() *Architecture {
	return &Architecture{
		name: "phi3", class: "Phi3ForCausalLM", types: []string{"phi3"}, gguf: "phi3",
		llama: &llamaCPP{window: required, squareO: true, longRope: true},
		fromHF: func(s *settings) *decoder {
			d := s.common("phi3", nil)
			d.eps = float32(s.floatOr("rms_norm_eps", 1e-5))
			d.ropes = []graph.Rope{s.partialRope(d)}
			d.window = everyLayer(s.window(0))
			return d
		},
		fromGGUF: func(k *keys) *decoder {
			d := k.common("phi3")
			d.ropes = []graph.Rope{k.rope(d, graph.RopeHalf)}
			d.window = everyLayer(k.intOr("attention.sliding_window", oldPhi3Window(d)))
			return d
		},
		toHF: configWriter.common,
		hfLinks: append([]Link{
			{Foreign: "model.layers.#.self_attn.qkv_proj", Parts: []string{"blocks.#.attn.q", "blocks.#.attn.k", "blocks.#.attn.v"}},
			{Foreign: "model.layers.#.mlp.gate_up_proj", Parts: []string{"blocks.#.ffn.gate", "blocks.#.ffn.up"}},
		}, hfDecoderLinks()...),
		ggufLinks: append([]Link{
			ggufFused(nil),
			{Foreign: "blk.#.ffn_up", Parts: []string{"blocks.#.ffn.gate", "blocks.#.ffn.up"}},
		}, ggufDecoderLinks()...),
	}
}

// partialRope reads a rotary embedding of the share of each head that
// partial_rotary_factor says.
func (s *settings) partialRope(d *decoder) graph.Rope {
	p := s.ropeObject()
	return s.rotation(d, p, s.base(p, "rope_theta", 10000), s.floatOr("partial_rotary_factor", 1))
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
