package arch

import (
	"slices"
	"strings"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
)

// kimiLinear is Kimi Linear: delta nets whose memory fades by the channel in most
// layers, attention over latents without rotation in the others; the first layers dense,
// then mixtures whose router scores by sigmoid and chooses with a bias, beside a layer
// that all tokens go through. Its class has other names for keys that many have.
//
// Source: configuration_kimi_linear.py, modeling_kimi_linear.py and conversion_mapping.py
// of transformers 5.23; config.json of moonshotai/Kimi-Linear-48B-A3B-Instruct;
// src/models/kimi-linear.cpp and conversion/kimi_linear.py of llama.cpp.
func kimiLinear() *Architecture {
	return &Architecture{
		name: "kimi_linear", class: "KimiLinearForCausalLM", types: []string{"kimi_linear"}, gguf: "kimi-linear",
		llama: &llamaCPP{denseLead: true, copyHead: true, latents: true, kimi: true},
		fromHF: func(s *settings) *decoder {
			d := s.common("kimi_linear", map[string]int64{"vocab_size": 163840, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 27,
				"num_attention_heads": 32, "max_position_embeddings": 1048576})
			d.context = s.renamed("model_max_length", "max_position_embeddings", 1048576)
			d.eps = float32(s.floatOr("rms_norm_eps", 1e-5))
			s.must("hidden_act", "silu") // of convolutions too
			s.kimiLatents(d)
			shape, attends := s.kimiDeltas(d)
			s.kimiExperts(d)
			d.kimi(shape, attends, lengthEps, true)
			return d
		},
		fromGGUF: func(k *keys) *decoder {
			k.varied = []string{kvHeadsKey}
			d := k.sizes("kimi_linear")
			kv := k.byLayer(kvHeadsKey, d.layers)
			d.kvHeads, d.headDim = d.heads, k.int("rope.dimension_count")
			l := &latentParams{rank: k.int("attention.kv_lora_rank"), scale: 1, eps: float32(k.floatOr(latentEpsKey, float64(d.eps)))}
			l.nope, l.value = k.int("attention.key_length_mla")-d.headDim, k.int("attention.value_length_mla")
			d.latent = l
			if k.has("attention.q_lora_rank") {
				k.note(formats.Unsupportedf(k.f.Name(), k.prefix+"attention.q_lora_rank", "queries by a latent: llama.cpp has no graph for them"))
			}
			dim, first := k.int("kda.head_dim"), k.intOr("leading_dense_block_count", 0)
			shape := deltaShape{heads: d.heads, keyHeads: d.heads, keyDim: dim, valueDim: dim, kernel: k.int("ssm.conv_kernel")}
			d.moe = moeParams{experts: k.int("expert_count"), topK: k.int("expert_used_count"), inner: k.int("expert_feed_forward_length"), normalize: true,
				sparse: func(layer int) bool { return int64(layer) >= first }}
			d.moe.shared = d.moe.inner * min(max(k.int("expert_shared_count"), 1), 1<<16)
			k.sigmoidGating()
			if err := shape.check(); err != nil {
				k.note(formats.Errorf(k.f.Name(), k.prefix+"kda.head_dim", "%v", err))
			}
			d.sigmoidRouter(graph.MoE{Epsilon: 1e-20, Scale: float32(k.floatOr("expert_weights_scale", 1))})
			d.kimi(shape, func(layer int) bool { return kv[layer] > 0 }, float32(k.floatOr(lengthEpsKey, float64(d.eps))), false)
			return d
		},
		toHF:      configWriter.kimi,
		toGGUF:    (*keyWriter).kimi,
		hfLinks:   hfKimiLinks(),
		ggufLinks: ggufKimiLinks(),
	}
}

// lengthEpsKey is a key of ours: llama.cpp's lengths of queries and keys have the eps of
// its norms.
const lengthEpsKey = "kda.length_epsilon"

// renamed reads a key that the class keeps under a name of its own, before the one that
// other classes have for it.
func (s *settings) renamed(own, usual string, def int64) int64 {
	def = s.intOr(usual, def)
	return s.intOr(own, def)
}

