package arch

import "github.com/nstf/nstf/formats/graph"

// gpt2 has learned positions, biases everywhere, and stores its matrices
// transposed.
//
// Source: configuration_gpt2.py and modeling_gpt2.py of transformers.
func gpt2() *Architecture {
	return &Architecture{
		name: "gpt2", class: "GPT2LMHeadModel", types: []string{"gpt2"}, gguf: "gpt2",
		llama: &llamaCPP{outputBias: required, copyHead: true, squareO: true},
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
			d.act, d.gated, d.positions = graph.GELUTanh, false, true
			return d
		},
		toHF: configWriter.gpt,
		hfLinks: append([]Link{
			one("transformer.wpe", "embed.positions"),
			{Foreign: "transformer.h.#.attn.c_attn", Parts: []string{"blocks.#.attn.q", "blocks.#.attn.k", "blocks.#.attn.v"}, Transposed: true},
			{Foreign: "transformer.h.#.attn.c_proj", Parts: []string{"blocks.#.attn.o"}, Transposed: true},
			one("transformer.h.#.ln_2", "blocks.#.ffn_norm"),
			{Foreign: "transformer.h.#.mlp.c_fc", Parts: []string{"blocks.#.ffn.up"}, Transposed: true},
			{Foreign: "transformer.h.#.mlp.c_proj", Parts: []string{"blocks.#.ffn.down"}, Transposed: true},
		}, hfGPTLinks()...),
		ggufLinks: append([]Link{ggufFused(nil)}, ggufDecoderLinks()...),
	}
}

// gpt reads the keys that GPT-2 and GPT-J spell alike.
func (s *settings) gpt(arch string) *decoder {
	d := newDecoder(arch)
	d.vocab, d.width, d.context = s.int("vocab_size"), s.aliased("n_embd", "hidden_size"), s.aliased("n_positions", "max_position_embeddings")
	d.heads, d.layers = s.aliased("n_head", "num_attention_heads"), s.layers(s.aliased("n_layer", "num_hidden_layers"))
	d.kvHeads = d.heads
	if d.heads > 0 {
		d.headDim = d.width / d.heads
	}
	d.inner = s.intOr("n_inner", 4*d.width)
	d.norm, d.eps = graph.LayerNorm, float32(s.floatOr("layer_norm_epsilon", 1e-5))
	d.act, d.gated = s.activation("activation_function", "gelu_new"), false
	return d
}

// aliased reads a size that has a second name: the class sets it last, so it
// holds where both are there.
func (s *settings) aliased(key, alias string) int64 {
	if s.read[alias] = true; s.c.HasKey(alias) {
		return s.int(alias)
	}
	return s.int(key)
}

func hfGPTLinks() []Link {
	return []Link{
		one("transformer.wte", "embed"),
		one("transformer.h.#.ln_1", "blocks.#.attn_norm"),
		one("transformer.ln_f", "norm"),
		one("lm_head", "head"),
	}
}
