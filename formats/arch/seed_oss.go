package arch

import "github.com/nstf/nstf/formats/graph"

// seedOSS is llama with biases on query, key and value, and heads of 128. GGUF
// calls the norm before the feed-forward layer one behind attention.
//
// Sources: configuration_seed_oss.py of transformers, src/models/seed-oss.cpp of
// llama.cpp.
func seedOSS() *Architecture {
	return &Architecture{
		name: "seed_oss", class: "SeedOssForCausalLM", types: []string{"seed_oss"}, gguf: "seed_oss",
		llama: &llamaCPP{noFFNBias: true},
		fromHF: func(s *settings) *decoder {
			d := s.common("seed_oss", map[string]int64{"num_key_value_heads": 8})
			s.headSize(d, 128)
			d.bias = biases{qkv: s.boolOr("attention_bias", true), o: s.boolOr("attention_out_bias", false), ffn: s.boolOr("mlp_bias", false)}
			d.ropes = []graph.Rope{s.rope(d, 10000)}
			return d
		},
		fromGGUF: func(k *keys) *decoder {
			d := k.common("seed_oss")
			d.ropes = []graph.Rope{k.rope(d, graph.RopeHalf)}
			return d
		},
		toHF: func(c configWriter, g *graph.Graph) {
			c.common(g)
			b := &g.Blocks[0]
			c["attention_bias"], c["attention_out_bias"], c["mlp_bias"] = b.Attn.Q.Bias != "", b.Attn.O.Bias != "", b.FFN.Up.Bias != ""
		},
		hfLinks:   hfDecoderLinks(),
		ggufLinks: append([]Link{one("blk.#.post_attention_norm", "blocks.#.ffn_norm")}, ggufDecoderLinks()...),
	}
}
