package arch

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
)

// gemma4 has heads of two sizes: those of layers with a window and those of full
// layers, which may have fewer key-value heads, take the keys' projection for values,
// and turn the first pairs of each head alone. The last layers read keys and values of
// earlier ones. Experts stand beside a dense layer; each token has an input of its own
// for every layer in the small models.
//
// Sources: configuration_gemma4.py and modeling_gemma4.py of transformers,
// src/models/gemma4.cpp and conversion/gemma.py of llama.cpp.
func gemma4() *Architecture {
	return &Architecture{
		name: "gemma4", class: "Gemma4ForCausalLM", types: []string{"gemma4_text", "gemma4"}, gguf: "gemma4",
		within:   true,
		llama:    &llamaCPP{window: required, windowed: true, factors: true, capped: true, someWindow: true},
		fromHF:   func(s *settings) *decoder { return s.gemma4(131072, 512, 256) },
		fromGGUF: (*keys).gemma4,
		toHF:     configWriter.gemma4,
		toGGUF:   (*keyWriter).gemma4,
		unused: func(g *graph.Graph, pattern string, block int) bool { // which files keep
			a := g.Blocks[block].Attn
			switch pattern {
			case "blk.#.attn_k", "blk.#.attn_v", "blk.#.attn_k_norm":
				return a.KVFrom != nil
			}
			return false
		},
		hfLinks: hfGemma4Links(),
		ggufLinks: append([]Link{
			bare("blk.#.ffn_gate_inp.scale", "blocks.#.moe.router_norm"),
			bare("blk.#.ffn_down_exps.scale", "blocks.#.moe.expert_scale"),
			one("blk.#.pre_ffw_norm_2", "blocks.#.moe_norm"),
			one("blk.#.post_ffw_norm_1", "blocks.#.dense_post_norm"),
			one("blk.#.post_ffw_norm_2", "blocks.#.moe_post_norm"),
			{Foreign: "blk.#.ffn_gate_up_exps", Parts: []string{"blocks.#.moe.gate", "blocks.#.moe.up"}, Order: perExpertOrder},
			one("blk.#.inp_gate", "blocks.#.per_layer.gate"),
			one("blk.#.proj", "blocks.#.per_layer.down"),
			one("blk.#.post_norm", "blocks.#.per_layer.norm"),
			one("blk.#.layer_output_scale", "blocks.#.out_scale"),
			one("per_layer_token_embd", "per_layer.embed"),
			one("per_layer_model_proj", "per_layer.projection"),
			one("per_layer_proj_norm", "per_layer.norm"),
		}, ggufGemmaLinks()...),
	}
}

func hfGemma4Links() []Link {
	return append([]Link{
		{Foreign: "model.layers.#.experts.gate_up_proj", Parts: []string{"blocks.#.moe.gate", "blocks.#.moe.up"}, Order: perExpertOrder, Bare: true},
		bare("model.layers.#.experts.down_proj", "blocks.#.moe.down"),
		one("model.layers.#.router.proj", "blocks.#.moe.router"),
		bare("model.layers.#.router.scale", "blocks.#.moe.router_norm"),
		bare("model.layers.#.router.per_expert_scale", "blocks.#.moe.expert_scale"),
		one("model.layers.#.pre_feedforward_layernorm_2", "blocks.#.moe_norm"),
		one("model.layers.#.post_feedforward_layernorm_1", "blocks.#.dense_post_norm"),
		one("model.layers.#.post_feedforward_layernorm_2", "blocks.#.moe_post_norm"),
		one("model.layers.#.per_layer_input_gate", "blocks.#.per_layer.gate"),
		one("model.layers.#.per_layer_projection", "blocks.#.per_layer.down"),
		one("model.layers.#.post_per_layer_input_norm", "blocks.#.per_layer.norm"),
		bare("model.layers.#.layer_scalar", "blocks.#.out_scale"),
		one("model.embed_tokens_per_layer", "per_layer.embed"),
		one("model.per_layer_model_projection", "per_layer.projection"),
		one("model.per_layer_projection_norm", "per_layer.norm"),
	}, hfGemmaLinks()...)
}

// bare links a module whose foreign tensor has no suffix.
func bare(foreign, part string) Link {
	return Link{Foreign: foreign, Parts: []string{part}, Bare: true}
}

// gemma4Params are what a Gemma 4 has beyond a decoder.
type gemma4Params struct {
	headDim, kvHeads []int64 // of each layer
	inner            []int64
	keysAsValues     func(layer int) bool // of full layers
	shared           int                  // layers at the end that read keys and values of others
	perLayer         int64                // numbers of an input by layer; 0: none
}

