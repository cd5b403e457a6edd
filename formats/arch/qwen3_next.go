package arch

import (
	"strings"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
)

// qwen3Next has gated delta nets in all layers but every fourth, whose attention has
// an output gate, and in most a mixture with a gated shared layer. Projections of its
// delta nets keep what belongs to one key head together. Its norms store weight-1,
// but for those of the delta nets.
//
// Source: configuration_qwen3_next.py and modeling_qwen3_next.py of transformers.
func qwen3Next() *Architecture {
	return &Architecture{
		name: "qwen3_next", class: "Qwen3NextForCausalLM", types: []string{"qwen3_next"}, gguf: "qwen3next",
		llama: &llamaCPP{squareDelta: true},
		fromHF: func(s *settings) *decoder {
			d := s.qwenHybrid("qwen3_next", false, 2, 5632)
			s.qwen3Experts(d)
			d.moe.experts, d.moe.topK, d.moe.inner = s.intOr("num_experts", 512), s.intOr("num_experts_per_tok", 10), s.intOr("moe_intermediate_size", 512)
			d.moe.normalize = s.boolOr("norm_topk_prob", true)
			d.moe.shared, d.moe.sharedGate = s.intOr("shared_expert_intermediate_size", 512), true
			sparse := d.moe.sparse
			d.moe.sparse = func(layer int) bool { return layer >= d.layers || sparse == nil || sparse(layer) }
			d.mtp = 1 // where its tensors are there: no key counts modules
			return d
		},
		fromGGUF: func(k *keys) *decoder {
			d := k.qwenHybrid("qwen3_next", false)
			k.qwenMixture(d)
			return d
		},
		offset: 1,
		toHF: func(c configWriter, g *graph.Graph) {
			c.qwenHybrid(g)
			m, dense := c.mixture(g, "num_experts", "moe_intermediate_size")
			c["norm_topk_prob"], c["mlp_only_layers"] = m.Normalize, dense
			c["shared_expert_intermediate_size"] = m.Shared.Up.Out
		},
		toGGUF: (*keyWriter).qwenHybrid,
		hfLinks: append([]Link{
			{Foreign: "model.layers.#.linear_attn.in_proj_qkvz", Parts: []string{"blocks.#.delta.qkv", "blocks.#.delta.z"}, Order: byKeyHead},
			{Foreign: "model.layers.#.linear_attn.in_proj_ba", Parts: []string{"blocks.#.delta.beta", "blocks.#.delta.alpha"}, Order: gatesByKeyHead},
		}, hfHybridLinks()...),
		ggufLinks: ggufHybridLinks(false,
			Link{Foreign: "blk.#.ssm_ba", Parts: []string{"blocks.#.delta.beta", "blocks.#.delta.alpha"}, Order: gatesByKeyHead},
			Link{Foreign: "blk.#.ssm_in", Parts: []string{"blocks.#.delta.qkv", "blocks.#.delta.z"}, Order: byKeyHead}, // files of 2025
		),
	}
}

// lengthEps is what transformers adds to the sum of squares of a delta net's queries
// and keys, in its l2norm.
const lengthEps = 1e-6

// A deltaShape is the sizes of gated delta nets.
type deltaShape struct{ heads, keyHeads, keyDim, valueDim, kernel int64 }

// check refuses sizes that no graph has, so that what follows may multiply and divide
// them.
func (s *deltaShape) check() error {
	n := graph.Delta{Heads: s.heads, KeyHeads: s.keyHeads, KeyDim: s.keyDim, ValueDim: s.valueDim, Kernel: s.kernel}
	return n.CheckSizes()
}

// delta returns the gated delta net of a block in place of its attention.
func (d *decoder) delta(p string, s deltaShape) *graph.Delta {
	n := &graph.Delta{Heads: s.heads, KeyHeads: s.keyHeads, KeyDim: s.keyDim, ValueDim: s.valueDim, Kernel: s.kernel, Eps: lengthEps,
		Conv: p + "conv.weight", Decay: p + "decay", DTBias: p + "dt_bias", Norm: d.newNorm(p + "norm")}
	n.Norm.Offset = 0
	n.QKV = d.linear(p+"qkv", graph.RoleQKV, p+"in", d.width, n.Channels(), false)
	n.Z = d.linear(p+"z", graph.RoleZ, p+"in", d.width, n.Values(), false)
	n.Beta = d.linear(p+"beta", graph.RoleDGate, p+"in", d.width, s.heads, false)
	n.Alpha = d.linear(p+"alpha", graph.RoleDGate, p+"in", d.width, s.heads, false)
	n.Out = d.linear(p+"out", graph.RoleDOut, p+"mid", n.Values(), d.width, false)
	return n
}

