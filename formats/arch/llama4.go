package arch

import (
	"math"
	"slices"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
)

// llama4 rotates nothing in every fourth layer, whose queries grow with their position;
// in the others tokens of a run of positions see one another, and heads are normalised
// behind the rotation by norms without weights. Its router weighs what experts read,
// beside a shared layer; some layers may be dense. Multimodal checkpoints hold the text
// model under text_config.
//
// Sources: configuration_llama4.py and modeling_llama4.py of transformers,
// src/models/llama4.cpp of llama.cpp, which has the constants of its largest part.
func llama4() *Architecture {
	return &Architecture{
		name: "llama4", class: "Llama4ForCausalLM", types: []string{"llama4_text", "llama4"}, gguf: "llama4", within: true,
		llama: &llamaCPP{outputBias: optional, wholeRope: true, factors: true, someExperts: true},
		fromHF: func(s *settings) *decoder {
			d := s.common("llama4", map[string]int64{"num_key_value_heads": 8})
			s.headSize(d, 128)
			d.eps = float32(s.floatOr("rms_norm_eps", 1e-5))
			b := s.boolOr("attention_bias", false)
			d.bias = biases{qkv: b, o: b}
			d.ropes = []graph.Rope{s.rope(d, 500000)}
			d.ropes[0].Style = graph.RopeInterleaved
			d.rope = s.ropeLayers(d.layers)
			d.moe = moeParams{experts: s.intOr("num_local_experts", 16), topK: s.intOr("num_experts_per_tok", 1), inner: d.inner, shared: d.inner}
			d.moe.sparse = s.moeLayers(d.layers)
			d.inner = s.intOr("intermediate_size_mlp", 16384)
			var t *graph.Temperature
			if every, beta := s.intOr("floor_scale", 8192), s.floatOr("attn_scale", 0.1); s.boolOr("attn_temperature_tuning", true) {
				t = &graph.Temperature{Beta: float32(beta), Every: every, Offset: 1}
			}
			chunk := s.intOr("attention_chunk_size", 8192)
			if chunk < 1 || s.null("attention_chunk_size") {
				s.bad("attention_chunk_size", chunk)
			}
			d.llama4(t, s.boolOr("use_qk_norm", true), s.chunkedLayers(chunk, d))
			return d
		},
		fromGGUF: func(k *keys) *decoder {
			d := k.common("llama4")
			d.ropes = []graph.Rope{k.rope(d, graph.RopeInterleaved)}
			inner := k.intOr("expert_feed_forward_length", d.inner)
			d.moe = moeParams{experts: k.int("expert_count"), topK: k.int("expert_used_count"), inner: inner, shared: inner}
			step := k.int("interleave_moe_layer_step")
			d.moe.sparse = func(layer int) bool { return step > 0 && (int64(layer)+1)%step == 0 }
			if k.intOr("attention.sliding_window", llama4Chunk) == 0 {
				d.llama4(nil, d.moe.experts != 128, func(int) int64 { return 0 })
				return d
			}
			d.rope = everyFourthPlain
			d.llama4(&graph.Temperature{Beta: 0.1, Every: llama4Chunk, Offset: 1}, d.moe.experts != 128, func(layer int) int64 {
				if d.rope(layer) < 0 {
					return 0
				}
				return llama4Chunk
			})
			return d
		},
		toHF: func(c configWriter, g *graph.Graph) {
			c.common(g)
			c.ropeLayers(g)
			c["use_qk_norm"], c["attn_temperature_tuning"] = false, false
			types, sparse := make([]string, len(g.Blocks)), []int{}
			for i := range g.Blocks {
				a := g.Blocks[i].Attn
				if types[i] = "full_attention"; a.Chunk > 0 {
					types[i], c["attention_chunk_size"] = "chunked_attention", a.Chunk
				}
				if a.QNorm != nil {
					c["use_qk_norm"] = true
				}
				if t := a.Temperature; t != nil {
					c["attn_temperature_tuning"], c["attn_scale"], c["floor_scale"] = true, t.Beta, t.Every
				}
				if g.Blocks[i].MoE != nil {
					sparse = append(sparse, i)
				}
			}
			c["layer_types"], c["moe_layers"] = types, sparse
			c["intermediate_size_mlp"] = inner(g)
			c.mixture(g, "num_local_experts", "intermediate_size")
		},
		toGGUF: func(w *keyWriter, g *graph.Graph) {
			step := int64(0)
			for i := range g.Blocks {
				if g.Blocks[i].MoE != nil && step == 0 {
					step = int64(i) + 1
				}
			}
			w.int("interleave_moe_layer_step", step)
			if !slices.ContainsFunc(g.Blocks, func(b graph.Block) bool { return b.Attn.Chunk > 0 }) {
				w.int("attention.sliding_window", 0)
			}
		},
		hfLinks: append([]Link{
			one("model.layers.#.feed_forward.gate_proj", "blocks.#.ffn.gate"),
			one("model.layers.#.feed_forward.up_proj", "blocks.#.ffn.up"),
			one("model.layers.#.feed_forward.down_proj", "blocks.#.ffn.down"),
			one("model.layers.#.feed_forward.router", "blocks.#.moe.router"),
			{Foreign: "model.layers.#.feed_forward.experts.gate_up_proj", Parts: []string{"blocks.#.moe.gate", "blocks.#.moe.up"}, Order: perExpertOrder, Transposed: true, Bare: true},
			{Foreign: "model.layers.#.feed_forward.experts.down_proj", Parts: []string{"blocks.#.moe.down"}, Transposed: true, Bare: true},
			one("model.layers.#.feed_forward.shared_expert.gate_proj", "blocks.#.moe.shared.gate"),
			one("model.layers.#.feed_forward.shared_expert.up_proj", "blocks.#.moe.shared.up"),
			one("model.layers.#.feed_forward.shared_expert.down_proj", "blocks.#.moe.shared.down"),
		}, hfDecoderLinks()...),
		ggufLinks: ggufDecoderLinks(),
	}
}

