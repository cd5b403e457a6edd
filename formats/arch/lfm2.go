package arch

import (
	"fmt"
	"slices"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
)

// lfm2 is LFM2 and 2.5: gated short convolutions in most layers, attention with norms of
// query and key in the others. The width of its feed-forward layers is computed from a
// larger one.
//
// Source: configuration_lfm2.py and modeling_lfm2.py of transformers 5.23; llama.cpp's
// conversion/lfm2.py and src/models/lfm2.cpp.
func lfm2() *Architecture {
	return &Architecture{
		name: "lfm2", class: "Lfm2ForCausalLM", types: []string{"lfm2"}, gguf: "lfm2",
		llama: lfm2Llama(),
		fromHF: func(s *settings) *decoder {
			d := s.lfm2("lfm2", 12288)
			d.inner = s.adjusted(s.intOr("block_ff_dim", d.inner))
			return d
		},
		fromGGUF: func(k *keys) *decoder {
			d := k.lfm2("lfm2")
			if n := k.intOr("attention.sliding_window", 0); n > 0 {
				d.window = everyLayer(n)
			}
			return d
		},
		toHF:      func(c configWriter, g *graph.Graph) { c.lfm2(g); c["block_auto_adjust_ff_dim"] = false },
		toGGUF:    (*keyWriter).lfm2,
		hfLinks:   hfLFM2Links(),
		ggufLinks: ggufLFM2Links(),
	}
}

func lfm2Llama() *llamaCPP {
	return &llamaCPP{squareO: true, wholeRope: true, noFFNBias: true, denseLead: true, noConvBias: true, someConv: true}
}

// lfm2 reads what both classes have in common.
func (s *settings) lfm2(arch string, inner int64) *decoder {
	d := s.common(arch, map[string]int64{"num_key_value_heads": 8, "intermediate_size": inner})
	d.eps = float32(s.floatOr("norm_eps", 1e-5))
	d.tied = s.boolOr("tie_embedding", s.boolOr("tie_word_embeddings", true))
	d.act, d.qkNorm = graph.SiLU, true
	d.ropes = []graph.Rope{s.rope(d, 1000000)}
	d.shortConvs(s.intOr("conv_L_cache", 3), s.boolOr("conv_bias", false), s.lfm2Attending(d.layers))
	return d
}

// lfm2Attending reports which layers have attention.
func (s *settings) lfm2Attending(layers int) func(layer int) bool {
	if named := s.has("full_attn_idxs"); s.has("layer_types") {
		types, err := s.c.Strings("layer_types")
		s.note(err)
		if s.err == nil && len(types) != layers {
			s.bad("layer_types", types)
		}
		for _, t := range types {
			if t != "conv" && t != "full_attention" && t != "attention" {
				s.refuse("layer_types", t)
			}
		}
		return func(layer int) bool { return layer >= len(types) || types[layer] != "conv" }
	} else if !named {
		return func(int) bool { return true }
	}
	list, err := s.c.Ints("full_attn_idxs")
	s.note(err)
	return func(layer int) bool { return slices.Contains(list, int64(layer)) }
}

// adjusted is the width of the feed-forward layers.
func (s *settings) adjusted(inner int64) int64 {
	multiple, factor := s.intOr("block_multiple_of", 256), s.floatOr("block_ffn_dim_multiplier", 1)
	if !s.boolOr("block_auto_adjust_ff_dim", true) {
		return inner
	}
	if inner < 1 || inner > 1<<28 || multiple < 1 || multiple > 1<<28 || !(factor > 0) || factor > 1<<20 {
		s.bad("intermediate_size", inner)
		return inner
	}
	inner = int64(float64(2*inner) / 3)
	if s.null("block_ffn_dim_multiplier") {
		return inner
	}
	inner = int64(factor * float64(inner))
	return (inner + multiple - 1) / multiple * multiple
}

// shortConvs gives layers without attention a short convolution.
func (d *decoder) shortConvs(kernel int64, bias bool, attends func(layer int) bool) {
	d.each = func(layer int, b *graph.Block) {
		if attends(layer) {
			return
		}
		p := fmt.Sprintf("blocks.%d.shortconv.", layer)
		b.Attn, b.ShortConv = nil, &graph.ShortConv{Kernel: kernel, Conv: p + "conv.weight",
			In:  d.linear(p+"in", graph.RoleCIn, p+"in", d.width, 3*d.width, bias),
			Out: d.linear(p+"out", graph.RoleCOut, p+"mid", d.width, d.width, bias)}
		if bias {
			b.ShortConv.ConvBias = p + "conv.bias"
		}
	}
}

