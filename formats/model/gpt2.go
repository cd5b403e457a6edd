package model

// gpt2 has learned positions, biases everywhere, and stores its matrices
// transposed.
//
// Source: configuration_gpt2.py and modeling_gpt2.py of transformers.
func gpt2() *architecture {
	return &architecture{
		name: "gpt2", class: "GPT2LMHeadModel", types: []string{"gpt2"}, gguf: "gpt2",
		llama: &llamaCPP{outputBias: required, copyHead: true},
		fromHF: func(s *settings) *decoder {
			d := s.gpt("gpt2")
			d.tied = s.boolOr("tie_word_embeddings", true)
			d.positions = true
			d.bias = biases{qkv: true, o: true, ffn: true}
			if !s.boolOr("scale_attn_weights", true) {
				d.scale = 1
			}
			d.scaleByLayer = s.boolOr("scale_attn_by_inverse_layer_idx", false)
			if s.boolOr("add_cross_attention", false) {
				s.refuse("add_cross_attention", true)
			}
			return d
		},
		fromGGUF: func(k *keys) *decoder {
			d := k.common("gpt2")
			d.act, d.gated, d.positions = GELUTanh, false, true
			return d
		},
		toHF: configWriter.gpt,
		hfLinks: append([]link{
			one("transformer.wpe", "embed.positions"),
			{foreign: "transformer.h.#.attn.c_attn", parts: []string{"blocks.#.attn.q", "blocks.#.attn.k", "blocks.#.attn.v"}, transposed: true},
			{foreign: "transformer.h.#.attn.c_proj", parts: []string{"blocks.#.attn.o"}, transposed: true},
			one("transformer.h.#.ln_2", "blocks.#.ffn_norm"),
			{foreign: "transformer.h.#.mlp.c_fc", parts: []string{"blocks.#.ffn.up"}, transposed: true},
			{foreign: "transformer.h.#.mlp.c_proj", parts: []string{"blocks.#.ffn.down"}, transposed: true},
		}, hfGPTLinks()...),
		ggufLinks: append([]link{ggufFused(nil)}, ggufDecoderLinks()...),
	}
}

// gpt reads the keys that GPT-2 and GPT-J spell alike.
func (s *settings) gpt(arch string) *decoder {
	d := newDecoder(arch)
	d.vocab, d.width, d.context = s.int("vocab_size"), s.int("n_embd"), s.int("n_positions")
	d.heads, d.layers = s.int("n_head"), s.layers(s.int("n_layer"))
	d.kvHeads = d.heads
	if d.heads > 0 {
		d.headDim = d.width / d.heads
	}
	d.inner = s.intOr("n_inner", 4*d.width)
	d.norm, d.eps = LayerNorm, float32(s.floatOr("layer_norm_epsilon", 1e-5))
	d.act, d.gated = s.activation("activation_function", "gelu_new"), false
	return d
}

func hfGPTLinks() []link {
	return []link{
		one("transformer.wte", "embed"),
		one("transformer.h.#.ln_1", "blocks.#.attn_norm"),
		one("transformer.ln_f", "norm"),
		one("lm_head", "head"),
	}
}
