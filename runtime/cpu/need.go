package cpu

import (
	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/runtime/cache"
	"github.com/nstf/nstf/runtime/device"
	"github.com/nstf/nstf/runtime/load"
)

// Need returns the bytes of a span's weights, but for tables of per-layer embeddings, of
// which a token reads a row, and of what a sequence of so many positions remembers.
func Need(g *graph.Graph, span device.Span, tensor func(name string) formats.Tensor, o Options, positions int64) (weights, state int64, err error) {
	kept, err := o.formats(len(g.Blocks))
	if err != nil {
		return 0, 0, err
	}
	seen := map[string]bool{"": true}
	add := func(names ...string) {
		for _, name := range names {
			if !seen[name] {
				seen[name] = true
				t := tensor(name)
				weights += t.Size()
			}
		}
	}
	parts := func(all []graph.Part) {
		for _, p := range all {
			switch {
			case p.Linear != nil:
				add(p.Linear.Weight, p.Linear.Bias)
			case p.Norm != nil:
				add(p.Norm.Weight, p.Norm.Bias)
			default:
				add(p.Vector)
			}
		}
	}
	if span.Embed {
		add(g.Embed.Table, g.Embed.Positions)
	}
	if load.ReadsPerLayer(g, span) {
		add(g.Embed.Table)
		parts(g.Begins())
	}
	if span.Head {
		parts(g.Ends())
	}
	var layers []cache.Layer
	memory := int64(0)
	for i := span.Lo; i < span.Hi; i++ {
		b := &g.Blocks[i]
		parts(b.Parts(g.Width))
		if a := newAttending(b); a.heads > 0 && (b.Attn == nil || b.Attn.KVFrom == nil) {
			layers = append(layers, cache.Layer{KVHeads: a.kvHeads, HeadDim: a.dim, ValueDim: a.value, Format: kept.Of(i)})
		}
		memory += 4 * b.Memory()
	}
	state, err = cache.Bytes(layers, positions)
	if o.Policy != nil && positions > 0 {
		state += policyBytes(layers, positions)
	}
	return weights, state + memory, err
}
