package arch

import (
	"math"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
)

// What Qwen3-Next and later models have in common in GGUF.
//
// Source: src/models/qwen3next.cpp, qwen35.cpp and qwen35moe.cpp of llama.cpp, and
// the classes Qwen3NextModel, _LinearAttentionVReorderBase and _Qwen35MRopeMixin of
// its conversion/qwen.py.

// qwenHybrid reads a model whose delta nets, with tiled, keep their value heads in the
// order that llama.cpp repeats key heads in: those of a key head are not neighbours.
func (k *keys) qwenHybrid(arch string, tiled bool) *decoder {
	d := k.common(arch)
	d.qkNorm = true
	d.mtp = k.intOr("nextn_predict_layers", 0)
	d.layers -= int(min(max(d.mtp, 0), int64(d.layers)-1))
	d.ropes = []graph.Rope{k.rope(d, graph.RopeHalf)}
	for i := range d.layers { // the first need not be one of attention
		d.bias.qkv = d.bias.qkv || k.hasTensor(Fill("blk.#.attn_q.bias", i, 0))
		d.bias.o = d.bias.o || k.hasTensor(Fill("blk.#.attn_output.bias", i, 0))
	}
	shape := deltaShape{heads: k.int("ssm.time_step_rank"), keyHeads: k.int("ssm.group_count"),
		keyDim: k.int("ssm.state_size"), valueDim: k.int("ssm.state_size"), kernel: k.int("ssm.conv_kernel")}
	if err := shape.check(); err != nil {
		k.note(formats.Errorf(k.f.Name(), k.prefix+"ssm.time_step_rank", "%v", err))
		return d
	}
	if n := k.int("ssm.inner_size"); n != shape.heads*shape.valueDim {
		k.note(formats.Unsupportedf(k.f.Name(), k.prefix+"ssm.inner_size", "value %d with %d heads of %d", n, shape.heads, shape.valueDim))
	}
	d.hybrid(shape, k.attending(d.layers), func(n *graph.Delta) {
		n.Eps, n.Tiled = d.eps, tiled && n.Heads > n.KeyHeads
	})
	return d
}

// attending reports which layers have attention: those that a list does not name, or
// every n-th.
func (k *keys) attending(layers int) func(layer int) bool {
	const key = "attention.recurrent_layers"
	v, ok := k.f.Get(k.prefix + key)
	if !ok {
		every := k.intOr("full_attention_interval", 4)
		if every < 1 {
			k.note(formats.Errorf(k.f.Name(), k.prefix+"full_attention_interval", "value %d makes no sense", every))
			every = 1
		}
		return func(layer int) bool { return (int64(layer)+1)%every == 0 }
	}
	list, ok := v.([]bool)
	if !ok || len(list) < layers {
		k.note(formats.Errorf(k.f.Name(), k.prefix+key, "no list of %d layers", layers))
		return func(int) bool { return true }
	}
	return func(layer int) bool { return !list[layer] }
}

// qwenMixture reads the mixtures of layers that all have one, whose weights llama.cpp
// divides by their sum.
func (k *keys) qwenMixture(d *decoder) {
	d.moe = moeParams{
		experts: k.int("expert_count"), topK: k.int("expert_used_count"), inner: k.intOr("expert_feed_forward_length", d.inner),
		normalize: true, shared: k.intOr("expert_shared_feed_forward_length", d.inner), sharedGate: true,
	}
}

// sections refuses a file in which llama.cpp would leave pairs of a head unturned: of
// text a position has three equal parts and a fourth that is 0, and pair i takes part
// i mod 3 where that one's section reaches as far, else the fourth.
// Source: ggml_mrope_cache_init in ggml/src/ggml-cpu/ops.cpp.
func (k *keys) sections(d *decoder) {
	const key = "rope.dimension_sections"
	list, err := k.f.Ints(k.prefix + key)
	k.note(err)
	sum := int64(0)
	for _, n := range list {
		sum += max(n, 0)
	}
	if err != nil || len(list) != 4 || sum == 0 {
		k.note(formats.Errorf(k.f.Name(), k.prefix+key, "sections %v make no sense", list))
		return
	}
	for i := range min(d.ropes[0].Dim/2, sum) {
		if i >= 3*list[i%3] {
			k.note(formats.Unsupportedf(k.f.Name(), k.prefix+key, "sections %v, in which pair %d is turned by none of a text's positions", list, i))
			return
		}
	}
}

// qwenHybrid writes the keys of keys.qwenHybrid.
func (w *keyWriter) qwenHybrid(g *graph.Graph) {
	recurrent, every := make([]bool, len(g.Blocks)+len(g.MTP)), 0
	for i := range g.Blocks {
		if n := g.Blocks[i].Delta; n == nil {
			if every == 0 {
				every = i + 1
			}
			continue
		} else if recurrent[i] = true; n == firstDelta(g) {
			w.int("ssm.conv_kernel", n.Kernel)
			w.int("ssm.state_size", n.KeyDim)
			w.int("ssm.group_count", n.KeyHeads)
			w.int("ssm.time_step_rank", n.Heads)
			w.int("ssm.inner_size", n.Values())
		}
	}
	w.raw(w.prefix+"attention.recurrent_layers", recurrent)
	if every > 0 { // for programs that do not read the list
		w.int("full_attention_interval", int64(every))
	}
	if n := int64(len(g.MTP)); n > 0 {
		w.int("nextn_predict_layers", n)
	}
}