// kimiLatents reads attention over latents, none of which is rotated. What head_dim says
// is disregarded.
func (s *settings) kimiLatents(d *decoder) {
	l := &latentParams{rank: s.intOr("kv_lora_rank", 512), nope: s.intOr("qk_nope_head_dim", 128), value: s.intOr("v_head_dim", 128),
		eps: latentEps, scale: 1, bias: s.boolOr("attention_bias", false)}
	if s.has("q_lora_rank") {
		if l.queries = s.int("q_lora_rank"); l.queries < 1 {
			s.bad("q_lora_rank", l.queries)
		}
	}
	if s.null("v_head_dim") {
		s.bad("v_head_dim", "null")
	}
	d.latent, d.headDim = l, s.intOr("qk_rope_head_dim", 64)
	if n := s.intOr("num_key_value_heads", 32); !s.null("num_key_value_heads") && n != d.heads {
		s.refuse("num_key_value_heads", n)
	}
	d.kvHeads = d.heads
	if !s.boolOr("mla_use_nope", true) {
		s.refuse("mla_use_nope", false)
	}
	if n := s.intOr("num_nextn_predict_layers", 0); n != 0 {
		s.refuse("num_nextn_predict_layers", n)
	}
}

// kimiDeltas reads the sizes of delta nets, and which layers have attention: by
// layer_types, by the published object, which counts layers from 1, or every fourth but
// the first.
func (s *settings) kimiDeltas(d *decoder) (deltaShape, func(layer int) bool) {
	heads, dim, kernel := s.intOr("linear_num_heads", 32), s.intOr("linear_head_dim", 128), s.intOr("linear_conv_kernel_dim", 4)
	attends := func(layer int) bool { return layer > 0 && layer%4 == 0 }
	const published = "linear_attn_config"
	if s.null(published) {
		s.bad(published, "null")
	}
	if p := s.object(published); p != nil {
		heads, dim, kernel = p.intOr("num_heads", heads), p.intOr("head_dim", dim), p.intOr("short_conv_kernel_size", kernel)
		if full, nets := "full_attn_layers", "kda_layers"; p.has(full) && p.has(nets) && !s.has("layer_types") {
			list, err := p.c.Ints(full)
			p.note(err)
			others, err := p.c.Ints(nets)
			p.note(err)
			for i := range int64(d.layers) {
				if p.err == nil && slices.Contains(list, i+1) == slices.Contains(others, i+1) {
					p.bad(full, list)
				}
			}
			if p.err == nil && len(list)+len(others) != d.layers {
				p.bad(nets, others)
			}
			attends = func(layer int) bool { return slices.Contains(list, int64(layer)+1) }
		}
		s.note(p.err)
	}
	if s.has("layer_types") {
		attends = s.attending(d.layers)
	}
	shape := deltaShape{heads: heads, keyHeads: heads, keyDim: dim, valueDim: dim, kernel: kernel}
	if err := shape.check(); err != nil {
		s.note(formats.Errorf(s.c.File(), "linear_num_heads", "%v", err))
	}
	return shape, attends
}

// kimiExperts reads the mixtures.
func (s *settings) kimiExperts(d *decoder) {
	first := s.intOr("first_k_dense_replace", 1)
	d.moe = moeParams{experts: s.renamed("num_experts", "num_local_experts", 256), topK: s.renamed("num_experts_per_token", "num_experts_per_tok", 8),
		inner: s.intOr("moe_intermediate_size", 1024), sparse: func(layer int) bool { return int64(layer) >= first }}
	s.sparseLayers(d)
	shared := "num_shared_experts"
	if !s.has(shared) {
		shared = "n_shared_experts"
	}
	d.moe.shared = s.sharedWidth(shared, 1, d.moe.inner)
	d.moe.normalize = s.boolOr("moe_renormalize", s.boolOr("norm_topk_prob", true))
	s.must("moe_router_activation_func", "sigmoid")
	if n := s.intOr("moe_layer_freq", 1); n != 1 {
		s.refuse("moe_layer_freq", n)
	}
	groups, top := s.renamed("num_expert_group", "n_group", 1), s.intOr("topk_group", 1)
	if groups == 1 && top == 1 {
		groups, top = 0, 0
	}
	d.sigmoidRouter(graph.MoE{Groups: groups, TopGroups: top, Epsilon: 1e-20, Scale: s.positive("routed_scaling_factor", 2.446)})
}

