package cpu

import (
	"errors"
	"math"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
	kernels "github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/kernels/ops"
	"github.com/nstf/nstf/runtime/device"
	"github.com/nstf/nstf/runtime/load"
)

// A matrix is W[n][k] with its bias, opened for multiplication. Plain element
// types that a dot product reads directly have dtype and bytes (or floats),
// coded ones the kernels of their scheme where it has some; all have rows, the
// decoder of one row.
type matrix struct {
	linear  *graph.Linear // nil for the embedding table
	n, k    int
	dtype   tensor.DType
	bytes   []byte
	floats  []float32
	coded   *kernels.Coded // nil: multiply in float32
	rotated *rotated       // of the scheme tcq; nil elsewhere
	formed  *formed        // of a form other than dense; dtype, coded and rotated are then empty
	round   rounding       // of the input, as a peer has it; nil: none
	rows    kernels.RowDecoder
	dots    kernels.Dots // few rows by weights as they are stored; nil: none
	bias    []float32    // n numbers, or nil
	experts []*matrix    // of a stack; all else is empty then
}

// A norm is a normalisation with its weights in memory, offset added.
type norm struct {
	kind   graph.NormKind
	weight []float32
	bias   []float32 // or nil
	eps    float32
	heads  []*norm // of one with weights for each head, which these are; nil elsewhere
}

// byHead gives each head of d numbers its own weights.
func (n *norm) byHead(d int) {
	for at := 0; at < len(n.weight); at += d {
		head := &norm{kind: n.kind, weight: n.weight[at : at+d], eps: n.eps}
		if n.bias != nil {
			head.bias = n.bias[at : at+d]
		}
		n.heads = append(n.heads, head)
	}
}

// A block is a layer's weights beside its place in the graph.
type block struct {
	*graph.Block
	attnNorm, attnPost, ffnNorm, ffnPost *norm
	densePost, moeNorm, moePost          *norm
	qNorm, kNorm, vNorm                  *norm
	q, k, v, o                           *matrix   // k and v may be nil
	outGate                              *matrix   // of what attention gives, or nil
	kv                                   int       // layer of the cache that has its keys and values
	sinks                                []float32 // [Heads], or nil
	delta                                *deltaNet // in place of attention, or nil; so the next two
	mamba                                *mamba
	shortConv                            *shortConv
	latent                               *latentNet // in place of attention too
	attends                              attending
	followed                             bool // by a policy of attention, where there is one
	ffn                                  layer
	routerNorm                           *norm
	router, sharedGate                   *matrix
	latentDown, latentUp                 *matrix   // of a mixture, or nil
	selectBias, expertScale              []float32 // [Experts], or nil
	perLayer                             perLayerInput
	outScale                             []float32 // [1], or nil
	experts                              []layer
	shared                               layer // without matrices where there is none
}

// A perLayerInput is a block's, without matrices where it has none.
type perLayerInput struct {
	act        ops.Activation
	gate, down *matrix
	norm       *norm
}

// A layer is a feed-forward layer, or one expert; gate may be nil.
type layer struct {
	act            ops.Activation
	gating         ops.Gating
	xielu          *ops.XIELU // in place of act, or nil
	gate, up, down *matrix
}

// A loader opens tensors: it is a load.Backend.
type loader struct {
	set    *kernels.Set
	memory *device.Memory
	exact  bool               // no integer kernels
	peer   bool               // nor they, but llama.cpp's rounding
	bases  map[string]*matrix // what stacks of experts share, by the stack's name
	err    error
}

func (e *Engine) loader(exact bool) *loader {
	return &loader{set: e.set, memory: &e.memory, exact: exact, peer: e.activations == ActivationsLlamaCPP}
}

// load opens the weights of a span of the graph.
func (e *Engine) load(span device.Span, tensor func(string) formats.Tensor, exact bool) error {
	g := e.g
	w, err := load.Open(g, span, nil, tensor, e.loader(exact))
	if err != nil {
		return err
	}
	e.table, e.positions = w.Table, w.Positions
	e.blocks = make([]block, span.Hi-span.Lo)
	at := 0 // in what a sequence remembers
	for i := range e.blocks {
		m := &g.Blocks[span.Lo+i]
		e.blocks[i].open(w, m)
		e.blocks[i].remember(w, at)
		at += int(m.Memory())
	}
	e.norm, e.head = w.Norm(g.Norm), w.Linear(&g.Head.Linear)
	if p := g.PerLayer; p != nil {
		e.perLayer = perLayer{w.PerLayer, w.Linear(&p.Projection), w.Norm(p.Norm)}
	}
	return nil
}

// remember opens a recurrent mixer, whose numbers in a sequence's memory begin at the
// given one.
func (b *block) remember(w *load.Weights[*matrix, *norm, []float32], at int) {
	switch {
	case b.Delta != nil:
		b.delta = newDeltaNet(w, b.Delta, at)
	case b.Mamba != nil:
		b.mamba = newMamba(w, b.Mamba, at)
	case b.ShortConv != nil:
		b.shortConv = newShortConv(w, b.ShortConv, at)
	}
}

