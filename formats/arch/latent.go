package arch

import (
	"fmt"
	"math"
	"slices"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/gguf"
	"github.com/nstf/nstf/formats/graph"
)

// latentParams are the sizes of attention over latents.
type latentParams struct {
	queries int64 // numbers of the latent of queries, 0 for none
	rank    int64
	nope    int64
	value   int64
	eps     float32 // of both latents' norms
	scale   float64 // factor on scores beside 1/sqrt of a query's numbers
	bias    bool    // of what makes latents, and of the output matrix
}

func (l *latentParams) check() error {
	for _, f := range []struct {
		name string
		v    int64
	}{{"latent", l.rank}, {"unrotated part of a head", l.nope}, {"value head", l.value}} {
		if f.v < 1 || f.v > 1<<16 {
			return fmt.Errorf("size of a %s is %d, not between 1 and %d", f.name, f.v, 1<<16)
		}
	}
	if l.queries < 0 || l.queries > 1<<24 {
		return fmt.Errorf("size of a latent of queries is %d, not between 0 and %d", l.queries, 1<<24)
	}
	return nil
}

func (d *decoder) latentAttention(p string) *graph.Latent {
	l := d.latent
	a := &graph.Latent{Heads: d.heads, NopeDim: l.nope, RopeDim: d.headDim, ValueDim: l.value, Rank: l.rank}
	a.Scale = float32(l.scale / math.Sqrt(float64(a.QueryDim())))
	norm := func(name string) *graph.Norm {
		return &graph.Norm{Kind: graph.RMSNorm, Weight: p + name + ".weight", Eps: l.eps}
	}
	in, k := p+"attn.in", d.width
	if l.queries > 0 {
		qa := d.linear(p+"latent.q_a", graph.RoleQA, in, d.width, l.queries, l.bias)
		a.QA, a.QNorm = &qa, norm("latent.q_norm")
		in, k = p+"attn.q_latent", l.queries
	}
	a.Q = d.linear(p+"latent.q", graph.RoleQ, in, k, d.heads*a.QueryDim(), false)
	a.KVA = d.linear(p+"latent.kv_a", graph.RoleKVA, p+"attn.in", d.width, a.KeyDim(), l.bias)
	a.KVNorm = norm("latent.kv_norm")
	a.KB = d.linear(p+"latent.k_b", graph.RoleKB, p+"attn.nope", l.nope, l.rank, false)
	a.VB = d.linear(p+"latent.v_b", graph.RoleVB, p+"attn.latent", l.rank, l.value, false)
	a.O = d.linear(p+"latent.o", graph.RoleO, p+"attn.mid", d.heads*l.value, d.width, l.bias)
	return a
}

// latentEps is that of the norms of latents, whatever the configuration says of others.
// Source: transformers 5.23, DeepseekV3RMSNorm as DeepseekV3Attention makes it.
const latentEps = 1e-6

// latents reads attention over latents by the defaults of a configuration class of
// DeepSeek's, and the rotary embedding with it. A class without a number of key-value
// heads (0) has as many as heads; it counts for nothing else.
func (s *settings) latents(d *decoder, kvHeads, queries, nope, value int64) {
	l := &latentParams{rank: s.intOr("kv_lora_rank", 512), nope: s.intOr("qk_nope_head_dim", nope), value: s.intOr("v_head_dim", value),
		eps: latentEps, scale: 1, bias: s.boolOr("attention_bias", false)}
	if !s.null("q_lora_rank") {
		if l.queries = s.intOr("q_lora_rank", queries); l.queries < 1 {
			s.bad("q_lora_rank", l.queries)
		}
	}
	d.latent, d.headDim = l, s.intOr("qk_rope_head_dim", 64)
	if kvHeads == 0 || s.null("num_key_value_heads") {
		kvHeads = d.heads
	}
	if n := s.intOr("num_key_value_heads", kvHeads); n != d.heads {
		s.refuse("num_key_value_heads", n)
	}
	if n := s.intOr("head_dim", d.headDim); n != d.headDim {
		s.refuse("head_dim", n)
	}
	d.kvHeads = d.heads
	r := s.rope(d, 10000)
	r.Style = graph.RopeInterleaved
	if !s.truth("rope_interleave", true) {
		r.Style = graph.RopeHalf
	}
	d.ropes = []graph.Rope{r}
	p := s.ropeObject()
	if p == nil || p.stringOr("rope_type", p.stringOr("type", "default")) == "default" {
		return
	}
	if all := p.floatOr("mscale_all_dim", 0); all != 0 {
		m := yarnScale(p.float("factor"), all)
		l.scale = m * m
		s.note(p.err)
	}
}