// kimi gives layers without attention a delta net in place of it, and the others no
// rotation. With log the checkpoint has the logarithms of decays.
func (d *decoder) kimi(s deltaShape, attends func(layer int) bool, eps float32, log bool) {
	router := d.each
	d.each = func(layer int, b *graph.Block) {
		router(layer, b)
		if attends(layer) {
			b.Latent.Rope = -1
			return
		}
		p := strings.TrimSuffix(b.Latent.KVA.Weight, "latent.kv_a.weight") + "delta."
		n := d.delta(p, s)
		n.Eps, n.DecayLog, n.ByChannel, n.SigmoidGate = eps, log, true, true
		za := d.linear(p+"z_a", graph.RoleZ, p+"in", d.width, s.valueDim, false)
		alpha := d.linear(p+"alpha_a", graph.RoleDGate, p+"in", d.width, s.keyDim, false)
		n.ZA, n.AlphaA = &za, &alpha
		n.Z = d.linear(p+"z", graph.RoleZ, p+"z.in", s.valueDim, n.Values(), false)
		n.Alpha = d.linear(p+"alpha", graph.RoleDGate, p+"alpha.in", s.keyDim, n.Fades(), false)
		b.Latent, b.Delta = nil, n
	}
}

// kimi writes the keys of fromHF.
func (c configWriter) kimi(g *graph.Graph) {
	a, types, sparse := latentOf(g), make([]string, len(g.Blocks)), make([]string, len(g.Blocks))
	heads := int64(1)
	for i := range g.Blocks {
		types[i], sparse[i] = "full_attention", "dense"
		if n := g.Blocks[i].Delta; n != nil {
			types[i], heads = "linear_attention", n.Heads
			c["linear_num_heads"], c["linear_head_dim"], c["linear_conv_kernel_dim"] = n.Heads, n.KeyDim, n.Kernel
		}
		if g.Blocks[i].MoE != nil {
			sparse[i] = "sparse"
		}
	}
	if a.Heads == 0 { // none of whose sizes matter
		a = &graph.Latent{Heads: heads, NopeDim: 1, RopeDim: 1, ValueDim: 1, Rank: 1}
	}
	c["layer_types"], c["mlp_layer_types"] = types, sparse
	c["hidden_size"], c["num_hidden_layers"], c["model_max_length"] = g.Width, len(g.Blocks), g.Context
	c["num_attention_heads"], c["num_key_value_heads"], c["intermediate_size"] = a.Heads, a.Heads, inner(g)
	c["hidden_act"], c["rms_norm_eps"], c["attention_bias"] = "silu", g.Norm.Eps, a.O.Bias != ""
	c["q_lora_rank"], c["kv_lora_rank"], c["qk_nope_head_dim"] = nil, a.Rank, a.NopeDim
	c["qk_rope_head_dim"], c["v_head_dim"] = a.RopeDim, a.ValueDim
	if a.QA != nil {
		c["q_lora_rank"] = a.QA.Out
	}
	m, _ := c.mixture(g, "num_experts", "moe_intermediate_size")
	delete(c, "num_experts_per_tok")
	c["num_experts_per_token"], c["moe_renormalize"], c["routed_scaling_factor"] = m.TopK, m.Normalize, m.Factor()
	c["num_expert_group"], c["topk_group"], c["num_shared_experts"] = max(m.Groups, 1), max(m.TopGroups, 1), sharedExperts(m)
}

// kimi writes the keys of fromGGUF.
func (w *keyWriter) kimi(g *graph.Graph) {
	kv, a, n := make([]uint32, len(g.Blocks)), latentOf(g), firstDelta(g)
	for i := range g.Blocks {
		if g.Blocks[i].Latent != nil {
			kv[i] = 1
		}
	}
	w.replace(kvHeadsKey, kv)
	w.int("rope.dimension_count", a.RopeDim)
	w.int("attention.kv_lora_rank", a.Rank)
	w.int("attention.key_length_mla", a.QueryDim())
	w.int("attention.value_length_mla", a.ValueDim)
	w.float(latentEpsKey, float64(a.KVNorm.Eps))
	w.int("kda.head_dim", n.KeyDim)
	w.int("ssm.conv_kernel", n.Kernel)
	w.float(lengthEpsKey, float64(n.Eps))
	m, dense := mixed(g)
	w.int("leading_dense_block_count", int64(len(dense)))
	w.int("expert_shared_count", sharedExperts(m))
	w.int("expert_gating_func", ggufSigmoid)
	w.float("expert_weights_scale", float64(m.Factor()))
}

// queriesKeysValues are the modules whose rows one of a delta net has.
var queriesKeysValues = []string{"q", "k", "v"}

