package place

import (
	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
)

// A Cost is what a model has to read and to multiply, counted from its graph and
// from the sizes that its tensors are stored in.
type Cost struct {
	g        *graph.Graph
	tensor   func(name string) formats.Tensor
	kvNumber float64 // bytes of one number of the cache
}

// NewCost counts for a model whose cache takes cacheBytes for so many positions:
// what exec.Executor.StateBytes says of them.
func NewCost(g *graph.Graph, tensor func(name string) formats.Tensor, cacheBytes, positions int64) *Cost {
	c := &Cost{g: g, tensor: tensor}
	numbers := int64(0)
	for i := range c.g.Blocks {
		numbers += c.g.Blocks[i].Remembered() * positions
		cacheBytes -= 4 * c.g.Blocks[i].Memory()
	}
	if numbers > 0 {
		c.kvNumber = float64(cacheBytes) / float64(numbers)
	}
	return c
}

// Of counts for another graph, such as a rank's part, whose cache is as this one's.
func (c *Cost) Of(g *graph.Graph, tensor func(name string) formats.Tensor) *Cost {
	return &Cost{g: g, tensor: tensor, kvNumber: c.kvNumber}
}

// size returns the stored bytes of tensors; "" has none.
func (c *Cost) size(names ...string) (n float64) {
	for _, name := range names {
		if name != "" {
			t := c.tensor(name)
			n += float64(t.Size())
		}
	}
	return n
}

// row returns the bytes of one row of a table.
func (c *Cost) row(name string) float64 {
	if name == "" {
		return 0
	}
	t := c.tensor(name)
	rows, _ := t.Rows()
	return float64(t.Size()) / float64(max(rows, 1))
}

// stored returns the bytes of a part of a block that one token reads: of a stack
// the share of the experts that are used.
func (c *Cost) stored(p *graph.Part) float64 {
	switch l := p.Linear; {
	case p.Norm != nil:
		return c.size(p.Norm.Weight, p.Norm.Bias)
	case l == nil:
		return c.size(p.Vector)
	case p.Experts > 0:
		return c.size(l.Weight, l.Bias) * float64(p.Used) / float64(p.Experts)
	default:
		return c.size(l.Weight, l.Bias)
	}
}

// Bytes returns what decoding one token reads: every weight that it is multiplied
// by, once (of a mixture's experts, those that are used), the keys and values
// of the positions that it attends to, of which there are so many with its own, and
// what recurrent mixers remember, which they write again.
func (c *Cost) Bytes(position int64) (weights, cache float64) {
	begins, ends := c.Ends()
	weights = begins + ends
	for i := range c.g.Blocks {
		w, k := c.Block(i, position)
		weights, cache = weights+w, cache+k
	}
	return weights, cache
}

// Ends returns what [Cost.Bytes] has of weights in front of the blocks and behind them.
func (c *Cost) Ends() (begins, ends float64) {
	g := c.g
	begins = c.row(g.Embed.Table) + c.row(g.Embed.Positions)
	if p := g.PerLayer; p != nil {
		begins += c.row(p.Table)
		for _, p := range g.Begins() {
			begins += c.stored(&p)
		}
	}
	return begins, c.size(g.Norm.Weight, g.Norm.Bias, g.Head.Weight, g.Head.Bias)
}

// Block returns what [Cost.Bytes] has of a block.
func (c *Cost) Block(i int, position int64) (weights, cache float64) {
	b := &c.g.Blocks[i]
	for _, p := range b.Parts(c.g.Width) {
		weights += c.stored(&p)
	}
	return weights, 2*4*float64(b.Memory()) + float64(b.Remembered()*attended(b, position))*c.kvNumber
}

// Routed returns what [Cost.Block] has of the weights of routed experts.
func (c *Cost) Routed(i int) (n float64) {
	b := &c.g.Blocks[i]
	for _, p := range b.Parts(c.g.Width) {
		if b.MoE != nil && b.MoE.Routed(p.Linear) {
			n += c.stored(&p)
		}
	}
	return n
}

// attended returns the positions that a token attends to, its own included.
func attended(b *graph.Block, position int64) int64 {
	switch a := b.Attn; {
	case a != nil && a.Window > 0:
		return min(position, a.Window)
	case a != nil && a.Chunk > 0:
		return min(position, a.Chunk)
	}
	return position
}

// Operations returns the multiplications and additions that a prompt of so many
// tokens needs for the logits of its last: two for every weight and token, four
// for every feature of a query head and position that it attends to (of latents, two
// for each number of a key and of a value), seven for every
// number that a delta net remembers of a head, five for one of a state space. Of the last
// block only keys and values are needed for tokens before the last, of the head
// nothing; element by element work does not count.
func (c *Cost) Operations(tokens int64) float64 {
	n := 0.0
	for _, p := range c.g.Begins() {
		n += operations(&p) * float64(tokens)
	}
	for i := range c.g.Blocks {
		b := &c.g.Blocks[i]
		first := int64(0) // token whose output is needed
		if i == len(c.g.Blocks)-1 {
			first = tokens - 1
		}
		for _, p := range b.Parts(c.g.Width) {
			rows := tokens - first
			if remembered(b, p.Linear) {
				rows = tokens
			}
			n += operations(&p) * float64(rows)
		}
		if d := b.Delta; d != nil {
			n += float64(tokens) * float64(7*d.Heads*d.KeyDim*d.ValueDim)
		}
		if m := b.Mamba; m != nil {
			n += float64(tokens) * float64(5*m.Values()*m.State)
		}
		if b.Attn == nil && b.Latent == nil {
			continue
		}
		var positions int64
		for t := first; t < tokens; t++ {
			positions += attended(b, t+1)
		}
		if a := b.Latent; a != nil {
			n += float64(2 * a.Heads * (a.KeyDim() + a.Rank) * positions)
		} else {
			n += float64(4 * b.Attn.Heads * b.Attn.HeadDim * positions)
		}
	}
	return n + 2*float64(c.g.Head.In*c.g.Head.Out)
}

// remembered reports whether what a matrix gives is needed of every token: keys, values,
// and what recurrent mixers go on with.
func remembered(b *graph.Block, l *graph.Linear) bool {
	switch {
	case l == nil:
		return false
	case b.Attn != nil:
		return l == b.Attn.K || l == b.Attn.V
	case b.Latent != nil:
		return l == &b.Latent.KVA
	case b.Delta != nil:
		return l == &b.Delta.QKV
	case b.Mamba != nil:
		return l == &b.Mamba.XBC || l == &b.Mamba.DT
	case b.ShortConv != nil:
		return l == &b.ShortConv.In
	}
	return false
}

// operations returns those of a part for one token.
func operations(p *graph.Part) float64 {
	switch n := 2 * float64(p.In*p.Out); {
	case p.Linear == nil:
		return 0
	case p.Experts > 0:
		return n * float64(p.Used)
	default:
		return n
	}
}