// deepSeekExperts reads the mixtures that follow dense layers, and the layer beside
// them, with the defaults of a class.
func (s *settings) deepSeekExperts(d *decoder, experts, topK, inner, shared, dense int64) {
	d.moe = moeParams{experts: s.intOr("num_local_experts", s.intOr("num_experts", s.intOr("n_routed_experts", experts))),
		topK: s.intOr("num_experts_per_tok", topK), inner: s.intOr("moe_intermediate_size", inner)}
	d.moe.shared = s.sharedWidth("n_shared_experts", shared, d.moe.inner)
	first := s.intOr("first_k_dense_replace", dense)
	d.moe.sparse = func(layer int) bool { return int64(layer) >= first }
	if n := s.intOr("moe_layer_freq", 1); n != 1 {
		s.refuse("moe_layer_freq", n)
	}
}

// truth reads a key whose null is false, as Python has it.
func (s *settings) truth(key string, def bool) bool {
	return !s.null(key) && s.boolOr(key, def)
}

// must refuses a key whose value is another than the one that is computed.
func (s *settings) must(key, want string) {
	if v := s.stringOr(key, want); v != want {
		s.refuse(key, v)
	}
}

// latent writes the keys of [settings.latents] and [settings.deepSeekExperts].
func (c configWriter) latent(g *graph.Graph) {
	a := latentOf(g)
	c["hidden_size"], c["num_hidden_layers"], c["max_position_embeddings"] = g.Width, len(g.Blocks), g.Context
	c["num_attention_heads"], c["num_key_value_heads"], c["intermediate_size"] = a.Heads, a.Heads, inner(g)
	c["hidden_act"], c["rms_norm_eps"] = activationName(&g.Blocks[0]), g.Norm.Eps
	c["q_lora_rank"], c["kv_lora_rank"], c["qk_nope_head_dim"] = nil, a.Rank, a.NopeDim
	c["qk_rope_head_dim"], c["v_head_dim"], c["attention_bias"] = a.RopeDim, a.ValueDim, a.O.Bias != ""
	if a.QA != nil {
		c["q_lora_rank"] = a.QA.Out
	}
	r := &g.Ropes[0]
	c["rope_theta"], c["rope_interleave"] = r.Theta, r.Style == graph.RopeInterleaved
	c.rope(g, &graph.Block{Attn: &graph.Attention{HeadDim: r.Dim}})
	if p, ok := c["rope_scaling"].(map[string]any); ok {
		m := math.Sqrt(float64(a.Scale) * math.Sqrt(float64(a.QueryDim())))
		if f := r.Scaling.Factor; f > 1 && math.Abs(m-1) > 1e-6 {
			p["mscale_all_dim"] = (m - 1) / (0.1 * math.Log(f))
		}
		if r.Scaling.Attention == 0 {
			p["attention_factor"] = 1.0
		}
	}
	m, dense := c.mixture(g, "n_routed_experts", "moe_intermediate_size")
	c["norm_topk_prob"], c["first_k_dense_replace"], c["routed_scaling_factor"] = m.Normalize, len(dense), m.Factor()
	c["n_group"], c["topk_group"], c["n_shared_experts"] = max(m.Groups, 1), max(m.TopGroups, 1), sharedExperts(m)
}

// latentOf returns the first attention over latents of a graph, one of zeros where no
// block has any.
func latentOf(g *graph.Graph) *graph.Latent {
	for i := range g.Blocks {
		if a := g.Blocks[i].Latent; a != nil {
			return a
		}
	}
	return &graph.Latent{}
}