// hybrid gives layers without attention a gated delta net, and the others an output
// gate.
func (d *decoder) hybrid(s deltaShape, attends func(layer int) bool, edit func(n *graph.Delta)) {
	d.each = func(layer int, b *graph.Block) {
		p := strings.TrimSuffix(b.Attn.Q.Weight, "q.weight")
		if layer < d.layers && !attends(layer) { // modules of multi-token prediction attend
			b.Attn, b.Delta = nil, d.delta(strings.TrimSuffix(p, "attn.")+"delta.", s)
			edit(b.Delta)
			return
		}
		gate := d.linear(p+"gate", graph.RoleOGate, p+"in", d.width, d.heads*d.headDim, d.bias.qkv)
		b.Attn.Gate = &gate
	}
}

// qwenHybrid reads what Qwen3-Next and later models have in common. A class without
// dense layers has no intermediate_size. With tiled, the graph has the value heads of
// its delta nets in llama.cpp's order, in which the columns of their last projections
// can be written to GGUF whatever they are quantized to.
func (s *settings) qwenHybrid(arch string, tiled bool, kvHeads, inner int64) *decoder {
	d := s.common(arch, map[string]int64{"intermediate_size": inner, "num_key_value_heads": kvHeads})
	if s.null("num_key_value_heads") {
		s.bad("num_key_value_heads", "null")
	}
	d.headDim = s.intOr("head_dim", 256)
	d.offset, d.qkNorm = 1, true
	b := s.boolOr("attention_bias", false)
	d.bias = biases{qkv: b, o: b}
	if !s.boolOr("attn_output_gate", true) {
		s.refuse("attn_output_gate", false)
	}
	p := s.ropeObject()
	d.ropes = []graph.Rope{s.rotation(d, p, s.base(p, "rope_theta", 10000), s.floatOr("partial_rotary_factor", 0.25))}
	shape := deltaShape{heads: s.intOr("linear_num_value_heads", 32), keyHeads: s.intOr("linear_num_key_heads", 16),
		keyDim: s.intOr("linear_key_head_dim", 128), valueDim: s.intOr("linear_value_head_dim", 128), kernel: s.intOr("linear_conv_kernel_dim", 4)}
	if err := shape.check(); err != nil {
		s.note(formats.Errorf(s.c.File(), "linear_num_value_heads", "%v", err))
		return d
	}
	if d.act != graph.SiLU { // of the convolution, too
		s.refuse("hidden_act", d.act)
	}
	d.hybrid(shape, s.attending(d.layers), func(n *graph.Delta) {
		n.DecayLog, n.Tiled = true, tiled && n.Heads > n.KeyHeads
	})
	return d
}

// attending reports which layers have attention: by layer_types, or every n-th.
func (s *settings) attending(layers int) func(layer int) bool {
	if !s.has("layer_types") {
		every := s.intOr("full_attention_interval", 4)
		if every < 1 {
			s.bad("full_attention_interval", every)
			every = 1
		}
		return func(layer int) bool { return (int64(layer)+1)%every == 0 }
	}
	types, err := s.c.Strings("layer_types")
	s.note(err)
	if s.err == nil && len(types) != layers {
		s.bad("layer_types", types)
	}
	for _, t := range types {
		if t != "linear_attention" && t != "full_attention" {
			s.refuse("layer_types", t)
		}
	}
	return func(layer int) bool { return layer < len(types) && types[layer] == "full_attention" }
}

