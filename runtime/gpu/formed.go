package gpu

import (
	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/form"
	"github.com/nstf/nstf/kernels/hip"
)

// formed is what a matrix of a form other than dense has instead of weights: its
// factors, which are multiplied one after the other. W is never made.
type formed struct {
	// y = q x + a (b x); q may be nil. Of the form shared: y = q x + the sum over i
	// of mix[expert][i] (u_i x), u being all shared matrices as one of B*N rows.
	q, a, b *matrix
	u       *matrix
	mix     hip.Address // f32 [experts][B]
	shared  int         // B
	// fused says that few rows are corrected where they are multiplied with codes, B's
	// products being made before.
	fused bool
	chain *chain // of the form train; all else is nil then
}

// form places the factors of a tensor, of a stack for so many experts or of one
// matrix.
func (l *layout) form(t *formats.Tensor, experts int64) *matrix {
	if err := form.Check(t); err != nil {
		l.fail(err)
		return &matrix{}
	}
	n, k := t.Rows()
	m := &matrix{Weight: hip.Weight{N: int(n), K: int(k)}, formed: &formed{}}
	f, _ := form.ByName(t.Form)
	stacked := len(t.Shape) == 3 && t.Shape[0] == experts
	switch {
	case f.ID == form.Shared && stacked:
		l.shared(m.formed, t, experts)
	case f.ID == form.Train && experts == 0:
		l.chain(m.formed, t)
	case (f.ID == form.LowRank || f.ID == form.Corrected) && (stacked || experts == 0 && len(t.Shape) == 2):
		l.product(m.formed, t, experts)
	default:
		l.fail(formats.Unsupportedf("", t.Name, "the form %q here", t.Form))
	}
	return m
}

func (l *layout) product(f *formed, t *formats.Tensor, experts int64) {
	f.q, f.a, f.b = l.factor(t, "q", experts), l.factor(t, "a", experts), l.factor(t, "b", experts)
	if l.err != nil {
		return
	}
	f.fused = f.q != nil && experts == 0 && !f.q.Format.Rotated() && f.a.Format.Corrects() && f.a.K <= thinColumns
	// Other codes of the same format share a launch with B, and what they round.
	f.a.floats = !f.a.Format.Rotated() && f.a.K <= thinColumns
	f.b.floats = !f.b.Format.Rotated() && f.b.N <= thinColumns && (f.q == nil || f.fused || f.q.Format != f.b.Format)
}

// factor places a factor by its short name, nil where there is none.
func (l *layout) factor(t *formats.Tensor, name string, experts int64) *matrix {
	f, ok := form.Factor(t, name)
	if !ok || l.err != nil {
		return nil
	}
	f.Name = t.Name + " (" + name + ")"
	m := l.dense(f)
	m.N, m.experts = m.N/int(max(experts, 1)), int(experts)
	return m
}

func (l *layout) shared(m *formed, t *formats.Tensor, experts int64) {
	c, _ := form.Factor(t, "c")
	c.Name = t.Name + " (c)"
	m.shared = int(c.Shape[1])
	m.mix = l.numbers(c, 0, 1)
	m.u, m.q = l.factor(t, "u", 0), l.factor(t, "q", experts)
}

// withBias returns a matrix that adds a bias to its products.
func (m *matrix) withBias(bias hip.Address) *matrix {
	c := *m
	c.bias = bias
	if m.formed == nil {
		return &c
	}
	f := *m.formed
	c.formed = &f
	for _, first := range []**matrix{&f.q, &f.a} { // what writes the outputs
		if *first != nil {
			*first = (*first).withBias(bias)
			break
		}
	}
	return &c
}

// readers are the matrices that read the input of a group: factors, where they have
// a form, but for a tensor train, which no other kernel multiplies.
func readers(group ...*matrix) []*matrix {
	var all []*matrix
	for _, m := range group {
		f := m.formed
		if f == nil || f.chain != nil {
			all = append(all, m)
			continue
		}
		for _, first := range []*matrix{f.q, f.b, f.u} {
			if first != nil {
				all = append(all, first)
			}
		}
	}
	return all
}

// A thinTarget is the second step of a product: y = A z + residual + A's bias.
type thinTarget struct {
	target
	z hip.Address // [T][R]
	// Where A is of rotated codewords and rows are few: the factor whose products z
	// are before its output side, and those of the codes, nil where there is none.
	from, codes *matrix
	sums        hip.Address // [T][N] of codes
}

// formedTargets computes a group in which some targets have a form: first all that
// reads the group's input, codes and thin factors alike, then what reads the short
// vectors between.
func (w *walk) formedTargets(t int, in source, targets []target) {
	first, second := w.divided(t, in, targets)
	w.firstStep(t, in, first)
	w.secondStep(t, second)
}