func queriesByLatent(g *graph.Graph) bool   { return latentOf(g).QA != nil }
func queriesByNoLatent(g *graph.Graph) bool { return latentOf(g).QA == nil }
func hfLatentLinks() []Link {
	return append([]Link{
		one("model.layers.#.self_attn.q_proj", "blocks.#.latent.q").where(queriesByNoLatent),
		one("model.layers.#.self_attn.q_b_proj", "blocks.#.latent.q").where(queriesByLatent),
		one("model.layers.#.self_attn.q_a_proj", "blocks.#.latent.q_a"),
		one("model.layers.#.self_attn.q_a_layernorm", "blocks.#.latent.q_norm"),
		one("model.layers.#.self_attn.kv_a_proj_with_mqa", "blocks.#.latent.kv_a"),
		one("model.layers.#.self_attn.kv_a_layernorm", "blocks.#.latent.kv_norm"),
		{Foreign: "model.layers.#.self_attn.kv_b_proj", Parts: []string{"blocks.#.latent.k_b", "blocks.#.latent.v_b"}, Latent: true},
		one("model.layers.#.self_attn.o_proj", "blocks.#.latent.o"),
	}, hfGLMLinks()...)
}

func ggufLatentLinks() []Link {
	return append([]Link{
		one("blk.#.attn_q", "blocks.#.latent.q").where(queriesByNoLatent),
		one("blk.#.attn_q_b", "blocks.#.latent.q").where(queriesByLatent),
		one("blk.#.attn_q_a", "blocks.#.latent.q_a"),
		one("blk.#.attn_q_a_norm", "blocks.#.latent.q_norm"),
		one("blk.#.attn_kv_a_mqa", "blocks.#.latent.kv_a"),
		one("blk.#.attn_kv_a_norm", "blocks.#.latent.kv_norm"),
		one("blk.#.attn_k_b", "blocks.#.latent.k_b"),
		one("blk.#.attn_v_b", "blocks.#.latent.v_b"),
		{Foreign: "blk.#.attn_kv_b", Parts: []string{"blocks.#.latent.k_b", "blocks.#.latent.v_b"}, Latent: true}, // of files before llama.cpp took them apart
		one("blk.#.attn_output", "blocks.#.latent.o"),
		ggufSelectBias,
	}, ggufDecoderLinks()...)
}

// latentEpsKey is a key of ours: llama.cpp's norms of latents have the eps of all others.
const latentEpsKey = "attention.latent_layer_norm_rms_epsilon"

// latents reads what llama.cpp calls deepseek2, and which of our architectures it is.
//
// Source: src/models/deepseek2.cpp and conversion/deepseek.py there; the factor on
// scores in its graph, and yarn_attn_factor in src/llama-context.cpp.
func (k *keys) latents() *decoder {
	d := k.sizes("deepseek_v3")
	first := k.intOr("leading_dense_block_count", 0)
	d.mtp = k.intOr("nextn_predict_layers", 0)
	d.layers -= int(min(max(d.mtp, 0), int64(d.layers)-1))
	d.headDim = k.int("rope.dimension_count")
	l := &latentParams{queries: k.intOr("attention.q_lora_rank", 0), rank: k.int("attention.kv_lora_rank"), scale: 1}
	l.eps = float32(k.floatOr(latentEpsKey, float64(d.eps)))
	l.nope = k.intOr("attention.key_length_mla", k.intOr("attention.key_length", 0)) - d.headDim
	l.value = k.intOr("attention.value_length_mla", k.intOr("attention.value_length", 0))
	d.latent, d.kvHeads, d.bias.o, d.bias.qkv = l, d.heads, false, false
	l.bias = k.hasTensor("blk.0.attn_kv_a_mqa.bias")
	r := k.rope(d, graph.RopeInterleaved)
	if c := &r.Scaling; c.Kind == graph.ScaleYarn {
		// With a multiplier of the logarithm, cosines and sines are not scaled.
		given := k.floatOr("rope.scaling.attn_factor", 1)
		all := 10 * k.floatOr("rope.scaling.yarn_log_multiplier", 0)
		c.Attention = given
		if all == 0 {
			c.Attention *= yarnScale(c.Factor, 1)
		}
		m := c.Attention * yarnScale(c.Factor, all)
		l.scale = m * m
	}
	d.ropes = []graph.Rope{r}
	d.moe = moeParams{experts: k.intOr("expert_count", 0), topK: k.intOr("expert_used_count", 0), inner: k.intOr("expert_feed_forward_length", 0),
		normalize: k.boolOr("expert_weights_norm", false), sparse: func(layer int) bool { return int64(layer) >= first }}
	d.moe.shared = d.moe.inner * min(max(k.intOr("expert_shared_count", 0), 0), 1<<16)
	k.latentRouter(d)
	return d
}

