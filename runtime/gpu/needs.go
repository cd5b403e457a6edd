package gpu

import "github.com/nstf/nstf/runtime/gpu/driver"

// needs is what matrices of other forms than dense want of the work space.
type needs struct {
	thin, thinSlots int // numbers between factors, of a row and of a slot
	rank            int // most of one matrix
	sums, sumsSlots int // most outputs that rotated codewords add to, of a row and of a slot
	headSums        int // the same of the head, which multiplies fewer rows at once
	chains          []*chain
	lookup          *formed // a table that is a product of two factors, nil for none
}

// measure finds what the work space has to hold beside what follows from the graph.
func (s *shape) measure(l *layout, w *weights) {
	for _, m := range l.matrices {
		s.rotated = s.rotated || m.Format.Rotated()
	}
	s.needs = needs{}
	s.group(w.table)
	s.sums = 0 // its rows are looked up
	if w.table != nil && w.table.formed != nil && w.table.formed.a != nil {
		s.lookup = w.table.formed
	}
	for i := range w.blocks {
		b := &w.blocks[i]
		s.group(b.projections()...)
		s.group(b.o)
		if n := &b.delta; n.za != nil {
			s.group(n.z)
		}
		if n := &b.delta; n.alphaA != nil {
			s.group(n.alpha)
		}
		if n := &b.latent; n.qa != nil {
			s.group(n.q)
		}
		s.stack(b.latent.kb, false)
		s.stack(b.latent.vb, false)
		s.group(b.perLayer.gate)
		s.group(b.perLayer.down)
		if b.MoE == nil {
			s.layer(&b.layer)
			continue
		}
		s.group(b.router, b.sharedGate)
		s.layer(&b.dense)
		s.layer(&b.shared)
		s.stack(b.gate, !b.MoE.WeighInput)
		s.stack(b.up, !b.MoE.WeighInput)
		s.stack(b.down, false)
	}
	s.group(w.perLayer.projection)
	blocks := s.sums
	s.sums = 0
	s.group(w.head)
	s.headSums, s.sums = s.sums, blocks
}

// layer counts one layer's matrices, nil ones for none.
func (n *needs) layer(l *layer) {
	n.group(l.gate, l.up)
	n.group(l.down)
}

// group counts matrices that are multiplied together.
func (n *needs) group(ms ...*matrix) {
	thin := 0
	for _, m := range ms {
		if m == nil || m.formed == nil {
			continue
		}
		f := m.formed
		if f.chain != nil {
			n.chains = append(n.chains, f.chain)
			continue
		}
		thin += f.b.N
		n.rank = max(n.rank, f.b.N)
		if f.a.Format.Rotated() || f.q != nil && f.q.Format.Rotated() {
			n.sums = max(n.sums, f.a.N)
		}
	}
	n.thin = max(n.thin, thin)
}

// stack counts a stack of experts, whose slots share the rows that they read, or do
// not.
func (n *needs) stack(m *matrix, shares bool) {
	if m == nil {
		return
	}
	switch f := m.formed; {
	case f == nil:
	case f.u != nil && shares:
		n.thin = max(n.thin, f.u.N)
	case f.u != nil:
		n.thinSlots = max(n.thinSlots, f.u.N)
	default:
		n.thinSlots, n.rank = max(n.thinSlots, f.b.N), max(n.rank, f.b.N)
		if f.a.Format.Rotated() {
			n.sumsSlots = max(n.sumsSlots, f.a.N)
		}
	}
}

// most matrices of a group, whose vectors are aligned each.
const mostThin = 4

// placeForms lays out the work space of forms, for t rows and so many slots.
func (s *scratch) placeForms(n *needs, t, slots int, a *arena) {
	if n.thin+n.thinSlots > 0 {
		s.thin = a.floats(max(t*n.thin+mostThin*align/4, slots*n.thinSlots))
	}
	decoded, left, counted := 0, 0, 0
	for _, c := range n.chains {
		d, l := c.space(t)
		decoded, left = max(decoded, d), max(left, l)
		for i := range c.cores {
			counted = max(counted, int(c.cores[i].Rows))
		}
	}
	if f := n.lookup; f != nil {
		decoded, left, counted = max(decoded, f.b.N*f.b.K), max(left, t*f.b.N), max(counted, f.b.N)
	}
	if s.countedTo = counted; counted == 0 {
		return
	}
	s.decoded, s.left[0], s.left[1] = a.floats(decoded), a.floats(left), a.floats(left)
	s.digits, s.counted = a.ints(4*t), a.ints(counted)
}

// sendCounted fills s.counted.
func (e *Engine) sendCounted() error {
	if e.s.countedTo == 0 {
		return nil
	}
	words := make([]int32, e.s.countedTo)
	for i := range words {
		words[i] = int32(i)
	}
	return upload(e, driver.Buffer{Address: e.s.counted, Size: 4 * int64(len(words))}, words)
}