// divided divides the targets into the two steps. Tensor trains are done at once.
func (w *walk) divided(t int, in source, targets []target) (first []target, second []thinTarget) {
	z := w.s.thin
	var thin []target
	for _, g := range targets {
		f := g.w.formed
		switch {
		case f == nil:
			first = append(first, g)
		case f.chain != nil:
			w.contract(t, in.x, g)
		default:
			codes, inner, outer := w.steps(t, g, z)
			if codes.w != nil {
				first = append(first, codes)
			}
			if thin = append(thin, inner); codes.a == nil {
				second = append(second, outer)
			}
			z += hip.Address(4 * padded(t*f.b.N))
		}
	}
	return append(thin, first...), second
}

// steps divides one product: into its codes, if any, the factor that reads the input,
// and the one behind it.
func (w *walk) steps(t int, g target, z hip.Address) (codes, inner target, outer thinTarget) {
	f := g.w.formed
	turned := w.turnsThin(f.a)
	inner = target{w: f.b, y: z, raw: turned && f.b.Format.Rotated()}
	outer = thinTarget{target: g, z: z}
	outer.w = f.a
	if inner.raw {
		outer.from = f.b
	}
	if f.q == nil {
		return codes, inner, outer
	}
	codes = target{w: f.q, y: g.y, residual: g.residual}
	if f.fused && !w.many {
		codes.a, codes.z = f.a, z
		return codes, inner, outer
	}
	if !turned || !f.q.Format.Rotated() {
		outer.residual = g.y
		return codes, inner, outer
	}
	// Both are turned back by the second step, which adds the codes' bias too.
	if codes.raw = true; g.y == g.residual {
		codes.y = w.s.sums
	}
	outer.codes, outer.sums = f.q, codes.y
	return codes, inner, outer
}

// padded is the numbers of a vector between two factors, with what follows aligned.
func padded(n int) int { return (n + align/4 - 1) / (align / 4) * (align / 4) }

// firstStep computes targets of one matrix each. Few rows are an operation for each
// format, since each is tuned by itself; rotated ones share their input. Thin factors
// that are multiplied in float32 are apart from codes.
func (w *walk) firstStep(t int, in source, targets []target) {
	for len(targets) > 0 {
		var group, rest []target
		for _, g := range targets {
			one, f := targets[0].w, g.w.Format
			if w.many || f == one.Format && g.w.floats == one.floats || f.Rotated() && one.Format.Rotated() {
				group = append(group, g)
			} else {
				rest = append(rest, g)
			}
		}
		w.linear(t, in, group...)
		targets = rest
	}
}

// thinColumns is the most columns of what hip.Thin and hip.ThinTCQ multiply with:
// longer rows are not thin.
const thinColumns = 512

// isThin reports whether the outer factor is multiplied as such, row by row.
func (w *walk) isThin(m *matrix) bool { return !w.many && m.K <= thinColumns && m.experts == 0 }

// turnsThin reports whether that is by hip.ThinTCQ.
func (w *walk) turnsThin(m *matrix) bool { return w.isThin(m) && m.Format.Rotated() }

// secondStep adds the products of the outer factors.
func (w *walk) secondStep(t int, targets []thinTarget) {
	op, rotated := &hip.Thin{T: t}, &hip.ThinTCQ{T: t}
	for _, g := range targets {
		switch {
		case w.turnsThin(g.w):
			rotated.Products = append(rotated.Products, g.rotated())
		case w.isThin(g.w):
			op.Products = append(op.Products, g.thin())
		default:
			w.linear(t, source{x: g.z}, g.target)
		}
	}
	if len(op.Products) > 0 {
		w.do(op)
	}
	if len(rotated.Products) > 0 {
		w.do(rotated)
	}
}

// thin is the second step as hip.Thin has it.
func (g *thinTarget) thin() hip.ThinProduct {
	return hip.ThinProduct{X: g.z, Product: hip.Product{W: g.w.Weight, Y: g.y, Bias: g.w.bias, Residual: g.residual}}
}

// rotated is the second step as hip.ThinTCQ has it.
func (g *thinTarget) rotated() hip.ThinRotated {
	p := hip.ThinRotated{X: g.z, Product: hip.Product{W: g.w.Weight, Y: g.y, Bias: g.w.bias, Residual: g.residual}}
	if g.from != nil {
		p.XFrom = g.from.Weight
	}
	if g.codes != nil {
		p.Codes, p.From, p.Bias = g.sums, g.codes.Weight, g.codes.bias
	}
	return p
}
