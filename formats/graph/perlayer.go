package graph

// A PerLayer gives every block an input of its own from the token alone (per-layer
// embeddings). With e the hidden state before the first block, of token t:
//
//	c = Norm(Projection e * ProjectionScale)          of each run of Width numbers by itself
//	p = (c + Table[t] * Scale) * Factor               [blocks][Width]
//
// Block i reads p[i]. The table is much larger than what a token reads of it.
//
// Source: transformers 5.23, Gemma4TextModel.project_per_layer_inputs.
type PerLayer struct {
	Width           int64   `json:"width"` // numbers of a block's input
	Table           string  `json:"table"` // tensor [Vocab][blocks*Width]
	Scale           float32 `json:"scale"`
	Projection      Linear  `json:"projection"` // [blocks*Width][D]
	ProjectionScale float32 `json:"projection_scale"`
	Norm            *Norm   `json:"norm"` // over Width numbers
	Factor          float32 `json:"factor"`
}

// A PerLayerInput adds what a block makes of its own input p:
//
//	x = x + Norm(Down(Act(Gate x) * p))
type PerLayerInput struct {
	Act  Activation `json:"act"`
	Gate Linear     `json:"gate"` // [Width][D]
	Down Linear     `json:"down"` // [D][Width]
	Norm *Norm      `json:"norm,omitempty"`
}

// Begins lists what stands before the blocks, beside the tables.
func (g *Graph) Begins() []Part {
	l := &lister{width: g.Width}
	if p := g.PerLayer; p != nil {
		l.linear("per_layer.projection", &p.Projection, g.Width, int64(len(g.Blocks))*p.Width)
		l.norm("per_layer.norm", p.Norm, p.Width)
	}
	return l.out
}

func (p *PerLayerInput) parts(l *lister) {
	l.linear("per_layer.gate", &p.Gate, l.width, p.Gate.Out)
	l.linear("per_layer.down", &p.Down, p.Gate.Out, l.width)
	l.norm("per_layer.norm", p.Norm, l.width)
}

func (p *PerLayerInput) check(c *checker) {
	c.activation("per_layer.act", p.Act)
	switch of := c.g.PerLayer; {
	case of == nil || c.mtp:
		c.fail("per_layer", "the graph has no per-layer embeddings")
	case p.Gate.Out != of.Width:
		c.fail("per_layer.gate", "%d outputs where %d belong", p.Gate.Out, of.Width)
	}
}

func (c *checker) perLayer(p *PerLayer) {
	c.within("per_layer.width", p.Width, 1<<24)
	c.name("per_layer.table", p.Table)
	c.finite("per_layer.scale", p.Scale)
	c.finite("per_layer.projection_scale", p.ProjectionScale)
	c.finite("per_layer.factor", p.Factor)
	if p.Norm == nil {
		c.fail("per_layer.norm", "is missing")
	}
	if c.err == nil {
		c.parts(c.g.Begins())
	}
}
