package cpu

import (
	"errors"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
	kernels "github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/runtime/device"
)

// A matrix is W[n][k] with its bias, opened for multiplication. Plain element
// types that a dot product reads directly have dtype and bytes (or floats),
// coded ones the kernels of their scheme where it has some; all have rows, the
// decoder of one row.
type matrix struct {
	linear  *model.Linear // nil for the embedding tables
	n, k    int
	dtype   tensor.DType
	bytes   []byte
	floats  []float32
	coded   *kernels.Coded // nil: multiply in float32
	rotated *rotated       // of the scheme tcq; nil elsewhere
	formed  *formed        // of a form other than dense; dtype, coded and rotated are then empty
	round   rounding       // of the input, as a peer has it; nil: none
	rows    kernels.RowDecoder
	dots    func(y, x []float32, n0, n1 int) // rows by one x as they are stored; nil: none
	bias    []float32                        // n numbers, or nil
}

// A norm is a normalisation with its weights in memory, offset added.
type norm struct {
	kind   model.NormKind
	weight []float32
	bias   []float32 // or nil
	eps    float32
}

// A block is a layer's weights beside its place in the graph.
type block struct {
	*model.Block
	attnNorm, attnPost, ffnNorm, ffnPost *norm
	qNorm, kNorm                         *norm
	q, k, v, o                           *matrix
	act                                  kernels.Activation
	gate, up, down                       *matrix // of the feed-forward layer
	router                               *matrix
	experts                              []expert
}

type expert struct{ gate, up, down *matrix }

// A loader opens tensors and remembers the first error.
type loader struct {
	set    *kernels.Set
	tensor func(name string) formats.Tensor
	memory *device.Memory
	exact  bool               // no integer kernels
	peer   bool               // nor they, but llama.cpp's rounding
	bases  map[string]*matrix // what stacks of experts share, by the stack's name
	err    error
}

// load opens all weights of the graph.
func (e *Engine) load(tensor func(string) formats.Tensor, exact bool) error {
	l := &loader{set: e.set, tensor: tensor, memory: &e.memory, exact: exact, peer: e.activations == ActivationsLlamaCPP}
	g := e.g
	e.table = l.matrix(g.Embed.Table, g.Vocab, g.Width)
	if g.Embed.Positions != "" {
		e.positions = l.matrix(g.Embed.Positions, g.Context, g.Width)
	}
	e.blocks = make([]block, len(g.Blocks))
	for i := range g.Blocks {
		l.block(&e.blocks[i], &g.Blocks[i], g.Width)
	}
	e.norm = l.norm(g.Norm, g.Width)
	if g.Tied() && l.err == nil {
		head := *e.table
		head.linear = &g.Head.Linear
		head.bias = l.vector(g.Head.Bias, g.Vocab, 0)
		e.head = &head
	} else {
		e.head = l.linear(&g.Head.Linear)
	}
	return l.err
}

func (l *loader) block(b *block, m *model.Block, width int64) {
	b.Block = m
	b.attnNorm, b.attnPost = l.norm(m.AttnNorm, width), l.norm(m.AttnPostNorm, width)
	b.ffnNorm, b.ffnPost = l.norm(m.FFNNorm, width), l.norm(m.FFNPostNorm, width)
	b.qNorm, b.kNorm = l.norm(m.Attn.QNorm, m.Attn.HeadDim), l.norm(m.Attn.KNorm, m.Attn.HeadDim)
	b.q, b.k = l.linear(&m.Attn.Q), l.linear(&m.Attn.K)
	b.v, b.o = l.linear(&m.Attn.V), l.linear(&m.Attn.O)
	if f := m.FFN; f != nil {
		b.act = l.activation(f.Act)
		if f.Gate != nil {
			b.gate = l.linear(f.Gate)
		}
		b.up, b.down = l.linear(&f.Up), l.linear(&f.Down)
	}
	if x := m.MoE; x != nil {
		b.act = l.activation(x.Act)
		b.router = l.linear(&x.Router)
		b.experts = make([]expert, x.Experts)
		for i := range b.experts {
			b.experts[i] = expert{l.expert(&x.Gate, x, i), l.expert(&x.Up, x, i), l.expert(&x.Down, x, i)}
		}
	}
}

func (l *loader) activation(a model.Activation) kernels.Activation {
	switch a {
	case model.SiLU:
		return kernels.SiLU
	case model.GELU:
		return kernels.GELU
	case model.GELUTanh:
		return kernels.GELUTanh
	case model.GELUQuick:
		return kernels.QuickGELU
	case model.ReLU:
		return kernels.ReLU
	}
	l.fail(formats.Unsupportedf("", "", "activation %q", a))
	return 0
}

func (l *loader) fail(err error) {
	if l.err == nil {
		l.err = err
	}
}

// linear opens a weight and its bias.
func (l *loader) linear(m *model.Linear) *matrix {
	w := l.matrix(m.Weight, m.Out, m.In)
	w.linear = m
	w.bias = l.vector(m.Bias, m.Out, 0)
	return w
}

