package model

import "strings"

// A Weight is one tensor that a graph reads.
type Weight struct {
	Name  string
	Role  Role
	Block int // -1 outside the blocks
	Shape []int64
}

// Weights lists every tensor that the graph reads, once each, in the order of
// execution: the order in which packages store them. A head tied to the
// embedding table appears as the table alone.
func (g *Graph) Weights() []Weight {
	c := collector{seen: map[string]bool{}, block: -1}
	c.add(g.Embed.Table, RoleEmbed, g.Vocab, g.Width)
	c.add(g.Embed.Positions, RoleEmbed, g.Context, g.Width)
	for i := range g.Blocks {
		c.block = i
		c.addBlock(&g.Blocks[i], g.Width)
	}
	c.block = -1
	c.norm(g.Norm, g.Width)
	c.linear(&g.Head.Linear, 1)
	return c.out
}

// Params counts the numbers in the graph's tensors.
func (g *Graph) Params() int64 {
	var n int64
	for _, w := range g.Weights() {
		e := int64(1)
		for _, d := range w.Shape {
			e *= d
		}
		n += e
	}
	return n
}

// Tied reports whether the head reads the embedding table.
func (g *Graph) Tied() bool { return g.Head.Weight == g.Embed.Table }

// Readers returns the linears of a graph, its head included, by the names of their
// weights.
func (g *Graph) Readers() map[string]*Linear {
	out := map[string]*Linear{}
	for i := range g.Blocks {
		for _, l := range g.Blocks[i].Linears() {
			out[l.Weight] = l
		}
	}
	out[g.Head.Weight] = &g.Head.Linear
	return out
}

// Linears returns a block's matrices in the order of execution.
func (b *Block) Linears() []*Linear {
	out := []*Linear{&b.Attn.Q, &b.Attn.K, &b.Attn.V, &b.Attn.O}
	if f := b.FFN; f != nil {
		if f.Gate != nil {
			out = append(out, f.Gate)
		}
		out = append(out, &f.Up, &f.Down)
	}
	if m := b.MoE; m != nil {
		out = append(out, &m.Router, &m.Gate, &m.Up, &m.Down)
	}
	return out
}

type collector struct {
	out   []Weight
	seen  map[string]bool
	block int
}

func (c *collector) add(name string, role Role, shape ...int64) {
	if name == "" || c.seen[name] {
		return
	}
	c.seen[name] = true
	c.out = append(c.out, Weight{name, role, c.block, shape})
}

func (c *collector) norm(n *Norm, width int64) {
	if n == nil {
		return
	}
	c.add(n.Weight, RoleNorm, width)
	c.add(n.Bias, RoleNorm, width)
}

func (c *collector) linear(l *Linear, experts int64) {
	if strings.HasPrefix(string(l.Role), "moe_") && l.Role != RoleRouter {
		c.add(l.Weight, l.Role, experts, l.Out, l.In)
		c.add(l.Bias, RoleNorm, experts, l.Out)
		return
	}
	c.add(l.Weight, l.Role, l.Out, l.In)
	c.add(l.Bias, RoleNorm, l.Out)
}

func (c *collector) addBlock(b *Block, width int64) {
	c.norm(b.AttnNorm, width)
	a := &b.Attn
	c.linear(&a.Q, 1)
	c.linear(&a.K, 1)
	c.linear(&a.V, 1)
	c.norm(a.QNorm, a.HeadDim)
	c.norm(a.KNorm, a.HeadDim)
	c.linear(&a.O, 1)
	c.norm(b.AttnPostNorm, width)
	c.norm(b.FFNNorm, width)
	if f := b.FFN; f != nil {
		if f.Gate != nil {
			c.linear(f.Gate, 1)
		}
		c.linear(&f.Up, 1)
		c.linear(&f.Down, 1)
	}
	if m := b.MoE; m != nil {
		c.linear(&m.Router, 1)
		c.linear(&m.Gate, m.Experts)
		c.linear(&m.Up, m.Experts)
		c.linear(&m.Down, m.Experts)
	}
	c.norm(b.FFNPostNorm, width)
}
