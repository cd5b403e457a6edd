package arch

import (
	"cmp"
	"math"
	"slices"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
)

// graniteMoEHybrid is Granite 4: state spaces in most layers, attention, mostly without
// rotation, in the others, or in all; a layer that all tokens go through, beside experts
// or alone; and Granite's multipliers (see granite).
//
// Sources: configuration_granitemoehybrid.py and modeling_granitemoehybrid.py of
// transformers 5.23; llama.cpp's conversion/granite.py and src/models/granite-hybrid.cpp.
func graniteMoEHybrid() *Architecture {
	return &Architecture{
		name: "granitemoehybrid", class: "GraniteMoeHybridForCausalLM", types: []string{"granitemoehybrid"}, gguf: "granitehybrid",
		llama: &llamaCPP{outputBias: optional, wholeRope: true, mambas: true, wideMamba: true},
		fromHF: func(s *settings) *decoder {
			d := s.common("granitemoehybrid", nil)
			b := s.boolOr("attention_bias", false)
			d.bias = biases{qkv: b, o: b}
			if s.stringOr("position_embedding_type", "nope") == "rope" {
				d.ropes = []graph.Rope{s.rope(d, 10000)}
			} else {
				s.ropeObject() // which counts for nothing
			}
			shared := s.intOr("shared_intermediate_size", 1024)
			if n := s.intOr("num_local_experts", 8); n != 0 {
				d.moe = moeParams{experts: n, topK: s.intOr("num_experts_per_tok", 2), inner: d.inner, shared: shared, normalize: true}
			} else {
				d.inner = shared
			}
			mambas := s.graniteLayers(d.layers)
			shape := s.graniteMamba(d, slices.Contains(mambas, true))
			d.each = func(layer int, b *graph.Block) {
				if mambas[layer] {
					b.Attn, b.Mamba = nil, d.mamba(layer, shape, true)
				}
			}
			d.scale = s.multiplier("attention_multiplier")
			d.headScale = 1 / s.multiplier("logits_scaling")
			d.divideBy(s.multiplier("embedding_multiplier"), s.multiplier("residual_multiplier"))
			return d
		},
		fromGGUF: func(k *keys) *decoder {
			k.varied = []string{kvHeadsKey}
			d := k.common("granitemoehybrid")
			kv := k.kvHeads(d)
			d.kvHeads = cmp.Or(d.kvHeads, d.heads)
			for i := range kv {
				d.bias.qkv = d.bias.qkv || k.hasTensor(Fill("blk.#.attn_q.bias", i, 0))
				d.bias.o = d.bias.o || k.hasTensor(Fill("blk.#.attn_output.bias", i, 0))
			}
			if k.boolOr("rope.scaling.finetuned", true) {
				d.ropes = []graph.Rope{k.rope(d, graph.RopeHalf)}
			}
			if n := k.intOr("expert_count", 0); n > 0 {
				d.moe = moeParams{experts: n, topK: k.int("expert_used_count"), inner: d.inner, shared: k.intOr("expert_shared_feed_forward_length", 0), normalize: true}
			}
			shape := k.mambas()
			shape.eps = d.eps
			d.each = func(layer int, b *graph.Block) {
				if kv[layer] == 0 {
					b.Attn, b.Mamba = nil, d.mamba(layer, shape, false)
				}
			}
			d.scale = float32(k.floatOr("attention.scale", 0))
			d.headScale = 1 / float32(k.positive("logit_scale", k.floatOr("logit_scale", 1)))
			d.divideBy(float32(k.orOne("embedding_scale")), float32(k.orOne("residual_scale")))
			return d
		},
		toHF:   configWriter.graniteHybrid,
		toGGUF: (*keyWriter).graniteHybrid,
		hfLinks: append(append([]Link{
			one("model.layers.#.block_sparse_moe.router.layer", "blocks.#.moe.router"),
			one("model.layers.#.block_sparse_moe.router", "blocks.#.moe.router"),
			{Foreign: "model.layers.#.block_sparse_moe.input_linear", Parts: []string{"blocks.#.moe.gate", "blocks.#.moe.up"}, Order: perExpertOrder},
			one("model.layers.#.block_sparse_moe.output_linear", "blocks.#.moe.down"),
			{Foreign: "model.layers.#.block_sparse_moe.experts.gate_up_proj", Parts: []string{"blocks.#.moe.gate", "blocks.#.moe.up"}, Order: perExpertOrder, Bare: true},
			{Foreign: "model.layers.#.block_sparse_moe.experts.down_proj", Parts: []string{"blocks.#.moe.down"}, Bare: true},
			{Foreign: "model.layers.#.shared_mlp.input_linear", Parts: []string{"blocks.#.moe.shared.gate", "blocks.#.moe.shared.up"}, When: hasExperts},
			{Foreign: "model.layers.#.shared_mlp.output_linear", Parts: []string{"blocks.#.moe.shared.down"}, When: hasExperts},
			{Foreign: "model.layers.#.shared_mlp.input_linear", Parts: []string{"blocks.#.ffn.gate", "blocks.#.ffn.up"}, When: hasNoExperts},
			{Foreign: "model.layers.#.shared_mlp.output_linear", Parts: []string{"blocks.#.ffn.down"}, When: hasNoExperts},
		}, hfMambaLinks("model.layers.#.mamba.")...), hfDecoderLinks()...),
		ggufLinks: append(append(ggufMambaLinks(), ggufRotaryLinks()...), ggufDecoderLinks()...),
	}
}

func hasExperts(g *graph.Graph) bool   { m, _ := experts(g); return m != nil }
func hasNoExperts(g *graph.Graph) bool { return !hasExperts(g) }

