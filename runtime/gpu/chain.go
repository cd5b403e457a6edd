package gpu

import (
	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/form"
	"github.com/nstf/nstf/kernels/hip"
)

// A chain is a tensor train: docs/forms/train.md has its formula. Rows of its cores
// are decoded to the work space, as many as fit there, whenever they are needed.
type chain struct {
	cores []form.TrainCore
	rows  []*matrix // the cores' rows, [RankIn][Columns][RankOut] each
}

// chain places a tensor train.
func (l *layout) chain(m *formed, t *formats.Tensor) {
	m.chain = &chain{cores: form.ParseTrain(t)}
	for i := range t.Factors {
		m.chain.rows = append(m.chain.rows, l.factor(t, t.Factors[i].Name, 0))
	}
}

const (
	chainFloats = 4 << 20 // of each buffer, where a token or a row does not take more
	gridRows    = 65535   // rows that one launch looks up
)

// size is the numbers of a row of core i.
func (c *chain) size(i int) int { return c.rows[i].K }

// decoded returns how many rows of core i are decoded at once.
func (c *chain) decoded(i int) int {
	return max(min(chainFloats/c.size(i), int(c.cores[i].Rows), gridRows), 1)
}

// lookupSize is what a token takes of each buffer: decoded rows, and the product
// up to a core.
func (c *chain) lookupSize() (most int) {
	columns := 1
	for i, core := range c.cores {
		columns *= int(core.Columns)
		most = max(most, c.size(i), columns*int(core.RankOut))
	}
	return most
}

// productSize is what a token takes of what a core leaves of it.
func (c *chain) productSize() (most int) {
	parents, rest := 1, 1
	for _, core := range c.cores {
		rest *= int(core.Columns)
	}
	for _, core := range c.cores[:len(c.cores)-1] {
		parents, rest = parents*int(core.Rows), rest/int(core.Columns)
		most = max(most, parents*int(core.RankOut)*rest)
	}
	return most
}

// together is how many of t tokens are worked on at once, each taking so much.
func together(t, size int) int { return max(min(chainFloats/size, t), 1) }

// space is the numbers of the buffers for t tokens: decoded rows, and each of the
// two between cores.
func (c *chain) space(t int) (decoded, left int) {
	n, size := together(t, c.lookupSize()), c.lookupSize()
	decoded, left = n*size, n*size
	for i := range c.cores {
		decoded = max(decoded, c.decoded(i)*c.size(i))
	}
	return decoded, max(left, together(t, c.productSize())*c.productSize())
}

// lookupChain is embed for a tensor train.
func (w *walk) lookupChain(c *chain, op *hip.Embed) {
	s, k := w.s, op.Table.K
	rows := make([]int, len(c.cores))
	for i, core := range c.cores {
		rows[i] = int(core.Rows)
	}
	w.do(&hip.Digits{T: op.T, Rows: rows, Token: op.Token, Digits: s.digits})
	step := together(op.T, c.lookupSize())
	for from := 0; from < op.T; from += step {
		n := min(step, op.T-from)
		decode := func(i int, to hip.Address) {
			w.do(&hip.Embed{T: n, Table: c.rows[i].Weight, Token: at(s.digits, i*op.T+from, 1), Scale: 1, Y: to})
		}
		before, next := s.left[0], s.left[1]
		decode(0, before)
		columns := int(c.cores[0].Columns)
		for i, core := range c.cores {
			if i == 0 {
				continue
			}
			decode(i, s.decoded)
			o := &hip.Contract{T: n, I: columns, L: 1, Q: int(core.RankIn), V: 1, S: int(core.Columns * core.RankOut),
				A: before, B: s.decoded, C: next, Rounded: true, Scale: 1}
			if i == len(c.cores)-1 {
				o.C, o.Scale, o.Positions, o.Position = at(op.Y, from, k), op.Scale, op.Positions, at(op.Position, from, 1)
			}
			w.do(o)
			before, next = next, before
			columns *= int(core.Columns)
		}
	}
}

// lookupProduct is embed for a product of two factors, with codes or not.
func (w *walk) lookupProduct(f *formed, op *hip.Embed) {
	s := w.s
	o := &hip.Contract{T: op.T, I: 1, L: 1, Q: f.b.N, V: 1, S: op.Table.K, A: s.left[0], B: s.decoded, Same: true, C: op.Y,
		Rounded: true, Scale: op.Scale, Positions: op.Positions, Position: op.Position}
	if f.q != nil {
		w.do(&hip.Embed{T: op.T, Table: f.q.Weight, Token: op.Token, Scale: 1, Y: op.Y})
		o.Start = op.Y
	}
	w.do(&hip.Embed{T: op.T, Table: f.a.Weight, Token: op.Token, Scale: 1, Y: s.left[0]})
	w.do(&hip.Embed{T: f.b.N, Table: f.b.Weight, Token: s.counted, Scale: 1, Y: s.decoded})
	w.do(o)
}

// contract multiplies t rows of x with a tensor train: digit by digit of the columns,
// and for each row of a core.
func (w *walk) contract(t int, x hip.Address, g target) {
	s, c := w.s, g.w.formed.chain
	step := together(t, c.productSize())
	for from := 0; from < t; from += step {
		in, parents, rest := at(x, from, g.w.K), 1, g.w.K
		for i, core := range c.cores {
			rest /= int(core.Columns)
			o := hip.Contract{T: min(step, t-from), I: parents, L: rest, Q: int(core.RankIn * core.Columns), S: int(core.RankOut),
				A: in, B: s.decoded, Same: true, Of: int(core.Rows), C: s.left[i%2]}
			if i == len(c.cores)-1 {
				o.C, o.Start, o.Limit, o.Bias = at(g.y, from, g.w.N), at(g.residual, from, g.w.N), g.w.N, g.w.bias
			}
			for v := 0; v < o.Of; v += c.decoded(i) {
				part := o
				part.First, part.V = v, min(c.decoded(i), o.Of-v)
				w.do(&hip.Embed{T: part.V, Table: c.rows[i].Weight, Token: at(s.counted, v, 1), Scale: 1, Y: s.decoded})
				w.do(&part)
			}
			in, parents = o.C, parents*o.Of
		}
	}
}
