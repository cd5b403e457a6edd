package bench

import (
	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/model"
)

// A Cost is what a model has to read and to multiply, counted from its graph and
// from the sizes that its tensors are stored in.
type Cost struct {
	g        *model.Graph
	tensor   func(name string) formats.Tensor
	kvNumber float64 // bytes of one number of the cache
}

// NewCost counts for a model whose cache takes cacheBytes for so many positions:
// what exec.Executor.CacheBytes says of them.
func NewCost(m *model.Model, cacheBytes, positions int64) *Cost {
	c := &Cost{g: m.Graph, tensor: m.Tensor}
	numbers := int64(0)
	for i := range c.g.Blocks {
		a := &c.g.Blocks[i].Attn
		numbers += 2 * a.KVHeads * a.HeadDim * positions
	}
	c.kvNumber = float64(cacheBytes) / float64(numbers)
	return c
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

func (c *Cost) norms(ns ...*model.Norm) (n float64) {
	for _, x := range ns {
		if x != nil {
			n += c.size(x.Weight, x.Bias)
		}
	}
	return n
}

// Bytes returns what decoding one token reads: every weight that it is multiplied
// by, once (of a mixture's experts, those that are used), and the keys and values
// of the positions that it attends to, of which there are so many with its own.
func (c *Cost) Bytes(position int64) (weights, cache float64) {
	g := c.g
	weights = c.row(g.Embed.Table) + c.row(g.Embed.Positions) + c.norms(g.Norm) + c.size(g.Head.Weight, g.Head.Bias)
	for i := range g.Blocks {
		b := &g.Blocks[i]
		weights += c.norms(b.AttnNorm, b.AttnPostNorm, b.FFNNorm, b.FFNPostNorm, b.Attn.QNorm, b.Attn.KNorm)
		for _, l := range b.Linears() {
			share := 1.0
			if stacked(l) {
				share = float64(b.MoE.TopK) / float64(b.MoE.Experts)
			}
			weights += c.size(l.Weight, l.Bias) * share
		}
		cache += float64(2*b.Attn.KVHeads*b.Attn.HeadDim*attended(&b.Attn, position)) * c.kvNumber
	}
	return weights, cache
}

// attended returns the positions that a token attends to, its own included.
func attended(a *model.Attention, position int64) int64 {
	if a.Window > 0 {
		return min(position, a.Window)
	}
	return position
}

// stacked reports whether a matrix is one of each expert.
func stacked(l *model.Linear) bool {
	return l.Role == model.RoleXGate || l.Role == model.RoleXUp || l.Role == model.RoleXDown
}

// Operations returns the multiplications and additions that a prompt of so many
// tokens needs for the logits of its last: two for every weight and token, four
// for every feature of a query head and position that it attends to. Of the last
// block only keys and values are needed for tokens before the last, of the head
// nothing; element by element work does not count.
func (c *Cost) Operations(tokens int64) float64 {
	n := 0.0
	for i := range c.g.Blocks {
		b := &c.g.Blocks[i]
		first := int64(0) // token whose output is needed
		if i == len(c.g.Blocks)-1 {
			first = tokens - 1
		}
		for _, l := range b.Linears() {
			rows := tokens - first
			if l.Role == model.RoleK || l.Role == model.RoleV {
				rows = tokens
			}
			n += operations(b, l) * float64(rows)
		}
		var positions int64
		for t := first; t < tokens; t++ {
			positions += attended(&b.Attn, t+1)
		}
		n += float64(4 * b.Attn.Heads * b.Attn.HeadDim * positions)
	}
	return n + 2*float64(c.g.Head.In*c.g.Head.Out)
}

// operations returns those of a matrix for one token.
func operations(b *model.Block, l *model.Linear) float64 {
	n := 2 * float64(l.In*l.Out)
	if stacked(l) {
		n *= float64(b.MoE.TopK)
	}
	return n
}
