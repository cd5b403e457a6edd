package arch

import "github.com/nstf/nstf/formats/graph"

// falcon runs both branches in parallel, behind one LayerNorm (7B) or two (40B),
// or one after the other (RW); query, key and value are one matrix, group by
// group.
//
// Sources: configuration_falcon.py and modeling_falcon.py of transformers;
// src/models/falcon.cpp of llama.cpp, where the second norm is the attention's.
func falcon() *Architecture {
	return &Architecture{
		name: "falcon", class: "FalconForCausalLM", types: []string{"falcon"}, gguf: "falcon",
		llama: &llamaCPP{squareO: true, noFFNBias: true},
		fromHF: func(s *settings) *decoder {
			d := newDecoder("falcon")
			d.vocab, d.width, d.context = s.int("vocab_size"), s.aliased("hidden_size", "n_embed"), s.intOr("max_position_embeddings", 2048)
			d.heads, d.layers = s.int("num_attention_heads"), s.layers(s.int("num_hidden_layers"))
			d.headDim = d.width / max(d.heads, 1)
			d.inner = s.intOr("ffn_hidden_size", 4*d.width)
			d.norm, d.eps = graph.LayerNorm, float32(s.floatOr("layer_norm_epsilon", 1e-5))
			d.act, d.gated = s.activation("activation", "gelu"), false
			d.tied = s.boolOr("tie_word_embeddings", true)
			b := s.boolOr("bias", false)
			d.bias = biases{qkv: b, o: b, ffn: b}
			s.falconHeads(d)
			if s.boolOr("alibi", false) {
				s.refuse("alibi", true)
			}
			d.ropes = []graph.Rope{s.rope(d, 10000)}
			return d
		},
		fromGGUF: func(k *keys) *decoder {
			d := k.common("falcon")
			d.act, d.gated, d.parallel = graph.GELU, false, true
			d.oneNorm = !k.hasTensor("blk.0.attn_norm_2.weight")
			d.ropes = []graph.Rope{k.rope(d, graph.RopeHalf)}
			return d
		},
		toHF: func(c configWriter, g *graph.Graph) {
			b := &g.Blocks[0]
			c["hidden_size"], c["num_hidden_layers"], c["max_position_embeddings"] = g.Width, len(g.Blocks), g.Context
			c["num_attention_heads"], c["num_kv_heads"], c["ffn_hidden_size"] = b.Attn.Heads, b.Attn.KVHeads, b.FFN.Up.Out
			c["layer_norm_epsilon"], c["activation"], c["bias"], c["alibi"] = g.Norm.Eps, activationName(b), b.Attn.O.Bias != "", false
			c["parallel_attn"], c["new_decoder_architecture"], c["multi_query"] = b.Parallel, b.Parallel, b.Attn.KVHeads == 1
			c["num_ln_in_parallel_attn"] = 1
			if b.FFNNorm != nil && b.Parallel {
				c["num_ln_in_parallel_attn"] = 2
			}
			c.rope(g, b)
		},
		hfLinks: []Link{
			one("transformer.word_embeddings", "embed"),
			one("transformer.h.#.input_layernorm", "blocks.#.attn_norm").where(func(g *graph.Graph) bool { return !twoNorms(g) }),
			one("transformer.h.#.post_attention_layernorm", "blocks.#.ffn_norm").where(func(g *graph.Graph) bool { return !twoNorms(g) }),
			one("transformer.h.#.ln_attn", "blocks.#.attn_norm").where(twoNorms),
			one("transformer.h.#.ln_mlp", "blocks.#.ffn_norm").where(twoNorms),
			{Foreign: "transformer.h.#.self_attention.query_key_value", Parts: []string{"blocks.#.attn.q", "blocks.#.attn.k", "blocks.#.attn.v"}, Order: perGroupOrder},
			one("transformer.h.#.self_attention.dense", "blocks.#.attn.o"),
			one("transformer.h.#.mlp.dense_h_to_4h", "blocks.#.ffn.up"),
			one("transformer.h.#.mlp.dense_4h_to_h", "blocks.#.ffn.down"),
			one("transformer.ln_f", "norm"),
			one("lm_head", "head"),
		},
		ggufLinks: append([]Link{
			ggufFused(nil),
			one("blk.#.attn_norm_2", "blocks.#.attn_norm").where(twoNorms),
			one("blk.#.attn_norm", "blocks.#.ffn_norm").where(twoNorms),
		}, ggufDecoderLinks()...),
	}
}

// falconHeads reads how many key-value heads there are and where norms stand; what
// transformers' own code fails with is refused.
func (s *settings) falconHeads(d *decoder) {
	grouped, parallel := s.boolOr("new_decoder_architecture", false), s.boolOr("parallel_attn", true) && !s.null("parallel_attn")
	d.kvHeads = s.intOr("num_kv_heads", d.heads)
	norms := s.intOr("num_ln_in_parallel_attn", 0)
	multi := s.boolOr("multi_query", true) && !s.null("multi_query")
	if s.has("head_dim") {
		s.refuse("head_dim", s.intOr("head_dim", 0)) // a property of its class, which no configuration sets
	}
	switch {
	case grouped && !parallel:
		s.refuse("parallel_attn", false)
	case grouped && norms == 0:
		norms = 2
	case !grouped && norms == 2 && parallel, norms > 2 || norms < 0:
		s.refuse("num_ln_in_parallel_attn", norms)
	case !grouped && !multi && d.kvHeads != d.heads:
		s.refuse("num_kv_heads", d.kvHeads)
	}
	if !grouped && multi {
		d.kvHeads = 1
	}
	d.parallel, d.oneNorm = parallel, parallel && norms != 2
}

// twoNorms reports whether the branches of parallel blocks read a norm each.
func twoNorms(g *graph.Graph) bool { return g.Blocks[0].Parallel && g.Blocks[0].FFNNorm != nil }

// perGroupOrder is the order of a fused projection that keeps the queries of one
// key-value head, its key and its value together.
func perGroupOrder(g *graph.Graph, block int) []int64 {
	a := g.Blocks[block].Attn
	group := a.Heads / a.KVHeads
	order := make([]int64, 0, (a.Heads+2*a.KVHeads)*a.HeadDim)
	head := func(n int64) {
		for i := range a.HeadDim {
			order = append(order, n*a.HeadDim+i)
		}
	}
	for kv := range a.KVHeads {
		for i := range group {
			head(kv*group + i)
		}
		head(a.Heads + kv)
		head(a.Heads + a.KVHeads + kv)
	}
	return order
}