// gemma4 makes the graph of a decoder whose window says which layers are full, in
// which ropes are those of full layers and of the others.
func (d *decoder) gemma4(p *gemma4Params) {
	d.embedScale, d.scale = float32(math.Sqrt(float64(d.width))), 1
	d.postNorms, d.qkNorm = true, true
	d.rope = d.localRope
	for _, n := range p.headDim {
		d.headDim = max(d.headDim, n)
	}
	d.each = func(layer int, b *graph.Block) {
		at := fmt.Sprintf("blocks.%d.", layer)
		own := *d
		own.headDim, own.kvHeads, own.inner, own.moe, own.each = p.headDim[layer], p.kvHeads[layer], p.inner[layer], moeParams{}, nil
		mixture := b.MoE
		*b = own.block(layer, at)
		b.OutScale = at + "out_scale.weight"
		a := b.Attn
		a.VNorm = &graph.Norm{Kind: graph.RMSNorm, Eps: d.eps}
		if p.keysAsValues(layer) {
			a.V = nil
		}
		if first := d.layers - p.shared; layer >= first {
			from := first - 1
			for from >= 0 && (d.window(from) > 0) != (d.window(layer) > 0) {
				from--
			}
			a.KVFrom, a.K, a.V, a.KNorm, a.VNorm = &from, nil, nil, nil, nil
		}
		if mixture != nil {
			d.gemma4Experts(b, mixture, at)
		}
		if p.perLayer > 0 {
			b.PerLayer = &graph.PerLayerInput{
				Act:  d.act,
				Gate: d.linear(at+"per_layer.gate", graph.RolePGate, at+"per_layer.in", d.width, p.perLayer, false),
				Down: d.linear(at+"per_layer.down", graph.RolePDown, at+"per_layer.mid", p.perLayer, d.width, false),
				Norm: d.newNorm(at + "per_layer.norm"),
			}
		}
	}
	d.finish = func(g *graph.Graph) {
		if p.perLayer > 0 {
			g.PerLayer = &graph.PerLayer{
				Width: p.perLayer, Table: "per_layer.embed.weight", Scale: float32(math.Sqrt(float64(p.perLayer))),
				Projection:      d.linear("per_layer.projection", graph.RolePModel, "per_layer.in", d.width, p.perLayer*int64(d.layers), false),
				ProjectionScale: rsqrt(float64(d.width)), Norm: d.newNorm("per_layer.norm"), Factor: rsqrt(2),
			}
		}
	}
}

// gemma4Experts puts a mixture beside a block's dense layer.
func (d *decoder) gemma4Experts(b *graph.Block, m *graph.MoE, at string) {
	b.MoE = m
	b.MoENorm, b.DensePostNorm, b.MoEPostNorm = d.newNorm(at+"moe_norm"), d.newNorm(at+"dense_post_norm"), d.newNorm(at+"moe_post_norm")
	m.RouterNorm, m.ExpertScale = d.newNorm(at+"moe.router_norm"), at+"moe.expert_scale.weight"
	m.RouterNorm.Scale = rsqrt(float64(d.width))
	m.Router.Input = at + "moe.router.in"
	for _, l := range []*graph.Linear{m.Gate, &m.Up} {
		l.Input = at + "moe.in"
	}
}

// proportional is a rotary embedding of a whole head in which the pairs behind the
// first ones stand still: their frequencies are divided by what leaves nothing of an
// angle, as GGUF says it.
func proportional(headDim int64, theta, share, factor float64) graph.Rope {
	r := graph.Rope{Style: graph.RopeHalf, Dim: headDim, Theta: theta, Scaling: graph.RopeScaling{Kind: graph.ScaleFactors}}
	turned := int64(math.Floor(share * float64(headDim) / 2))
	for i := range max(headDim/2, 0) {
		f := float32(factor)
		if i >= turned {
			f = still
		}
		r.Scaling.Short = append(r.Scaling.Short, f)
	}
	return r
}

// still divides the frequency of a pair that is not turned.
const still = 1e30