// expert opens the rows of one expert out of stacked weights, so that they
// are mapped even where the stack as a whole lies in pieces.
func (l *loader) expert(m *model.Linear, x *model.MoE, i int) *matrix {
	stack, ok := l.get(m.Weight, x.Experts*m.Out, m.In)
	if !ok {
		return &matrix{}
	}
	var w *matrix
	if stack.Form != "" {
		w = l.formedExpert(&stack, int64(i))
		l.place(w, m, x, i)
		return w
	}
	part, err := scheme.Slice(stack, int64(i)*m.Out, m.Out)
	var unsupported *formats.UnsupportedError
	switch {
	case err == nil:
		w = l.open(part)
	case errors.As(err, &unsupported): // a scheme that cannot be cut there
		if w = l.open(stack); l.err != nil {
			return w
		}
		w = w.slice(i*int(m.Out), int(m.Out))
	default:
		l.fail(err)
		return &matrix{}
	}
	l.place(w, m, x, i)
	return w
}

// place gives expert i's weight its bias and its place in the graph.
func (l *loader) place(w *matrix, m *model.Linear, x *model.MoE, i int) {
	w.linear = m
	if bias := l.vector(m.Bias, x.Experts*m.Out, 0); bias != nil {
		w.bias = bias[i*int(m.Out) : (i+1)*int(m.Out)]
	}
}

// get returns a tensor of rows*k numbers, or notes what is wrong.
func (l *loader) get(name string, rows, k int64) (formats.Tensor, bool) {
	if l.err != nil {
		return formats.Tensor{}, false
	}
	t := l.tensor(name)
	n, last := t.Rows()
	if n != rows || last != k {
		l.fail(formats.Errorf("", name, "shape is %v, the graph says %d x %d", t.Shape, rows, k))
		return t, false
	}
	return t, true
}

func (l *loader) matrix(name string, rows, k int64) *matrix {
	t, ok := l.get(name, rows, k)
	if !ok {
		return &matrix{}
	}
	return l.open(t)
}

func (l *loader) open(t formats.Tensor) *matrix {
	if t.Form != "" {
		return l.openForm(t)
	}
	w, err := scheme.Open(&t)
	if err != nil {
		l.fail(err)
		return &matrix{}
	}
	l.count(&t)
	m := &matrix{n: int(w.N), k: int(w.K), rows: l.set.Rows(w), dots: l.set.Dots(w)}
	m.direct(w.Scheme.DType, w.Data(0))
	switch {
	case w.Scheme.Name == "tcq":
		m.useRotation(l.set, w, l.exact || l.peer)
	case l.peer:
		m.round = peerRounding(w.Scheme)
	case !l.exact:
		m.coded = l.set.Coded(w)
	}
	return m
}

// direct lets kernels read the weights of a plain element type where they lie.
func (m *matrix) direct(d tensor.DType, data []byte) {
	switch d {
	case tensor.F32:
		f, ok := tensor.Float32s(data)
		if !ok { // not aligned, or another order of bytes
			return
		}
		m.floats = f
		m.rows = func(dst []float32, row int) { copy(dst, f[row*m.k:(row+1)*m.k]) }
	case tensor.F16, tensor.BF16:
		m.bytes = data
	default:
		return
	}
	m.dtype = d
}

// slice returns rows [row, row+n).
func (m *matrix) slice(row, n int) *matrix {
	s, rows := *m, m.rows
	s.n, s.rotated = n, nil
	s.rows = func(dst []float32, r int) { rows(dst, row+r) }
	if dots := m.dots; dots != nil {
		s.dots = func(y, x []float32, n0, n1 int) { dots(y, x, row+n0, row+n1) }
	}
	if m.bytes != nil {
		size := len(m.bytes) / m.n
		s.bytes = m.bytes[row*size : (row+n)*size]
	}
	if m.coded != nil {
		s.coded = m.coded.Slice(row, n)
	}
	if m.floats != nil {
		s.floats = m.floats[row*m.k : (row+n)*m.k]
	}
	return &s
}

// vector reads all n numbers of a tensor and adds offset; "" is nil.
func (l *loader) vector(name string, n int64, offset float32) []float32 {
	if name == "" || l.err != nil {
		return nil
	}
	t := l.tensor(name)
	if rows, k := t.Rows(); rows*k != n {
		l.fail(formats.Errorf("", name, "shape is %v, the graph says %d", t.Shape, n))
		return nil
	}
	w, err := scheme.Open(&t)
	if err != nil {
		l.fail(err)
		return nil
	}
	v := make([]float32, w.N*w.K)
	w.DecodeRows(v, 0, w.N)
	for i := range v {
		v[i] += offset
	}
	l.memory.Resident += int64(len(v)) * 4
	return v
}

func (l *loader) norm(n *model.Norm, width int64) *norm {
	if n == nil {
		return nil
	}
	if n.Kind != model.RMSNorm && n.Kind != model.LayerNorm {
		l.fail(formats.Unsupportedf("", n.Weight, "normalisation %q", n.Kind))
	}
	if n.Kind == model.RMSNorm && n.Bias != "" {
		l.fail(formats.Unsupportedf("", n.Bias, "a bias on normalisation %q", n.Kind))
	}
	return &norm{kind: n.Kind, weight: l.vector(n.Weight, width, n.Offset), bias: l.vector(n.Bias, width, 0), eps: n.Eps}
}

// count adds a tensor to the memory it takes.
func (l *loader) count(t *formats.Tensor) {
	for _, p := range t.Parts {
		if _, ok := p.Data.Mapped(); ok {
			l.memory.Mapped += p.Data.Len()
		} else {
			l.memory.Resident += p.Data.Len()
		}
	}
}