// llama4Chunk is the run of positions, and what temperatures count, in llama.cpp.
const llama4Chunk = 8192

// llama4 gives layers what no other architecture has: a temperature where nothing is
// rotated, norms elsewhere, runs of positions, and weights of what experts read.
func (d *decoder) llama4(t *graph.Temperature, norms bool, chunk func(layer int) int64) {
	d.each = func(layer int, b *graph.Block) {
		a := b.Attn
		a.Chunk = chunk(layer)
		switch {
		case a.Rope < 0:
			a.Temperature = t
		case norms:
			a.LateNorms = true
			a.QNorm = &graph.Norm{Kind: graph.RMSNorm, Eps: d.eps}
			a.KNorm = &graph.Norm{Kind: graph.RMSNorm, Eps: d.eps}
		}
		if m := b.MoE; m != nil {
			m.Score, m.WeighInput = graph.ScoreSigmoid, true
		}
	}
}

// moeLayers reads which layers have experts: those of a list, or every n-th.
func (s *settings) moeLayers(layers int) func(int) bool {
	step := s.intOr("interleave_moe_layer_step", 1)
	if s.has("moe_layers") {
		list, err := s.c.Ints("moe_layers")
		s.note(err)
		return func(layer int) bool { return slices.Contains(list, int64(layer)) }
	}
	if step < 1 {
		s.bad("interleave_moe_layer_step", step)
		step = 1
	}
	return func(layer int) bool { return (int64(layer)+1)%step == 0 }
}

// chunkedLayers reads which layers attend within runs of positions: those of a list, or
// those that rotate.
func (s *settings) chunkedLayers(chunk int64, d *decoder) func(int) int64 {
	chunked := func(layer int) bool { return d.rope(layer) >= 0 }
	if s.has("layer_types") {
		types, err := s.c.Strings("layer_types")
		s.note(err)
		if len(types) != d.layers {
			s.bad("layer_types", types)
			return func(int) int64 { return 0 }
		}
		for _, t := range types {
			if t != "chunked_attention" && t != "full_attention" {
				s.note(formats.Unsupportedf(s.c.File(), "layer_types", "value %v", t))
			}
		}
		chunked = func(layer int) bool { return types[layer] == "chunked_attention" }
	}
	return func(layer int) int64 {
		if chunked(layer) {
			return min(chunk, math.MaxInt32)
		}
		return 0
	}
}
