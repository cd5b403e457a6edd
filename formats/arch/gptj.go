package arch

import "github.com/nstf/nstf/formats/graph"

// gptj runs attention and feed-forward in parallel behind one LayerNorm and
// rotates interleaved pairs of the first rotary_dim numbers of a head.
//
// Source: configuration_gptj.py and modeling_gptj.py of transformers. GGUF
// names the architecture; llama.cpp does not execute it.
func gptj() *Architecture {
	return &Architecture{
		name: "gptj", class: "GPTJForCausalLM", types: []string{"gptj"}, gguf: "gptj",
		fromHF: func(s *settings) *decoder {
			d := s.gpt("gptj")
			d.tied = s.boolOr("tie_word_embeddings", false)
			d.parallel, d.oneNorm = true, true
			d.bias = biases{ffn: true, head: true}
			d.ropes = []graph.Rope{{Style: graph.RopeInterleaved, Dim: s.rotaryDim(d), Theta: 10000, Scaling: graph.RopeScaling{Kind: graph.ScaleNone}}}
			return d
		},
		fromGGUF: func(k *keys) *decoder {
			d := k.common("gptj")
			d.act, d.gated = graph.GELUTanh, false
			d.parallel, d.oneNorm = true, true
			d.ropes = []graph.Rope{k.rope(d, graph.RopeInterleaved)}
			return d
		},
		toHF: func(c configWriter, g *graph.Graph) {
			c.gpt(g)
			c["rotary_dim"] = g.Ropes[0].Dim
		},
		hfLinks: append([]Link{
			one("transformer.h.#.attn.q_proj", "blocks.#.attn.q"),
			one("transformer.h.#.attn.k_proj", "blocks.#.attn.k"),
			one("transformer.h.#.attn.v_proj", "blocks.#.attn.v"),
			one("transformer.h.#.attn.out_proj", "blocks.#.attn.o"),
			one("transformer.h.#.mlp.fc_in", "blocks.#.ffn.up"),
			one("transformer.h.#.mlp.fc_out", "blocks.#.ffn.down"),
		}, hfGPTLinks()...),
		ggufLinks: ggufDecoderLinks(),
	}
}

// rotaryDim reads how many numbers of a head are rotated: 64 where the key is
// absent. null, with which transformers' own code fails unless there is one
// head, is refused.
func (s *settings) rotaryDim(d *decoder) int64 {
	if s.null("rotary_dim") {
		s.refuse("rotary_dim", "null")
		return d.headDim
	}
	return s.intOr("rotary_dim", 64)
}