// gemma4 reads a Gemma 4 of a class whose defaults are given.
func (s *settings) gemma4(context, window, perLayer int64) *decoder {
	d := s.common("gemma4", map[string]int64{
		"vocab_size": 262144, "hidden_size": 2304, "intermediate_size": 9216,
		"num_attention_heads": 8, "num_key_value_heads": 4, "max_position_embeddings": context,
	})
	d.act = s.activation("hidden_activation", "gelu_pytorch_tanh")
	d.tied = s.boolOr("tie_word_embeddings", true)
	d.headSoftcap = s.softcap("final_logit_softcapping", 0)
	bias := s.boolOr("attention_bias", false)
	d.bias = biases{qkv: bias, o: bias}
	if how := s.stringOr("use_bidirectional_attention", ""); how != "" && how != "vision" { // the latter among images alone
		s.refuse("use_bidirectional_attention", how)
	}
	sliding := s.slidingLayers(s.window(window), d.layers, func(layer int) bool { return (layer+1)%6 != 0 })
	if sliding == nil {
		sliding = everyLayer(0)
	}
	d.window = func(layer int) int64 { // transformers makes the last one full
		if layer == d.layers-1 {
			return 0
		}
		return sliding(layer)
	}
	p := s.gemma4Layers(d)
	s.gemma4Shared(d, p)
	m := moeParams{experts: s.intOr("num_experts", 0), topK: s.intOr("top_k_experts", 0), inner: s.intOr("moe_intermediate_size", 0), normalize: true}
	if s.boolOr("enable_moe_block", false) {
		if d.moe = m; m.experts == 0 {
			s.bad("num_experts", m.experts)
		}
	}
	if p.perLayer = s.intOr("hidden_size_per_layer_input", perLayer); s.null("hidden_size_per_layer_input") {
		p.perLayer = 0
	}
	if n := s.intOr("vocab_size_per_layer_input", 262144); p.perLayer > 0 && n != d.vocab {
		s.refuse("vocab_size_per_layer_input", n)
	}
	if p.perLayer < 0 || p.perLayer > 1<<20 {
		s.bad("hidden_size_per_layer_input", p.perLayer)
	}
	d.gemma4(p)
	s.gemma4Ropes(d, p)
	return d
}

// gemma4Layers reads the sizes of heads: of layers with a window, of full ones, and
// those that per_layer_config gives to single layers, in place of the full ones' keys.
func (s *settings) gemma4Layers(d *decoder) *gemma4Params {
	same := s.boolOr("attention_k_eq_v", false)
	p := &gemma4Params{keysAsValues: func(layer int) bool { return same && d.window(layer) == 0 }}
	headDim := s.intOr("head_dim", 256)
	full, fullKV := s.intOr("global_head_dim", 512), d.kvHeads
	if kv := s.intOr("num_global_key_value_heads", 0); kv != 0 && same {
		fullKV = kv
	}
	each := s.object("per_layer_config")
	for layer := range d.layers {
		n, kv := headDim, d.kvHeads
		if d.window(layer) == 0 && each == nil {
			n, kv = full, fullKV
		}
		p.headDim, p.kvHeads, p.inner = append(p.headDim, n), append(p.kvHeads, kv), append(p.inner, d.inner)
	}
	if each == nil {
		return p
	}
	for _, key := range each.c.Keys() {
		layer, err := strconv.Atoi(key)
		one := each.object(key)
		if err != nil || layer < 0 || layer >= d.layers || one == nil {
			s.bad("per_layer_config", strings.Join(each.c.Keys(), ", "))
			continue
		}
		p.headDim[layer] = one.intOr("head_dim", p.headDim[layer])
		p.kvHeads[layer] = one.intOr("num_key_value_heads", p.kvHeads[layer])
		for _, name := range one.c.Keys() {
			if name != "head_dim" && name != "num_key_value_heads" {
				s.refuse("per_layer_config."+key+"."+name, "for one layer")
			}
		}
		s.note(one.err)
	}
	s.note(each.err)
	return p
}

// gemma4Shared reads which layers read the keys and values of others, and which of
// those have a feed-forward layer of twice the width.
func (s *settings) gemma4Shared(d *decoder, p *gemma4Params) {
	n, wide := s.intOr("num_kv_shared_layers", 0), s.boolOr("use_double_wide_mlp", false)
	if n < 0 || n >= int64(d.layers) {
		s.bad("num_kv_shared_layers", n)
		return
	}
	p.shared = int(n)
	first := d.layers - p.shared
	for layer := first; layer < d.layers; layer++ {
		if wide {
			p.inner[layer] *= 2
		}
		found := false
		for from := range first {
			found = found || (d.window(from) > 0) == (d.window(layer) > 0)
		}
		if !found {
			s.bad("num_kv_shared_layers", n) // a kind of layers has none with keys and values of its own
			return
		}
	}
}

