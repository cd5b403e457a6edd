package arch

import "github.com/nstf/nstf/formats/graph"

// starCoder2 has LayerNorms, biases everywhere, and no gate; a window in every
// layer where the configuration has one.
//
// Source: configuration_starcoder2.py and modeling_starcoder2.py of transformers.
func starCoder2() *Architecture {
	return &Architecture{
		name: "starcoder2", class: "Starcoder2ForCausalLM", types: []string{"starcoder2"}, gguf: "starcoder2",
		llama: &llamaCPP{outputBias: required, squareO: true},
		fromHF: func(s *settings) *decoder {
			d := s.common("starcoder2", map[string]int64{"num_key_value_heads": 2})
			d.norm, d.eps = graph.LayerNorm, float32(s.floatOr("norm_epsilon", 1e-5))
			d.act, d.gated = s.activation("hidden_act", "gelu_pytorch_tanh"), false
			d.tied = s.boolOr("tie_word_embeddings", true)
			b := s.boolOr("use_bias", true)
			d.bias = biases{qkv: b, o: b, ffn: b}
			d.ropes = []graph.Rope{s.rope(d, 10000)}
			d.window = everyLayer(s.window(0))
			return d
		},
		fromGGUF: func(k *keys) *decoder {
			d := k.common("starcoder2")
			d.act, d.gated = graph.GELUTanh, false
			d.ropes = []graph.Rope{k.rope(d, graph.RopeHalf)}
			return d
		},
		toHF: func(c configWriter, g *graph.Graph) {
			c.common(g)
			c["norm_epsilon"], c["use_bias"] = g.Norm.Eps, g.Blocks[0].Attn.Q.Bias != ""
		},
		hfLinks: append([]Link{
			one("model.layers.#.mlp.c_fc", "blocks.#.ffn.up"),
			one("model.layers.#.mlp.c_proj", "blocks.#.ffn.down"),
		}, hfDecoderLinks()...),
		ggufLinks: ggufDecoderLinks(),
	}
}