func hfKimiLinks() []Link {
	const layer, net, moe = "model.layers.#.", "model.layers.#.self_attn.", "model.layers.#.block_sparse_moe."
	decay := func(foreign string) Link {
		return Link{Foreign: foreign, Parts: []string{"blocks.#.delta.decay"}, Written: decays(true),
			Shape: func(g *graph.Graph, block int) []int64 { return []int64{1, 1, g.Blocks[block].Delta.Heads, 1} }}
	}
	own := []Link{
		{Foreign: net + "@_proj", Parts: []string{"blocks.#.delta.qkv"}, Among: queriesKeysValues},
		{Foreign: net + "@_conv1d", Parts: []string{"blocks.#.delta.conv"}, Among: queriesKeysValues, Middle: true},
		{Foreign: net + "conv1d", Parts: []string{"blocks.#.delta.conv"}, Middle: true},
		one(net+"b_proj", "blocks.#.delta.beta"),
		one(net+"f_a_proj", "blocks.#.delta.alpha_a"),
		one(net+"f_b_proj", "blocks.#.delta.alpha"),
		decay(net + "A_log"),
		one(net+"dt_bias", "blocks.#.delta.dt_bias"),
		one(net+"forget_gate.f_a_proj", "blocks.#.delta.alpha_a"),
		one(net+"forget_gate.f_b_proj", "blocks.#.delta.alpha"),
		decay(net + "forget_gate.A_log"),
		one(net+"forget_gate.dt_bias", "blocks.#.delta.dt_bias"),
		one(net+"g_a_proj", "blocks.#.delta.z_a"),
		one(net+"g_b_proj", "blocks.#.delta.z"),
		one(net+"o_norm", "blocks.#.delta.norm"),
		one(net+"o_proj", "blocks.#.delta.out"),
		one(moe+"gate", "blocks.#.moe.router"),
		one(moe+"gate.e_score_correction_bias", "blocks.#.moe.select_bias"),
		one(moe+"experts.@.w1", "blocks.#.moe.gate"),
		one(moe+"experts.@.w3", "blocks.#.moe.up"),
		one(moe+"experts.@.w2", "blocks.#.moe.down"),
		one(moe+"shared_experts.gate_proj", "blocks.#.moe.shared.gate"),
		one(moe+"shared_experts.up_proj", "blocks.#.moe.shared.up"),
		one(moe+"shared_experts.down_proj", "blocks.#.moe.shared.down"),
	}
	for _, l := range hfLatentLinks() { // experts apart have the names above
		if !strings.HasPrefix(l.Foreign, layer+"mlp.experts.@.") {
			own = append(own, l)
		}
	}
	return append(own, // of a dense layer, as save_pretrained writes it
		one(moe+"gate_proj", "blocks.#.ffn.gate"),
		one(moe+"up_proj", "blocks.#.ffn.up"),
		one(moe+"down_proj", "blocks.#.ffn.down"))
}

func ggufKimiLinks() []Link {
	own := []Link{
		{Foreign: "blk.#.attn_@", Parts: []string{"blocks.#.delta.qkv"}, Among: queriesKeysValues},
		one("blk.#.attn_qkv", "blocks.#.delta.qkv"),
		{Foreign: "blk.#.ssm_conv1d_@", Parts: []string{"blocks.#.delta.conv"}, Among: queriesKeysValues, Middle: true},
		one("blk.#.ssm_beta", "blocks.#.delta.beta"),
		one("blk.#.ssm_f_a", "blocks.#.delta.alpha_a"),
		one("blk.#.ssm_f_b", "blocks.#.delta.alpha"),
		{Foreign: "blk.#.ssm_a", Parts: []string{"blocks.#.delta.decay"}, Written: decays(false),
			Shape: func(g *graph.Graph, block int) []int64 { return []int64{g.Blocks[block].Delta.Heads, 1} }},
		one("blk.#.ssm_dt.bias", "blocks.#.delta.dt_bias"),
		one("blk.#.ssm_g_a", "blocks.#.delta.z_a"),
		one("blk.#.ssm_g_b", "blocks.#.delta.z"),
		one("blk.#.ssm_norm", "blocks.#.delta.norm"),
		one("blk.#.attn_output", "blocks.#.delta.out"),
	}
	for _, l := range ggufLatentLinks() { // of a model whose queries come by no latent
		if !strings.HasPrefix(l.Foreign, "blk.#.attn_q_") {
			own = append(own, l)
		}
	}
	return own
}