// graniteLayers reports which layers have a state space.
func (s *settings) graniteLayers(layers int) []bool {
	out, key := slices.Repeat([]bool{true}, layers), "layer_types"
	if !s.has(key) {
		key = "layers_block_type"
	}
	if !s.has(key) {
		return out
	}
	types, err := s.c.Strings(key)
	s.note(err)
	if s.err == nil && len(types) != layers {
		s.bad(key, types)
	}
	for i := range min(len(types), layers) {
		switch types[i] {
		case "linear_attention", "mamba":
		case "full_attention", "attention":
			out[i] = false
		default:
			s.refuse(key, types[i])
		}
	}
	return out
}

// graniteMamba reads the state spaces, of which there are some.
func (s *settings) graniteMamba(d *decoder, some bool) *mambaShape {
	m := &mambaShape{heads: s.intOr("mamba_n_heads", 128), groups: s.intOr("mamba_n_groups", 1), state: s.intOr("mamba_d_state", 256), kernel: s.intOr("mamba_d_conv", 4),
		convBias: !s.null("mamba_conv_bias") && s.boolOr("mamba_conv_bias", true), bias: s.boolOr("mamba_proj_bias", false), eps: d.eps}
	m.minStep, m.maxStep = s.stepLimit("time_step_limit")
	expand := s.intOr("mamba_expand", 2)
	if m.heads < 1 || expand < 1 || expand > 1<<16 || d.width < 1 || d.width > 1<<24 {
		s.bad("mamba_n_heads", m.heads)
		return m
	}
	if v, _ := s.c.Get("mamba_d_head"); !s.has("mamba_d_head") || v == "auto" {
		m.headDim = expand * d.width / m.heads
	} else {
		m.headDim = s.int("mamba_d_head")
	}
	if m.headDim*m.heads != expand*d.width { // which the class refuses, whatever the layers
		s.bad("mamba_d_head", m.headDim)
		return m
	}
	if !some {
		return m
	}
	if err := m.check(); err != nil {
		s.note(formats.Errorf(s.c.File(), "mamba_n_heads", "%v", err))
	}
	if d.act != graph.SiLU { // of the convolution, too
		s.refuse("hidden_act", d.act)
	}
	return m
}

// graniteHybrid writes the keys of graniteMoEHybrid.
func (c configWriter) graniteHybrid(g *graph.Graph) {
	types, b := make([]string, len(g.Blocks)), &g.Blocks[0]
	for i := range g.Blocks {
		if types[i] = "linear_attention"; g.Blocks[i].Attn != nil {
			types[i], b = "full_attention", &g.Blocks[i]
		}
	}
	c["position_embedding_type"] = nil
	if len(g.Ropes) > 0 {
		c["position_embedding_type"] = "rope"
	}
	if b.Attn != nil {
		c.heads(g, b)
		if len(g.Ropes) > 0 {
			c.rope(g, b)
		}
		c["attention_multiplier"] = b.Attn.Scale
	}
	if n := firstMamba(g); n != nil {
		c["mamba_n_heads"], c["mamba_d_head"], c["mamba_n_groups"], c["mamba_d_state"], c["mamba_d_conv"] = n.Heads, n.HeadDim, n.Groups, n.State, n.Kernel
		c["mamba_expand"], c["mamba_conv_bias"], c["mamba_proj_bias"] = n.Values()/g.Width, n.ConvBias != "", n.Z.Bias != ""
		c.limits("time_step_limit", n)
	}
	c["num_local_experts"], c["shared_intermediate_size"] = 0, inner(g)
	if m, _ := experts(g); m != nil {
		c["num_local_experts"], c["num_experts_per_tok"], c["shared_intermediate_size"] = m.Experts, m.TopK, 0
		if m.Shared != nil {
			c["shared_intermediate_size"] = m.Shared.Up.Out
		}
	}
	r, eps := branchFactor(g)
	c["layer_types"], c["rms_norm_eps"] = types, eps
	c["embedding_multiplier"], c["residual_multiplier"], c["logits_scaling"] = g.Embed.Scale*r, r, 1/float64(g.Norm.Factor())
}

// graniteHybrid writes the keys of the same in GGUF.
func (w *keyWriter) graniteHybrid(g *graph.Graph) {
	w.kvHeads(g)
	if n := firstMamba(g); n != nil {
		w.mambas(n)
	}
	r, eps := branchFactor(g)
	w.replace("attention.layer_norm_rms_epsilon", eps)
	w.raw(w.prefix+"rope.scaling.finetuned", len(g.Ropes) > 0)
	w.float("attention.scale", float64(attention(g).Scale))
	w.float("embedding_scale", float64(g.Embed.Scale*r))
	w.float("residual_scale", float64(r))
	w.float("logit_scale", 1/float64(g.Norm.Factor()))
}

// branchFactor is the factor on branches, which norms of hidden states hold in their
// epsilon and those of state spaces do not, such that dividing by it again gives the same
// numbers; and the epsilon without it.
func branchFactor(g *graph.Graph) (r, eps float32) {
	n := firstMamba(g)
	if n == nil || n.Norm == nil {
		return 1, g.Norm.Eps
	}
	eps = n.Norm.Eps
	r = float32(math.Sqrt(float64(eps) / float64(g.Norm.Eps)))
	for _, try := range []float32{r, math.Nextafter32(r, 0), math.Nextafter32(r, 2*r), float32(math.Round(float64(r)*1e4) / 1e4)} {
		if eps/(try*try) == g.Norm.Eps {
			r = try
		}
	}
	return r, eps
}