// sections writes sections that reach every pair: see keys.sections.
func (w *keyWriter) sections(g *graph.Graph) {
	n := int32(g.Ropes[0].Dim / 2)
	w.raw(w.prefix+"rope.dimension_sections", []int32{(n + 2) / 3, (n + 1) / 3, n / 3, 0})
}

// firstDelta returns the first delta net of a graph, nil where there is none.
func firstDelta(g *graph.Graph) *graph.Delta {
	for i := range g.Blocks {
		if n := g.Blocks[i].Delta; n != nil {
			return n
		}
	}
	return nil
}

// ggufHybridLinks are GGUF's names, beside those of one architecture alone. With
// tiled, value heads lie in llama.cpp's order.
func ggufHybridLinks(tiled bool, own ...Link) []Link {
	links := append(own, []Link{
		{Foreign: "blk.#.attn_q", Parts: []string{"blocks.#.attn.q", "blocks.#.attn.gate"}, Order: queryAndGate},
		{Foreign: "blk.#.attn_qkv", Parts: []string{"blocks.#.delta.qkv"}, Order: valueHeads(tiled, wide, behindKeys)},
		{Foreign: "blk.#.attn_gate", Parts: []string{"blocks.#.delta.z"}, Order: valueHeads(tiled, wide, nil)},
		{Foreign: "blk.#.ssm_conv1d", Parts: []string{"blocks.#.delta.conv"}, Order: valueHeads(tiled, wide, behindKeys)},
		{Foreign: "blk.#.ssm_a", Parts: []string{"blocks.#.delta.decay"}, Order: valueHeads(tiled, nil, nil), Written: decays(false)},
		{Foreign: "blk.#.ssm_dt.bias", Parts: []string{"blocks.#.delta.dt_bias"}, Order: valueHeads(tiled, nil, nil)},
		one("blk.#.ssm_norm", "blocks.#.delta.norm"),
		{Foreign: "blk.#.ssm_out", Parts: []string{"blocks.#.delta.out"}, Columns: valueHeads(tiled, wide, nil)},
		one("blk.#.post_attention_norm", "blocks.#.ffn_norm"),
	}...)
	for _, l := range ggufDecoderLinks() { // without what has another place here
		switch l.Foreign {
		case "blk.#.attn_q", "blk.#.attn_qkv", "blk.#.ffn_norm":
		default:
			links = append(links, l)
		}
	}
	return append(links, behindLinks(ggufMTPLinks(), links)...)
}

// valueHeads is the order of rows, so many of each value head (nil: one) behind those
// that before counts (nil: none), in a checkpoint whose value heads are tiled, or
// grouped by key head.
func valueHeads(tiled bool, each, before func(n *graph.Delta) int64) func(*graph.Graph, int) []int64 {
	return func(g *graph.Graph, block int) []int64 {
		n := g.Blocks[block].Delta
		if n == nil || n.Tiled == tiled || n.Heads == n.KeyHeads {
			return nil
		}
		rows, first := int64(1), int64(0)
		if each != nil {
			rows = each(n)
		}
		if before != nil {
			first = before(n)
		}
		order := make([]int64, 0, first+n.Heads*rows)
		for i := range first {
			order = append(order, i)
		}
		group := n.Heads / n.KeyHeads
		for h := range n.Heads {
			ours := h%group*n.KeyHeads + h/group
			if tiled {
				ours = h%n.KeyHeads*group + h/n.KeyHeads
			}
			for i := range rows {
				order = append(order, first+ours*rows+i)
			}
		}
		return order
	}
}

func wide(n *graph.Delta) int64       { return n.ValueDim }
func behindKeys(n *graph.Delta) int64 { return 2 * n.KeyHeads * n.KeyDim }

// decays is what those of a delta net or a state space become where the foreign tensor has
// their logarithms and the graph not, or the reverse.
func decays(foreign bool) func(g *graph.Graph, block int) func(float32) float32 {
	return func(g *graph.Graph, block int) func(float32) float32 {
		ours := foreign
		switch b := &g.Blocks[block]; {
		case b.Delta != nil:
			ours = b.Delta.DecayLog
		case b.Mamba != nil:
			ours = b.Mamba.DecayLog
		}
		switch {
		case ours == foreign:
			return nil
		case foreign:
			return func(x float32) float32 { return float32(math.Log(-float64(x))) }
		}
		return func(x float32) float32 { return float32(-math.Exp(float64(x))) }
	}
}