// latentRouter reads how experts are chosen, and names the architecture by it.
func (k *keys) latentRouter(d *decoder) {
	groups, top := k.intOr("expert_group_count", 0), k.intOr("expert_group_used_count", 0)
	if groups <= 1 || groups == top {
		groups, top = 0, 0
	}
	scale := float32(k.floatOr("expert_weights_scale", 1))
	score := k.intOr("expert_gating_func", 0)
	if score == 0 { // of files before it was written: llama.cpp tells GLM-4.7-Flash by its sizes
		if score = ggufSoftmax; (d.layers == 47 || d.layers == 48) && d.vocab == 154880 {
			score = ggufSigmoid
		}
	}
	switch score {
	case ggufSigmoid:
		d.sigmoidRouter(graph.MoE{Groups: groups, TopGroups: top, Epsilon: 1e-20, Scale: scale})
		return
	case ggufSoftmax:
	default:
		k.note(formats.Unsupportedf(k.f.Name(), k.prefix+"expert_gating_func", "value %d", score))
	}
	if groups > 0 || d.moe.normalize {
		k.note(formats.Unsupportedf(k.f.Name(), k.prefix+"expert_group_count", "groups, or weights that are normalised, of experts chosen by softmax"))
	}
	d.arch = "deepseek_v2"
	d.softmaxRouter(graph.MoE{Scale: scale})
}

// softmaxRouter gives every mixture the constants that m has.
func (d *decoder) softmaxRouter(m graph.MoE) {
	d.each = func(_ int, b *graph.Block) {
		x := b.MoE
		if x == nil {
			return
		}
		x.Groups, x.TopGroups, x.GroupBest, x.Scale = m.Groups, m.TopGroups, m.GroupBest, m.Scale
		if x.Scale == 1 {
			x.Scale = 0
		}
	}
}

// ggufSoftmax is llama.cpp's number of the router's score by softmax.
const ggufSoftmax = 1

// latentYarn says how the scores and the rotation are scaled, in the way of
// [keys.latents].
func (w *keyWriter) latentYarn(s *graph.RopeScaling, a *graph.Latent) {
	if s.Kind != graph.ScaleYarn {
		return
	}
	factor := max(s.Attention, 0)
	if factor == 0 {
		factor = 1
	}
	m := math.Sqrt(float64(a.Scale) * math.Sqrt(float64(a.QueryDim())))
	if s.Factor > 1 && math.Abs(m/factor-1) > 1e-6 {
		w.float("rope.scaling.yarn_log_multiplier", (m/factor-1)/math.Log(s.Factor))
	} else {
		factor /= yarnScale(s.Factor, 1)
	}
	w.out = slices.DeleteFunc(w.out, func(kv gguf.KV) bool { return kv.Key == w.prefix+"rope.scaling.attn_factor" })
	if factor != 1 {
		w.float("rope.scaling.attn_factor", factor)
	}
}

// latent writes the keys of [keys.latents].
func (w *keyWriter) latent(g *graph.Graph) {
	a := latentOf(g)
	queries := int64(0)
	if a.QA != nil {
		queries = a.QA.Out
	}
	w.int("attention.q_lora_rank", queries)
	w.int("attention.kv_lora_rank", a.Rank)
	w.int("attention.key_length_mla", a.QueryDim())
	w.int("attention.value_length_mla", a.ValueDim)
	w.float(latentEpsKey, float64(a.KVNorm.Eps))
	w.latentYarn(&g.Ropes[0].Scaling, a)
	m, dense := experts(g)
	w.int("leading_dense_block_count", int64(len(dense)))
	if n := int64(len(g.MTP)); n > 0 {
		w.int("nextn_predict_layers", n)
	}
	if m == nil {
		return
	}
	w.int("expert_shared_count", sharedExperts(m))
	w.int("expert_group_count", max(m.Groups, 1))
	w.int("expert_group_used_count", max(m.TopGroups, 1))
	score := int64(ggufSoftmax)
	if m.Score == graph.ScoreSigmoid {
		score = ggufSigmoid
	}
	w.int("expert_gating_func", score)
	w.float("expert_weights_scale", float64(m.Factor()))
	w.raw(w.prefix+"expert_weights_norm", m.Normalize)
}