// qwenHybrid writes the keys of settings.qwenHybrid.
func (c configWriter) qwenHybrid(g *graph.Graph) {
	b, types := &g.Blocks[0], make([]string, len(g.Blocks))
	for i := range g.Blocks {
		if types[i] = "full_attention"; g.Blocks[i].Delta == nil {
			b = &g.Blocks[i]
			continue
		}
		types[i] = "linear_attention"
		n := g.Blocks[i].Delta
		c["linear_num_value_heads"], c["linear_num_key_heads"] = n.Heads, n.KeyHeads
		c["linear_key_head_dim"], c["linear_value_head_dim"], c["linear_conv_kernel_dim"] = n.KeyDim, n.ValueDim, n.Kernel
	}
	c["layer_types"] = types
	if b.Attn != nil {
		c.decoder(g, b)
	}
}

// hfHybridLinks are the names of Qwen3-Next and later models.
func hfHybridLinks() []Link {
	const layer, delta = "model.layers.#.", "model.layers.#.linear_attn."
	links := []Link{
		{Foreign: layer + "self_attn.q_proj", Parts: []string{"blocks.#.attn.q", "blocks.#.attn.gate"}, Order: queryAndGate},
		{Foreign: delta + "conv1d", Parts: []string{"blocks.#.delta.conv"}, Middle: true, Order: valueHeads(false, wide, behindKeys)},
		{Foreign: delta + "A_log", Parts: []string{"blocks.#.delta.decay"}, Order: valueHeads(false, nil, nil), Written: decays(true)},
		{Foreign: delta + "dt_bias", Parts: []string{"blocks.#.delta.dt_bias"}, Order: valueHeads(false, nil, nil)},
		one(delta+"norm", "blocks.#.delta.norm"),
		{Foreign: delta + "out_proj", Parts: []string{"blocks.#.delta.out"}, Columns: valueHeads(false, wide, nil)},
		one(layer+"mlp.shared_expert.gate_proj", "blocks.#.moe.shared.gate"),
		one(layer+"mlp.shared_expert.up_proj", "blocks.#.moe.shared.up"),
		one(layer+"mlp.shared_expert.down_proj", "blocks.#.moe.shared.down"),
		one(layer+"mlp.shared_expert_gate", "blocks.#.moe.shared_gate"),
		one(layer+"mlp.experts.@.gate_proj", "blocks.#.moe.gate"),
		one(layer+"mlp.experts.@.up_proj", "blocks.#.moe.up"),
		one(layer+"mlp.experts.@.down_proj", "blocks.#.moe.down"),
	}
	links = append(append(links, hfStackedExperts()...), hfDecoderLinks()...)
	return append(links, besideLinks([]Link{
		one("mtp.fc", "mtp.#.project"),
		one("mtp.pre_fc_norm_embedding", "mtp.#.embed_norm"),
		one("mtp.pre_fc_norm_hidden", "mtp.#.hidden_norm"),
		one("mtp.norm", "mtp.#.norm"),
	}, links, layer, "mtp.layers.#.")...)
}

// queryAndGate is the order of a projection that keeps the query and the output gate
// of one head together.
func queryAndGate(g *graph.Graph, block int) []int64 {
	a := g.Blocks[block].Attn
	n := a.Heads * a.HeadDim
	order := make([]int64, 0, 2*n)
	for h := range a.Heads {
		for part := range int64(2) {
			for i := range a.HeadDim {
				order = append(order, part*n+h*a.HeadDim+i)
			}
		}
	}
	return order
}

// byKeyHead is the order of queries, keys, values and output gates of each key head
// in turn, of parts that have them of all heads.
func byKeyHead(g *graph.Graph, block int) []int64 {
	n := g.Blocks[block].Delta
	queries, each := n.KeyHeads*n.KeyDim, n.Values()/n.KeyHeads
	var order []int64
	run := func(first, rows int64) {
		for i := range rows {
			order = append(order, first+i)
		}
	}
	for h := range n.KeyHeads {
		run(h*n.KeyDim, n.KeyDim)
		run(queries+h*n.KeyDim, n.KeyDim)
		run(2*queries+h*each, each)
		run(n.Channels()+h*each, each)
	}
	return order
}

// gatesByKeyHead is the same of beta and alpha.
func gatesByKeyHead(g *graph.Graph, block int) []int64 {
	n := g.Blocks[block].Delta
	each := n.Heads / n.KeyHeads
	var order []int64
	for h := range n.KeyHeads {
		for part := range int64(2) {
			for i := range each {
				order = append(order, part*n.Heads+h*each+i)
			}
		}
	}
	return order
}