// gemma4Ropes reads the rotary embeddings of full layers and of those with a window.
func (s *settings) gemma4Ropes(d *decoder, p *gemma4Params) {
	dims := [2]int64{}
	for layer := range d.layers {
		at := d.localRope(layer)
		if n := p.headDim[layer]; dims[at] == 0 {
			dims[at] = n
		} else if dims[at] != n {
			s.refuse("per_layer_config", "with heads of several sizes in layers of one kind")
		}
	}
	if s.has("rope_scaling") {
		s.refuse("rope_scaling", "in place of rope_parameters by type of layer")
	}
	all := s.object("rope_parameters")
	for at, kind := range []string{"full_attention", "sliding_attention"} {
		n := dims[at]
		if n == 0 { // no such layers: nobody turns by it
			n = max(dims[0], dims[1])
		}
		r := graph.Rope{Style: graph.RopeHalf, Dim: n, Theta: 10000, Scaling: graph.RopeScaling{Kind: graph.ScaleNone}}
		if at == 0 {
			r = proportional(n, 1e6, 0.25, 1)
		}
		if all != nil {
			sub := all.object(kind)
			switch {
			case sub != nil:
				r = s.gemma4Rope(sub, n)
			case dims[at] != 0:
				s.refuse("rope_parameters", "without "+kind)
			}
		}
		d.ropes = append(d.ropes, r)
	}
	if all == nil {
		return
	}
	for _, key := range all.c.Keys() {
		if key != "full_attention" && key != "sliding_attention" {
			s.refuse("rope_parameters."+key, "for no type of layer")
		}
	}
	s.note(all.err)
}

func (s *settings) gemma4Rope(p *settings, headDim int64) graph.Rope {
	r := graph.Rope{Style: graph.RopeHalf, Dim: headDim, Theta: p.float("rope_theta"), Scaling: graph.RopeScaling{Kind: graph.ScaleNone}}
	share := p.floatOr("partial_rotary_factor", 1)
	switch kind := p.stringOr("rope_type", "default"); kind {
	case "default": // which turns all of a head, whatever its part is said to be
	case "proportional":
		if !(share >= 0 && share <= 1) {
			p.bad("partial_rotary_factor", share)
		}
		r = proportional(headDim, r.Theta, share, p.floatOr("factor", 1))
	default:
		p.refuse("rope_type", kind)
	}
	s.note(p.err)
	return r
}

func (k *keys) gemma4() *decoder {
	k.varied = []string{"attention.head_count_kv", "feed_forward_length", "expert_feed_forward_length"}
	d := k.common("gemma4")
	d.act = graph.GELUTanh
	d.headSoftcap = float32(k.floatOr("final_logit_softcapping", 30)) // what llama.cpp takes; 0: none
	d.window = k.slidingLayers(k.int("attention.sliding_window"), d.layers, 6)
	if d.window == nil {
		d.window = everyLayer(0)
	}
	p := &gemma4Params{kvHeads: k.byLayer("attention.head_count_kv", d.layers), inner: k.byLayer("feed_forward_length", d.layers)}
	full, local := k.int("attention.key_length"), k.int("attention.key_length_swa")
	if v := k.intOr("attention.value_length_swa", local); v != local {
		k.note(formats.Unsupportedf(k.f.Name(), k.prefix+"attention.value_length_swa", "value heads of %d with key heads of %d", v, local))
	}
	for layer := range d.layers {
		n := full
		if d.window(layer) > 0 {
			n = local
		}
		p.headDim = append(p.headDim, n)
	}
	p.keysAsValues = func(layer int) bool {
		return !k.hasTensor(Fill("blk.#.attn_v.weight", layer, 0)) && !k.hasTensor(Fill("blk.#.attn_qkv.weight", layer, 0))
	}
	shared := k.intOr("attention.shared_kv_layers", 0)
	if shared < 0 || shared >= int64(d.layers) {
		k.note(formats.Errorf(k.f.Name(), k.prefix+"attention.shared_kv_layers", "value %d makes no sense", shared))
		shared = 0
	}
	p.shared = int(shared)
	p.perLayer = k.intOr("embedding_length_per_layer_input", 0)
	if k.hasTensor("blk.0.ffn_gate_inp.weight") {
		d.moe = moeParams{experts: k.int("expert_count"), topK: k.int("expert_used_count"), inner: k.byLayer("expert_feed_forward_length", d.layers)[0], normalize: true}
	}
	d.gemma4(p)
	r := graph.Rope{Style: graph.RopeHalf, Dim: k.intOr("rope.dimension_count", full), Theta: k.floatOr("rope.freq_base", 10000), Scaling: graph.RopeScaling{Kind: graph.ScaleNone}}
	k.factors(&r.Scaling)
	swa := graph.Rope{Style: graph.RopeHalf, Dim: k.intOr("rope.dimension_count_swa", local), Theta: k.floatOr("rope.freq_base_swa", 10000), Scaling: graph.RopeScaling{Kind: graph.ScaleNone}}
	if kind := k.stringOr("rope.scaling.type", "none"); kind != "none" {
		k.note(formats.Unsupportedf(k.f.Name(), k.prefix+"rope.scaling.type", "value %q", kind))
	}
	d.ropes = []graph.Rope{r, swa}
	return d
}

