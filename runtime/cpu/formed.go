package cpu

import (
	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/form"
	"github.com/nstf/nstf/formats/scheme"
	kernels "github.com/nstf/nstf/kernels/cpu"
)

// formed is what a matrix of a form other than dense has instead of weights.
// W is never made: its factors are multiplied one after the other.
type formed struct {
	// y = q x + a (b x); q may be nil. A matrix of the form shared has mix and
	// u instead of a and b: y = q x + sum over i of mix[i] (u_i x).
	q, a, b *matrix
	fold    int            // rows of a that are one of folded
	folded  *kernels.Coded // a for few tokens, or nil
	u       *matrix        // [B*N][K], of all matrices of a stack
	mix     []float32
	chain   *chain // of the form train; all else is nil then
}

// formedWork is the group in progress.
type formedWork struct {
	t      int
	group  []target // that have a form
	z      [maxGroup][]float32
	first  [2 * maxGroup]target // what reads the group's input
	starts [maxGroup + 1]int    // first part of the second step of each
	thin   thinWork
	chain  chainWork
}

func (w *formedWork) bytes() int64 {
	n := 4 * cap(w.thin.y)
	for i := range w.z {
		n += 4*cap(w.z[i]) + w.thin.acts[i].Bytes()
	}
	return int64(n)
}

// openForm opens a tensor by its factors.
func (l *loader) openForm(t formats.Tensor) *matrix {
	if err := form.Check(&t); err != nil {
		l.fail(err)
		return &matrix{}
	}
	n, k := t.Rows()
	m := &matrix{n: int(n), k: int(k), formed: &formed{}}
	f, _ := form.ByName(t.Form)
	switch f.ID {
	case form.LowRank, form.Corrected:
		l.openProduct(m, &t)
	case form.Train:
		l.openChain(m, &t)
	default: // a stack of matrices, which experts take one by one
		l.fail(formats.Unsupportedf("", t.Name, "the form %q here", t.Form))
	}
	return m
}

// factor opens a factor by its short name, nil where there is none.
func (l *loader) factor(t *formats.Tensor, name string) *matrix {
	f, ok := form.Factor(t, name)
	if !ok || l.err != nil {
		return nil
	}
	f.Name = t.Name + " (" + name + ")"
	return l.open(f)
}

func (l *loader) openProduct(m *matrix, t *formats.Tensor) {
	p := m.formed
	p.q, p.a, p.b = l.factor(t, "q"), l.factor(t, "a"), l.factor(t, "b")
	if l.err != nil || len(t.Shape) != 2 {
		return // a stack is cut before it is multiplied
	}
	p.foldRows()
	// Rows are looked up one at a time, by one goroutine.
	a, b := make([]float32, p.a.k), make([]float32, m.k)
	m.rows = func(dst []float32, row int) {
		clear(dst[:m.k])
		if p.q != nil {
			p.q.rows(dst, row)
		}
		p.a.rows(a, row)
		for i, v := range a {
			p.b.rows(b, i)
			l.set.Axpy(dst[:m.k], v, b)
		}
	}
}

// foldRows makes a's rows as long as kernels like them, where they are short.
func (p *formed) foldRows() {
	const long = 256
	if p.a.coded == nil || p.a.k >= long || long%p.a.k != 0 {
		return
	}
	p.fold = long / p.a.k
	if p.fold <= maxFold && thinRows%p.fold == 0 {
		p.folded = p.a.coded.Fold(p.fold)
	}
}

// formedExpert opens matrix i of a stack of experts.
func (l *loader) formedExpert(stack *formats.Tensor, i int64) *matrix {
	if stack.Form != "shared" {
		one, err := form.MatrixOf(*stack, i)
		if err != nil {
			l.fail(err)
			return &matrix{}
		}
		return l.open(one)
	}
	if l.err != nil {
		return &matrix{}
	}
	if err := form.Check(stack); err != nil {
		l.fail(err)
		return &matrix{}
	}
	n := stack.Shape[1]
	m := &matrix{n: int(n), k: int(stack.Shape[2]), formed: &formed{u: l.shared(stack), mix: l.mixOf(stack, i)}}
	if q, ok := form.Factor(stack, "q"); ok {
		one, err := scheme.Slice(q, i*n, n)
		if err != nil {
			l.fail(err)
			return m
		}
		m.formed.q = l.open(one)
	}
	return m
}

// shared opens the matrices that a stack shares, once for all experts.
func (l *loader) shared(stack *formats.Tensor) *matrix {
	if u, ok := l.bases[stack.Name]; ok {
		return u
	}
	if l.bases == nil {
		l.bases = map[string]*matrix{}
	}
	u := l.factor(stack, "u")
	l.bases[stack.Name] = u
	return u
}

func (l *loader) mixOf(stack *formats.Tensor, i int64) []float32 {
	c, _ := form.Factor(stack, "c")
	mix := make([]float32, c.Shape[1])
	if err := scheme.DecodeRows(mix, &c, i, 1); err != nil {
		l.fail(err)
	}
	return mix
}

// multiplyFormed computes a group in which some targets have a form: first
// everything that reads x, codes and thin factors alike, in one go, then what
// reads the short vectors between.
func (e *Engine) multiplyFormed(t int, x []float32, group []target) {
	w := &e.pass.formed
	w.t, w.group = t, w.group[:0]
	first := w.first[:0]
	for _, g := range group {
		p := g.w.formed
		if p == nil {
			first = append(first, g)
			continue
		}
		if p.chain != nil {
			e.multiplyChain(t, x, g)
			continue
		}
		if p.q != nil {
			first = append(first, target{p.q, g.y})
		}
		in := p.b
		if in == nil {
			in = p.u
		}
		i := len(w.group)
		w.z[i] = fit(w.z[i], t*in.n)
		first = append(first, target{in, w.z[i]})
		w.group = append(w.group, g)
	}
	for len(first) > 0 {
		n := min(len(first), maxGroup)
		e.multiplyDense(t, x, first[:n])
		first = first[n:]
	}
	e.multiplyThin()
}
