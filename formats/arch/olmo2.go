package arch

import "github.com/nstf/nstf/formats/graph"

// olmo2 has norms behind its branches alone, and norms of query and key over all
// heads at once.
//
// Source: configuration_olmo2.py and modeling_olmo2.py of transformers. GGUF's name
// is OLMo 3's too, which has windows.
func olmo2() *Architecture {
	return &Architecture{
		name: "olmo2", class: "Olmo2ForCausalLM", types: []string{"olmo2"}, gguf: "olmo2",
		llama: olmoLlama(),
		fromHF: func(s *settings) *decoder {
			d := s.olmo("olmo2")
			d.ropes = []graph.Rope{s.rope(d, 10000)}
			return d
		},
		fromGGUF: func(k *keys) *decoder {
			d := k.common("olmo2")
			d.bare, d.postNorms, d.qkNorm, d.jointNorms = true, true, true, true
			d.ropes = []graph.Rope{k.rope(d, graph.RopeHalf)}
			if n := k.intOr("attention.sliding_window", 0); n > 0 {
				d.arch = "olmo3"
				d.window = k.slidingLayers(n, d.layers, 4)
				d.ropes = append(d.ropes, graph.Rope{Style: graph.RopeHalf, Dim: d.ropes[0].Dim,
					Theta: k.floatOr("rope.freq_base_swa", d.ropes[0].Theta), Scaling: graph.RopeScaling{Kind: graph.ScaleNone}})
				d.rope = d.localRope
			}
			return d
		},
		toHF:      configWriter.common,
		hfLinks:   hfPostNormLinks(),
		ggufLinks: ggufPostNormLinks(),
	}
}

func olmoLlama() *llamaCPP {
	return &llamaCPP{copyHead: true, squareO: true, wholeRope: true, noFFNBias: true, window: optional, windowed: true, oneBase: true}
}

// olmo reads the keys that OLMo 2 and 3 share.
func (s *settings) olmo(arch string) *decoder {
	d := s.common(arch, nil)
	d.eps = float32(s.floatOr("rms_norm_eps", 1e-5))
	d.bare, d.postNorms, d.qkNorm, d.jointNorms = true, true, true, true
	b := s.boolOr("attention_bias", false)
	d.bias = biases{qkv: b, o: b}
	return d
}

// hfPostNormLinks are the names of decoders with norms behind their branches alone.
func hfPostNormLinks() []Link {
	return append([]Link{
		one("model.layers.#.post_attention_layernorm", "blocks.#.attn_post_norm"),
		one("model.layers.#.post_feedforward_layernorm", "blocks.#.ffn_post_norm"),
	}, hfDecoderLinks()...)
}

func ggufPostNormLinks() []Link {
	return append([]Link{
		one("blk.#.post_attention_norm", "blocks.#.attn_post_norm"),
		one("blk.#.post_ffw_norm", "blocks.#.ffn_post_norm"),
	}, ggufDecoderLinks()...)
}
