package arch

import (
	"math"

	"github.com/nstf/nstf/formats/graph"
)

// gemma2 scales its embeddings by sqrt(D), stores norm weights minus one,
// norms each branch's output too, caps attention scores and logits, and
// slides a window over every other layer, the first included.
//
// Source: configuration_gemma2.py and modeling_gemma2.py of transformers.
func gemma2() *Architecture {
	return &Architecture{
		name: "gemma2", class: "Gemma2ForCausalLM", types: []string{"gemma2"}, gguf: "gemma2",
		llama: &llamaCPP{window: optional, windowed: true, tiedHead: true},
		fromHF: func(s *settings) *decoder {
			d := s.gemma("gemma2", nil, 30)
			d.attnSoftcap = s.softcap("attn_logit_softcapping", 50)
			d.ropes = []graph.Rope{s.rope(d, 10000)}
			d.window = s.slidingLayers(s.window(4096), d.layers, func(layer int) bool { return layer%2 == 0 })
			return d
		},
		fromGGUF: func(k *keys) *decoder {
			d := k.gemma("gemma2")
			// llama.cpp computes the score's scale: D/H for the 27B model (46
			// layers), the head's size for the others.
			if d.layers == 46 {
				d.scale = rsqrt(float64(d.width / max(d.heads, 1)))
			}
			d.attnSoftcap = float32(k.floatOr("attn_logit_softcapping", 50))
			d.headSoftcap = float32(k.floatOr("final_logit_softcapping", 30))
			d.ropes = []graph.Rope{k.rope(d, graph.RopeHalf)}
			d.window = k.slidingLayers(k.intOr("attention.sliding_window", 4096), d.layers, 2)
			return d
		},
		offset:    1,
		toHF:      configWriter.gemma,
		hfLinks:   hfGemmaLinks(),
		ggufLinks: ggufGemmaLinks(),
	}
}

func rsqrt(v float64) float32 { return float32(1 / math.Sqrt(v)) }

func (s *settings) gemma(arch string, defaults map[string]int64, finalCap float64) *decoder {
	d := s.common(arch, defaults)
	d.act = s.activation("hidden_activation", "gelu_pytorch_tanh")
	d.headDim = s.intOr("head_dim", 256)
	d.tied = s.boolOr("tie_word_embeddings", true)
	d.offset, d.postNorms = 1, true
	d.embedScale = float32(math.Sqrt(float64(d.width)))
	d.scale = rsqrt(s.floatOr("query_pre_attn_scalar", 256))
	b := s.boolOr("attention_bias", false)
	d.bias = biases{qkv: b, o: b}
	d.headSoftcap = s.softcap("final_logit_softcapping", finalCap)
	if s.boolOr("use_bidirectional_attention", false) {
		s.refuse("use_bidirectional_attention", true)
	}
	return d
}

// softcap reads a cap: the default where the key is absent, none (0) where it
// is null. A cap of zero, by which scores would be divided, is refused.
func (s *settings) softcap(key string, def float64) float32 {
	if s.null(key) {
		return 0
	}
	c := s.floatOr(key, def)
	if s.has(key) && c <= 0 {
		s.bad(key, c)
	}
	return float32(c)
}

func (k *keys) gemma(arch string) *decoder {
	d := k.common(arch)
	d.act, d.postNorms = graph.GELUTanh, true
	d.embedScale = float32(math.Sqrt(float64(d.width)))
	return d
}

func hfGemmaLinks() []Link {
	return append([]Link{
		one("model.layers.#.post_attention_layernorm", "blocks.#.attn_post_norm"),
		one("model.layers.#.pre_feedforward_layernorm", "blocks.#.ffn_norm"),
		one("model.layers.#.post_feedforward_layernorm", "blocks.#.ffn_post_norm"),
	}, hfDecoderLinks()...)
}

func ggufGemmaLinks() []Link {
	return append([]Link{
		one("blk.#.post_attention_norm", "blocks.#.attn_post_norm"),
		one("blk.#.post_ffw_norm", "blocks.#.ffn_post_norm"),
	}, ggufDecoderLinks()...)
}