func (b *block) open(w *load.Weights[*matrix, *norm, []float32], m *graph.Block) {
	b.Block, b.attends, b.followed = m, newAttending(m), device.Followed(m)
	b.attnNorm, b.attnPost, b.ffnNorm, b.ffnPost = w.Norm(m.AttnNorm), w.Norm(m.AttnPostNorm), w.Norm(m.FFNNorm), w.Norm(m.FFNPostNorm)
	b.densePost, b.moeNorm, b.moePost = w.Norm(m.DensePostNorm), w.Norm(m.MoENorm), w.Norm(m.MoEPostNorm)
	if a := m.Attn; a != nil {
		b.qNorm, b.kNorm, b.vNorm = w.Norm(a.QNorm), w.Norm(a.KNorm), w.Norm(a.VNorm)
		for _, n := range []*norm{b.qNorm, b.kNorm} {
			if a.HeadNorms && n != nil {
				n.byHead(int(a.HeadDim))
			}
		}
		b.q, b.k, b.v, b.o = w.Linear(&a.Q), w.Linear(a.K), w.Linear(a.V), w.Linear(&a.O)
		b.outGate, b.sinks = w.Linear(a.Gate), w.Vector(a.Sinks)
	}
	b.ffn.open(w, m.FFN)
	if a := m.Latent; a != nil {
		b.latent, b.o = newLatent(w, a), w.Linear(&a.O)
	}
	if x := m.MoE; x != nil {
		b.router, b.sharedGate, b.selectBias = w.Linear(&x.Router), w.Linear(x.SharedGate), w.Vector(x.SelectBias)
		b.routerNorm, b.expertScale = w.Norm(x.RouterNorm), w.Vector(x.ExpertScale)
		b.latentDown, b.latentUp = w.Linear(x.LatentDown), w.Linear(x.LatentUp)
		b.shared.open(w, x.Shared)
		b.openExperts(w, m)
	}
	if p := m.PerLayer; p != nil {
		b.perLayer = perLayerInput{load.Activation(p.Act), w.Linear(&p.Gate), w.Linear(&p.Down), w.Norm(p.Norm)}
	}
	b.outScale = w.Vector(m.OutScale)
}

// beside is the score that counts in the denominator of a head's sums alone, whichever positions are read.
func (b *block) beside(head int) float32 {
	if b.sinks == nil {
		return float32(math.Inf(-1))
	}
	return b.sinks[head]
}

// openExperts finds the routed experts of a mixture.
func (b *block) openExperts(w *load.Weights[*matrix, *norm, []float32], m *graph.Block) {
	b.Block = m
	x := m.MoE
	gate, up, down := w.Linear(x.Gate), w.Linear(&x.Up), w.Linear(&x.Down)
	b.experts = make([]layer, x.Experts)
	for i := range b.experts {
		b.experts[i] = layer{load.Activation(x.Act), load.Gating(x.Gating), nil, gate.expert(i), up.expert(i), down.expert(i)}
	}
}

// open finds a layer's matrices; nil is none.
func (l *layer) open(w *load.Weights[*matrix, *norm, []float32], f *graph.FFN) {
	if f != nil {
		*l = layer{load.Activation(f.Act), load.Gating(f.Gating), load.XIELU(f.XIELU), w.Linear(f.Gate), w.Linear(&f.Up), w.Linear(&f.Down)}
	}
}

// expert returns matrix i of a stack.
func (m *matrix) expert(i int) *matrix {
	if m == nil {
		return nil
	}
	return m.experts[i]
}

func (l *loader) fail(err error) {
	if l.err == nil {
		l.err = err
	}
}

// Table implements load.Backend.
func (l *loader) Table(t formats.Tensor) (*matrix, error) { return l.open(t), l.err }

// Lookup implements load.Backend.
func (l *loader) Lookup(t formats.Tensor) (*matrix, error) { return l.Table(t) }

// Tied implements load.Backend.
func (l *loader) Tied(table *matrix, m *graph.Linear, bias []float32) (*matrix, error) {
	head := *table
	head.linear, head.bias = m, bias
	return &head, nil
}

// Matrix implements load.Backend.
func (l *loader) Matrix(t formats.Tensor, m *graph.Linear, experts int64, bias []float32) (*matrix, error) {
	if experts == 0 {
		w := l.open(t)
		w.linear, w.bias = m, bias
		return w, l.err
	}
	stack := &matrix{experts: make([]*matrix, experts)}
	for i := range stack.experts {
		w := l.expert(t, m, i)
		w.linear = m
		if bias != nil {
			w.bias = bias[i*int(m.Out) : (i+1)*int(m.Out)]
		}
		stack.experts[i] = w
	}
	return stack, l.err
}

// expert opens the rows of one expert out of stacked weights, so that they
// are mapped even where the stack as a whole lies in pieces.
func (l *loader) expert(stack formats.Tensor, m *graph.Linear, i int) *matrix {
	if stack.Form != "" {
		return l.formedExpert(&stack, int64(i))
	}
	part, err := scheme.Slice(stack, int64(i)*m.Out, m.Out)
	var unsupported *formats.UnsupportedError
	switch {
	case err == nil:
		return l.open(part)
	case errors.As(err, &unsupported): // a scheme that cannot be cut there
		w := l.open(stack)
		if l.err != nil {
			return w
		}
		return w.slice(i*int(m.Out), int(m.Out))
	}
	l.fail(err)
	return &matrix{}
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
		s.dots = dots.Rows(row)
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

// Vector implements load.Backend.
func (l *loader) Vector(t formats.Tensor, offset, factor float32) ([]float32, error) {
	w, err := scheme.Open(&t)
	if err != nil {
		return nil, err
	}
	v := make([]float32, w.N*w.K)
	w.DecodeRows(v, 0, w.N)
	for i := range v {
		v[i] = (v[i] + offset) * factor
	}
	l.memory.Resident += int64(len(v)) * 4
	return v, nil
}

// Constant implements load.Backend.
func (l *loader) Constant(n int64, value float32) ([]float32, error) {
	v := make([]float32, n)
	for i := range v {
		v[i] = value
	}
	l.memory.Resident += n * 4
	return v, nil
}

// Norm implements load.Backend.
func (l *loader) Norm(n *graph.Norm, weight, bias []float32) (*norm, error) {
	return &norm{kind: n.Kind, weight: weight, bias: bias, eps: n.Eps}, nil
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
