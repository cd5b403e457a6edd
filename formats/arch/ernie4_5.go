package arch

import "github.com/nstf/nstf/formats/graph"

// ernie45 is llama that rotates interleaved pairs; use_bias gives every linear a
// bias.
//
// Sources: configuration_ernie4_5.py and modeling_ernie4_5.py of transformers.
func ernie45() *Architecture {
	return &Architecture{
		name: "ernie4_5", class: "Ernie4_5ForCausalLM", types: []string{"ernie4_5"}, gguf: "ernie4_5",
		llama: &llamaCPP{outputBias: optional, wholeRope: true, noFFNBias: true},
		fromHF: func(s *settings) *decoder {
			d := s.common("ernie4_5", map[string]int64{"num_key_value_heads": 2})
			s.headSize(d, 128)
			d.eps = float32(s.floatOr("rms_norm_eps", 1e-5))
			d.tied = s.boolOr("tie_word_embeddings", true)
			b := s.boolOr("use_bias", false)
			d.bias = biases{qkv: b, o: b, ffn: b}
			d.ropes = []graph.Rope{s.rope(d, 500000)}
			d.ropes[0].Style = graph.RopeInterleaved
			return d
		},
		fromGGUF: func(k *keys) *decoder {
			d := k.common("ernie4_5")
			d.ropes = []graph.Rope{k.rope(d, graph.RopeInterleaved)}
			return d
		},
		toHF: func(c configWriter, g *graph.Graph) {
			c.common(g)
			c["use_bias"] = g.Blocks[0].Attn.Q.Bias != ""
		},
		hfLinks:   hfDecoderLinks(),
		ggufLinks: ggufDecoderLinks(),
	}
}
