package exec

import (
	"slices"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/runtime/cpu"
	"github.com/nstf/nstf/runtime/device"
	"github.com/nstf/nstf/runtime/gpu"
	"github.com/nstf/nstf/runtime/place"
)

// usualDepth is the positions in front of the token whose time is predicted.
const usualDepth = 512

// pieces counts what a token reads of each part of a model, and what that takes on each
// site.
func (s *sites) pieces(g *graph.Graph, tensor func(string) formats.Tensor, o *Options) (*place.Pieces, error) {
	c := &counter{sites: s, g: g, tensor: tensor, o: o}
	n := len(g.Blocks)
	p := &place.Pieces{Row: 4 * g.Width}
	for lo, hi := 0, 0; lo < n; lo = hi {
		for hi = lo + 1; hi < n && len(g.Carried(hi)) > 0; { // keys and values stay where they are
			hi++
		}
		piece := place.Piece{Lo: lo, Hi: hi, Memory: c.memory(device.Span{Lo: lo, Hi: hi}, nil)}
		if slices.Contains(s.opened, nil) {
			piece.Routed = c.routed(&piece)
		}
		p.Blocks = append(p.Blocks, piece)
	}
	p.Embed.Memory, p.Head.Memory = c.memory(device.Embedding(), nil), c.memory(device.Head(g), nil)
	p.Tied = less(sum(p.Embed.Memory, p.Head.Memory), c.memory(device.Span{Lo: n, Hi: n, Embed: true, Head: true}, nil))
	if p.Common = make([]int64, len(s.all)); g.PerLayer != nil && len(p.Blocks) > 1 { // what each range reads of it
		a, b := &p.Blocks[0], &p.Blocks[1]
		p.Common = less(sum(a.Memory, b.Memory), c.memory(device.Span{Hi: b.Hi}, nil))
		p.Embed.Memory = less(c.memory(device.Span{Hi: a.Hi, Embed: true}, nil), a.Memory)
		p.Tied = make([]int64, len(s.all))
		for i := range p.Blocks {
			p.Blocks[i].Memory = less(p.Blocks[i].Memory, p.Common)
		}
	}
	if c.err != nil {
		return nil, c.err
	}
	cost, err := o.cost(g, tensor)
	if err != nil {
		return nil, err
	}
	p.Embed.Read, p.Head.Read = cost.Ends()
	for i := range p.Blocks {
		for k := p.Blocks[i].Lo; k < p.Blocks[i].Hi; k++ {
			weights, cache := cost.Block(k, usualDepth)
			p.Blocks[i].Read += weights + cache
			if r := p.Blocks[i].Routed; r != nil {
				r.Read += cost.Routed(k)
			}
		}
	}
	return p, nil
}

// cost counts what a token reads.
func (o *Options) cost(g *graph.Graph, tensor func(string) formats.Tensor) (*place.Cost, error) {
	const positions = 1024
	_, state, err := cpu.Need(g, device.Whole(g), tensor, cpu.Options{KV: o.KV, Exact: o.Exact, Policy: o.Policy}, positions)
	return place.NewCost(g, tensor, state, positions), err
}

// A counter counts bytes on each site, and keeps the first error.
type counter struct {
	*sites
	g      *graph.Graph
	tensor func(string) formats.Tensor
	o      *Options
	err    error
}

// routed counts the routed experts of a piece, nil where it has none.
func (c *counter) routed(p *place.Piece) *place.Routed {
	r, of := &place.Routed{Up: 4 * c.g.Width}, device.Blocks{}
	for i := p.Lo; i < p.Hi; i++ {
		if m := c.g.Blocks[i].MoE; m != nil {
			r.Blocks, of[i] = append(r.Blocks, i), true
			r.Down = max(r.Down, 4*m.Latent(c.g.Width)+8*m.TopK)
		}
	}
	if len(of) == 0 {
		return nil
	}
	if m := c.g.Blocks[p.Lo].MoE; len(of) == 1 && m != nil && gpu.Pins(m, c.tensor) {
		r.Count, r.Use = int(m.Experts), c.learned.use(p.Lo, c.o.uses.Of(p.Lo, int(m.Experts)), int(m.Experts))
	}
	r.Memory = cpu.ExpertBytes(c.g, of, c.tensor)
	r.Freed = less(p.Memory, c.memory(device.Span{Lo: p.Lo, Hi: p.Hi}, of))
	return r
}

// timeHome times what the processor takes for the experts of pieces, unless every GPU has room for a whole
// model: then none leaves any.
func (s *sites) timeHome(g *graph.Graph, tensor func(string) formats.Tensor, o *Options, p *place.Pieces) error {
	if o.Device.Ranges == nil && p.Fit(s.all) {
		return nil
	}
	for i := range p.Blocks {
		r := p.Blocks[i].Routed
		if r == nil {
			continue
		}
		r.Home = 0
		for _, b := range r.Blocks {
			t, err := s.timeStep(g, b, tensor, o)
			if err != nil {
				return err
			}
			if t == 0 { // not timed
				r.Home = 0
				break
			}
			r.Home += t
		}
	}
	return nil
}

// memory returns the bytes of a span, of weights and of what sequences remember, without the
// routed experts that lie apart.
func (c *counter) memory(span device.Span, apart device.Blocks) []int64 {
	all := make([]int64, len(c.opened))
	for i, d := range c.opened {
		if c.err != nil {
			break
		}
		if d == nil {
			all[i], c.err = c.o.onProcessor(c.g, span, c.tensor)
			continue
		}
		var p gpu.Plan
		options := c.o.gpu()
		options.Rows, options.Apart = device.FewRows, apart
		p, c.err = d.Plan(c.g, span, c.tensor, options)
		all[i] = p.Weights + p.Cache + p.States
	}
	return all
}

// onProcessor counts for the processor.
func (o *Options) onProcessor(g *graph.Graph, span device.Span, tensor func(string) formats.Tensor) (int64, error) {
	weights, state, err := cpu.Need(g, span, tensor, cpu.Options{KV: o.KV, Exact: o.Exact, Policy: o.Policy}, o.Context)
	sequences := int64(max(o.Sequences, 1))
	if o.Positions > 0 {
		sequences = (o.Positions-1)/o.Context + 1
	}
	return weights + sequences*state, err
}

func sum(a, b []int64) []int64 {
	out := slices.Clone(a)
	for i := range b {
		out[i] += b[i]
	}
	return out
}

func less(a, b []int64) []int64 {
	out := slices.Clone(a)
	for i := range b {
		out[i] -= b[i]
	}
	return out
}
