package arch

import (
	"github.com/nstf/nstf/formats"

	"github.com/nstf/nstf/formats/graph"
)

// llama covers Llama 1 to 3.x and what shares their graph: RMS norms, rotary
// embeddings in halves, grouped queries, a gated SiLU feed-forward.
//
// Sources: configuration_llama.py and modeling_llama.py of transformers;
// llama.cpp's "llama" GGUF architecture, which mistral and mixtral share.
func llama() *Architecture {
	return &Architecture{
		name: "llama", class: "LlamaForCausalLM", types: []string{"llama"}, gguf: "llama",
		llama: &llamaCPP{outputBias: optional, wholeRope: true, factors: true},
		fromHF: func(s *settings) *decoder {
			d := s.common("llama", nil)
			b := s.boolOr("attention_bias", false)
			d.bias = biases{qkv: b, o: b, ffn: s.boolOr("mlp_bias", false)}
			d.ropes = []graph.Rope{s.rope(d, 10000)}
			return d
		},
		fromGGUF: func(k *keys) *decoder {
			d := k.common("llama")
			d.ropes = []graph.Rope{k.rope(d, graph.RopeHalf)}
			if n := d.ropes[0].Dim; n != d.headDim { // the order of rows would be another
				k.note(formats.Unsupportedf(k.f.Name(), k.prefix+"rope.dimension_count", "value %d with heads of %d", n, d.headDim))
			}
			if n := k.intOr("expert_count", 0); n > 0 {
				d.arch = "mixtral"
				d.moe = moeParams{experts: n, topK: k.int("expert_used_count"), inner: d.inner, normalize: true}
			}
			return d
		},
		toHF: func(c configWriter, g *graph.Graph) {
			c.common(g)
			c["mlp_bias"] = g.Blocks[0].FFN.Up.Bias != ""
		},
		hfLinks:   hfDecoderLinks(),
		ggufLinks: append(ggufRotaryLinks(), ggufDecoderLinks()...),
	}
}

// hfDecoderLinks are the names that most Hugging Face decoders share.
func hfDecoderLinks() []Link {
	return []Link{
		one("model.embed_tokens", "embed"),
		one("model.layers.#.input_layernorm", "blocks.#.attn_norm"),
		one("model.layers.#.self_attn.q_proj", "blocks.#.attn.q"),
		one("model.layers.#.self_attn.k_proj", "blocks.#.attn.k"),
		one("model.layers.#.self_attn.v_proj", "blocks.#.attn.v"),
		one("model.layers.#.self_attn.o_proj", "blocks.#.attn.o"),
		one("model.layers.#.self_attn.q_norm", "blocks.#.attn.q_norm"),
		one("model.layers.#.self_attn.k_norm", "blocks.#.attn.k_norm"),
		one("model.layers.#.post_attention_layernorm", "blocks.#.ffn_norm"),
		one("model.layers.#.mlp.gate_proj", "blocks.#.ffn.gate"),
		one("model.layers.#.mlp.up_proj", "blocks.#.ffn.up"),
		one("model.layers.#.mlp.down_proj", "blocks.#.ffn.down"),
		one("model.norm", "norm"),
		one("lm_head", "head"),
	}
}

// ggufDecoderLinks are GGUF's names, the same for every architecture.
// Source: gguf-py's constants.py and tensor_mapping.py.
func ggufDecoderLinks() []Link {
	return []Link{
		one("token_embd", "embed"),
		one("position_embd", "embed.positions"),
		one("blk.#.attn_norm", "blocks.#.attn_norm"),
		one("blk.#.attn_q", "blocks.#.attn.q"),
		one("blk.#.attn_k", "blocks.#.attn.k"),
		one("blk.#.attn_v", "blocks.#.attn.v"),
		ggufFused(nil),
		one("blk.#.attn_output", "blocks.#.attn.o"),
		one("blk.#.attn_q_norm", "blocks.#.attn.q_norm"),
		one("blk.#.attn_k_norm", "blocks.#.attn.k_norm"),
		one("blk.#.ffn_norm", "blocks.#.ffn_norm"),
		one("blk.#.ffn_gate", "blocks.#.ffn.gate"),
		one("blk.#.ffn_up", "blocks.#.ffn.up"),
		one("blk.#.ffn_down", "blocks.#.ffn.down"),
		one("blk.#.ffn_gate_inp", "blocks.#.moe.router"),
		one("blk.#.ffn_gate_inp_shexp", "blocks.#.moe.shared_gate"),
		one("blk.#.ffn_gate_shexp", "blocks.#.moe.shared.gate"),
		one("blk.#.ffn_up_shexp", "blocks.#.moe.shared.up"),
		one("blk.#.ffn_down_shexp", "blocks.#.moe.shared.down"),
		one("blk.#.ffn_gate_exps", "blocks.#.moe.gate"),
		one("blk.#.ffn_up_exps", "blocks.#.moe.up"),
		one("blk.#.ffn_down_exps", "blocks.#.moe.down"),
		{Foreign: "blk.#.ffn_gate_up_exps", Parts: []string{"blocks.#.moe.gate", "blocks.#.moe.up"}, Order: perExpertOrder},
		one("blk.#.ffn_gate.@", "blocks.#.moe.gate"), // files before llama.cpp stacked experts
		one("blk.#.ffn_up.@", "blocks.#.moe.up"),
		one("blk.#.ffn_down.@", "blocks.#.moe.down"),
		one("output_norm", "norm"),
		one("output", "head"),
	}
}

// ggufFused is the matrix that holds query, key and value one after the other:
// llama.cpp insists on it for some architectures and reads it for all.
func ggufFused(order func(*graph.Graph, int) []int64) Link {
	return Link{Foreign: "blk.#.attn_qkv", Parts: []string{"blocks.#.attn.q", "blocks.#.attn.k", "blocks.#.attn.v"}, Order: order}
}

// ggufRotaryLinks replace the query and key of ggufDecoderLinks for GGUF's
// "llama" architecture, whose rows are interleaved.
func ggufRotaryLinks() []Link {
	return []Link{
		{Foreign: "blk.#.attn_q", Parts: []string{"blocks.#.attn.q"}, Order: rotaryOrder(queryHeads)},
		{Foreign: "blk.#.attn_k", Parts: []string{"blocks.#.attn.k"}, Order: rotaryOrder(keyHeads)},
		one("blk.#.attn_v", "blocks.#.attn.v"),
		ggufFused(fusedRotaryOrder),
	}
}
