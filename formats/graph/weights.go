package graph

// A Weight is one tensor that a graph reads.
type Weight struct {
	Name  string
	Role  Role
	Block int // -1 outside the blocks, those of multi-token prediction included
	Shape []int64
}

// Weights lists every tensor that the graph reads, once each, in the order of
// execution: the order in which packages store them. A head tied to the
// embedding table appears as the table alone.
func (g *Graph) Weights() []Weight {
	c := collector{seen: map[string]bool{}, block: -1}
	c.add(g.Embed.Table, RoleEmbed, g.Vocab, g.Width)
	c.add(g.Embed.Positions, RoleEmbed, g.Context, g.Width)
	if p := g.PerLayer; p != nil {
		c.add(p.Table, RoleEmbed, g.Vocab, int64(len(g.Blocks))*p.Width)
	}
	c.addParts(g.Begins())
	for i := range g.Blocks {
		c.block = i
		c.addParts(g.Blocks[i].Parts(g.Width))
	}
	c.block = -1
	c.addParts(g.Ends())
	for i := range g.MTP {
		c.add(g.MTP[i].Table, RoleMTPEmbed, g.Vocab, g.Width)
		c.addParts(g.MTP[i].Parts(g.Width, g.Vocab))
	}
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

func (c *collector) addParts(parts []Part) {
	for _, p := range parts {
		switch l := p.Linear; {
		case p.Norm != nil:
			c.add(p.Norm.Weight, RoleNorm, p.Shape()...)
			c.add(p.Norm.Bias, RoleNorm, p.Shape()...)
		case l == nil:
			c.add(p.Vector, RoleNorm, p.Shape()...)
		case p.Experts > 0:
			c.add(l.Weight, l.Role, p.Experts, l.Out, l.In)
			c.add(l.Bias, RoleNorm, p.Experts, l.Out)
		default:
			c.add(l.Weight, l.Role, l.Out, l.In)
			c.add(l.Bias, RoleNorm, l.Out)
		}
	}
}
