package graph

// A Part is something in a graph that has weights: a matrix with its bias, a
// stack of such, a norm or a vector. Exactly one of Linear, Norm and Vector is
// set.
type Part struct {
	Name    string  // its place, as in JSON: "attn.q"
	Linear  *Linear // [Out][In]; where it is one of a stack, of each expert
	In, Out int64   // what its neighbours ask for
	Experts int64   // matrices in a stack; 0: it is none
	Used    int64   // of those, for one token
	Norm    *Norm
	Vector  string // a tensor of Width numbers, or of Rows times as many
	Width   int64  // of a norm or vector
	Rows    int64  // of a vector or norm whose tensors are tables [Rows][Width]; 0: they are none
}

// Shape returns the shape of a vector's or a norm's tensors.
func (p *Part) Shape() []int64 {
	if p.Rows > 0 {
		return []int64{p.Rows, p.Width}
	}
	return []int64{p.Width}
}

// A lister collects parts in the order of execution; nil ones are left out.
type lister struct {
	width int64 // D
	out   []Part
}

func (l *lister) linear(name string, m *Linear, in, out int64) { l.stack(name, m, 0, 0, in, out) }

func (l *lister) stack(name string, m *Linear, experts, used, in, out int64) {
	if m != nil {
		l.out = append(l.out, Part{Name: name, Linear: m, In: in, Out: out, Experts: experts, Used: used})
	}
}

func (l *lister) norm(name string, n *Norm, width int64) { l.norms(name, n, 0, width) }

// norms is one of rows vectors, each with weights of its own.
func (l *lister) norms(name string, n *Norm, rows, width int64) {
	if n != nil {
		l.out = append(l.out, Part{Name: name, Norm: n, Width: width, Rows: rows})
	}
}

func (l *lister) vector(name, tensor string, width int64) {
	if tensor != "" {
		l.out = append(l.out, Part{Name: name, Vector: tensor, Width: width})
	}
}

func (l *lister) table(name, tensor string, rows, width int64) {
	if tensor != "" {
		l.out = append(l.out, Part{Name: name, Vector: tensor, Width: width, Rows: rows})
	}
}

// Parts lists what a block of hidden states of the given width reads, in the
// order of execution.
func (b *Block) Parts(width int64) []Part {
	l := &lister{width: width}
	l.norm("attn_norm", b.AttnNorm, width)
	for _, o := range b.mixers() {
		o.parts(l)
	}
	l.norm("attn_post_norm", b.AttnPostNorm, width)
	l.norm("ffn_norm", b.FFNNorm, width)
	for _, o := range present(b.FFN) {
		o.parts(l)
	}
	l.norm("dense_post_norm", b.DensePostNorm, width)
	l.norm("moe_norm", b.MoENorm, width)
	for _, o := range present(b.MoE) {
		o.parts(l)
	}
	l.norm("moe_post_norm", b.MoEPostNorm, width)
	l.norm("ffn_post_norm", b.FFNPostNorm, width)
	if b.PerLayer != nil {
		b.PerLayer.parts(l)
	}
	l.vector("out_scale", b.OutScale, 1)
	return l.out
}

// Ends lists what stands behind the blocks: the last norm and the head.
func (g *Graph) Ends() []Part {
	l := &lister{width: g.Width}
	l.norm("norm", g.Norm, g.Width)
	l.linear("head", &g.Head.Linear, g.Width, g.Vocab)
	return l.out
}

// Linears returns a block's matrices in the order of execution.
func (b *Block) Linears() []*Linear {
	var out []*Linear
	for _, p := range b.Parts(0) {
		if p.Linear != nil {
			out = append(out, p.Linear)
		}
	}
	return out
}

// Readers returns the linears of a graph, its head included, by the names of their
// weights.
func (g *Graph) Readers() map[string]*Linear {
	out := map[string]*Linear{}
	for i := range g.Blocks {
		for _, l := range g.Blocks[i].Linears() {
			out[l.Weight] = l
		}
	}
	for _, p := range append(g.Begins(), g.Ends()...) {
		if p.Linear != nil {
			out[p.Linear.Weight] = p.Linear
		}
	}
	return out
}