// gemma4Kinds returns a full layer and one with a window, nil where there is none: such
// as have keys and values of their own.
func gemma4Kinds(g *graph.Graph) (full, local *graph.Attention) {
	for i := range g.Blocks {
		switch a := g.Blocks[i].Attn; {
		case a.KVFrom != nil: // it has the sizes of another
		case a.Window == 0:
			full = a
		default:
			local = a
		}
	}
	return full, local
}

// gemma4SharedLayers counts the layers that read keys and values of others.
func gemma4SharedLayers(g *graph.Graph) (n int64) {
	for i := range g.Blocks {
		if g.Blocks[i].Attn.KVFrom != nil {
			n++
		}
	}
	return n
}

func (c configWriter) gemma4(g *graph.Graph) {
	c.common(g)
	c.layerTypes(g)
	full, local := gemma4Kinds(g)
	if local == nil {
		local = full
	}
	delete(c, "rope_theta")
	delete(c, "rope_scaling")
	delete(c, "use_sliding_window")
	if c["sliding_window"] == nil {
		c["sliding_window"] = 512
	}
	c["hidden_activation"] = c["hidden_act"]
	delete(c, "hidden_act")
	b := &g.Blocks[0]
	c["head_dim"], c["num_key_value_heads"] = local.HeadDim, local.KVHeads
	c["global_head_dim"], c["num_global_key_value_heads"] = full.HeadDim, full.KVHeads
	c["attention_k_eq_v"] = full.V == nil
	c["final_logit_softcapping"] = orNull(g.Head.Softcap)
	shared := gemma4SharedLayers(g)
	c["num_kv_shared_layers"], c["intermediate_size"] = shared, b.FFN.Up.Out
	c["use_double_wide_mlp"] = g.Blocks[len(g.Blocks)-1].FFN.Up.Out != b.FFN.Up.Out
	c["hidden_size_per_layer_input"], c["vocab_size_per_layer_input"] = 0, g.Vocab
	if g.PerLayer != nil {
		c["hidden_size_per_layer_input"] = g.PerLayer.Width
	}
	c["enable_moe_block"] = b.MoE != nil
	if m := b.MoE; m != nil {
		c["num_experts"], c["top_k_experts"], c["moe_intermediate_size"] = m.Experts, m.TopK, m.Up.Out
	}
	c["rope_parameters"] = map[string]any{
		"full_attention": gemma4RopeConfig(&g.Ropes[0]), "sliding_attention": gemma4RopeConfig(&g.Ropes[1]),
	}
}

func gemma4RopeConfig(r *graph.Rope) map[string]any {
	if r.Scaling.Kind != graph.ScaleFactors {
		return map[string]any{"rope_type": "default", "rope_theta": r.Theta}
	}
	turned, factor := 0, 1.0
	for _, f := range r.Scaling.Short {
		if f < still {
			turned, factor = turned+1, float64(f)
		}
	}
	c := map[string]any{"rope_type": "proportional", "rope_theta": r.Theta, "partial_rotary_factor": float64(2*turned) / float64(r.Dim)}
	if factor != 1 {
		c["factor"] = factor
	}
	return c
}

func (w *keyWriter) gemma4(g *graph.Graph) {
	full, local := gemma4Kinds(g)
	if local == nil {
		local = full
	}
	var windows []bool
	var kv, inner []uint32
	for i := range g.Blocks {
		b := &g.Blocks[i]
		windows = append(windows, b.Attn.Window > 0)
		kv, inner = append(kv, uint32(b.Attn.KVHeads)), append(inner, uint32(b.FFN.Up.Out))
	}
	w.replace("attention.head_count_kv", kv)
	w.replace("feed_forward_length", inner)
	w.replace("attention.key_length", uint32(full.HeadDim))
	w.replace("attention.value_length", uint32(full.HeadDim))
	w.int("attention.key_length_swa", local.HeadDim)
	w.int("attention.value_length_swa", local.HeadDim)
	w.raw(w.prefix+"attention.sliding_window_pattern", windows)
	w.int("attention.shared_kv_layers", gemma4SharedLayers(g))
	w.int("rope.dimension_count_swa", g.Ropes[1].Dim)
	w.float("rope.freq_base_swa", g.Ropes[1].Theta)
	width := int64(0)
	if g.PerLayer != nil {
		width = g.PerLayer.Width
	}
	w.int("embedding_length_per_layer_input", width)
}