// kvHeadsKey has a number for each layer where some have no attention.
const kvHeadsKey = "attention.head_count_kv"

// kvHeads reads the key-value heads of all layers: those that have some have as many.
func (k *keys) kvHeads(d *decoder) []int64 {
	kv := k.byLayer(kvHeadsKey, d.layers)
	d.kvHeads = slices.Max(kv)
	for i, n := range kv {
		if n != 0 && n != d.kvHeads {
			k.note(formats.Unsupportedf(k.f.Name(), k.prefix+kvHeadsKey, "layer %d with %d heads, where others have %d", i, n, d.kvHeads))
		}
	}
	return kv
}

// kvHeads writes them.
func (w *keyWriter) kvHeads(g *graph.Graph) {
	kv := make([]uint32, len(g.Blocks))
	for i := range g.Blocks {
		if a := g.Blocks[i].Attn; a != nil {
			kv[i] = uint32(a.KVHeads)
		}
	}
	w.replace(kvHeadsKey, kv)
}

// lfm2 reads what both architectures of GGUF have in common: layers without key and
// value heads are convolutions.
func (k *keys) lfm2(arch string) *decoder {
	k.varied = []string{kvHeadsKey}
	d := k.common(arch)
	kv := k.kvHeads(d)
	d.qkNorm = true
	d.ropes = []graph.Rope{k.rope(d, graph.RopeHalf)}
	d.shortConvs(k.int("shortconv.l_cache"), false, func(layer int) bool { return kv[layer] > 0 })
	return d
}

// lfm2 writes the keys of settings.lfm2.
func (c configWriter) lfm2(g *graph.Graph) {
	types, b := make([]string, len(g.Blocks)), &g.Blocks[0]
	c["conv_L_cache"], c["conv_bias"] = 3, false
	for i := range g.Blocks {
		if types[i] = "full_attention"; g.Blocks[i].Attn != nil {
			b = &g.Blocks[i]
			continue
		}
		types[i] = "conv"
		n := g.Blocks[i].ShortConv
		c["conv_L_cache"], c["conv_bias"] = n.Kernel, n.ConvBias != ""
	}
	if b.Attn != nil {
		c.decoder(g, b)
	}
	c["layer_types"], c["norm_eps"] = types, g.Norm.Eps
	delete(c, "rms_norm_eps")
}

// lfm2 writes the keys of keys.lfm2.
func (w *keyWriter) lfm2(g *graph.Graph) {
	kernel := int64(0)
	for i := range g.Blocks {
		if n := g.Blocks[i].ShortConv; n != nil {
			kernel = n.Kernel
		}
	}
	w.kvHeads(g)
	w.int("shortconv.l_cache", kernel)
}

func hfLFM2Links() []Link {
	const layer = "model.layers.#."
	return append([]Link{
		one(layer+"operator_norm", "blocks.#.attn_norm"),
		one(layer+"ffn_norm", "blocks.#.ffn_norm"),
		one(layer+"self_attn.q_layernorm", "blocks.#.attn.q_norm"),
		one(layer+"self_attn.k_layernorm", "blocks.#.attn.k_norm"),
		one(layer+"self_attn.out_proj", "blocks.#.attn.o"),
		one(layer+"conv.in_proj", "blocks.#.shortconv.in"),
		{Foreign: layer + "conv.conv", Parts: []string{"blocks.#.shortconv.conv"}, Middle: true},
		one(layer+"conv.out_proj", "blocks.#.shortconv.out"),
		one(layer+"feed_forward.w1", "blocks.#.ffn.gate"),
		one(layer+"feed_forward.w3", "blocks.#.ffn.up"),
		one(layer+"feed_forward.w2", "blocks.#.ffn.down"),
		one("model.embedding_norm", "norm"),
	}, hfDecoderLinks()...)
}

func ggufLFM2Links() []Link {
	return append([]Link{
		one("blk.#.shortconv.in_proj", "blocks.#.shortconv.in"),
		one("blk.#.shortconv.conv", "blocks.#.shortconv.conv"),
		one("blk.#.shortconv.out_proj", "blocks.#.shortconv.out"),
		ggufSelectBias,
		one("token_embd_norm", "norm"), // llama.cpp's name of what stands behind the last layer
	}, ggufDecoderLinks()...)
}
