// Package load finds the weights of a graph for a backend: it walks the parts
// that the graph's operations list, holds every stored tensor to the shape
// that its place asks for, and has the backend open it. A backend then takes
// them by the graph's own pointers.
//
// Errors name the tensor, and the first one ends the walk. Nothing is read
// here.
//
// Compatibility: experimental.
package load

import (
	"slices"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/kernels/ops"
	"github.com/nstf/nstf/runtime/device"
)

// A Backend opens stored tensors: as matrices M, norms N and vectors V. The
// zero V is no vector.
type Backend[M, N, V any] interface {
	// Table opens the embedding table [Vocab][D], whose rows are looked up.
	Table(t formats.Tensor) (M, error)
	// Tied makes a head of the table.
	Tied(table M, l *graph.Linear, bias V) (M, error)
	// Matrix opens W[Out][In], or the stack of so many experts' (0: it is none).
	Matrix(t formats.Tensor, l *graph.Linear, experts int64, bias V) (M, error)
	// Lookup opens a table whose rows are looked up as tokens come, and which is far
	// larger than all of them: its bytes stay where they lie.
	Lookup(t formats.Tensor) (M, error)
	// Vector opens a tensor as numbers in float32: (v+offset)*factor of each.
	Vector(t formats.Tensor, offset, factor float32) (V, error)
	// Constant is a vector of n equal numbers.
	Constant(n int64, value float32) (V, error)
	Norm(n *graph.Norm, weight, bias V) (N, error)
}

// Weights are a graph's, as a backend has them.
type Weights[M, N, V any] struct {
	Table     M // zero where the span neither embeds nor has a tied head, nor reads per-layer embeddings
	Positions V // [Context][D] of learned positions
	PerLayer  M // [Vocab][blocks*Width], zero where the span reads none
	linears   map[*graph.Linear]M
	norms     map[*graph.Norm]N
	vectors   map[string]V
}

// Linear returns a matrix, the zero M for nil.
func (w *Weights[M, N, V]) Linear(l *graph.Linear) M { return w.linears[l] }

// Norm returns a norm, the zero N for nil.
func (w *Weights[M, N, V]) Norm(n *graph.Norm) N { return w.norms[n] }

// Vector returns a vector by its tensor's name, the zero V for "".
func (w *Weights[M, N, V]) Vector(name string) V { return w.vectors[name] }

// Open opens the weights of a span of a checked graph, without the routed experts of blocks
// that have them apart. tensor returns a stored tensor by a name of [graph.Graph.Weights];
// those of other spans are not asked for.
func Open[M, N, V any](g *graph.Graph, span device.Span, apart device.Blocks, tensor func(name string) formats.Tensor, b Backend[M, N, V]) (*Weights[M, N, V], error) {
	l := newLoader(tensor, b)
	w := l.Weights
	perLayer := ReadsPerLayer(g, span)
	if span.Embed || span.Head && g.Tied() || perLayer {
		if t, ok := l.get(g.Embed.Table, g.Vocab, g.Width); ok {
			w.Table, l.err = b.Table(t)
		}
	}
	if span.Embed {
		w.Positions = l.vector(g.Embed.Positions, 0, 1, g.Context, g.Width)
	}
	if perLayer {
		if t, ok := l.get(g.PerLayer.Table, g.Vocab, int64(len(g.Blocks))*g.PerLayer.Width); ok {
			w.PerLayer, l.err = l.b.Lookup(t)
		}
		l.parts(g.Begins())
	}
	for i := span.Lo; i < span.Hi; i++ {
		rest, _ := Parts(g, i, apart[i])
		l.parts(rest)
	}
	if span.Head {
		l.head(g)
	}
	return w, l.err
}

// Experts opens the routed experts of blocks alone.
func Experts[M, N, V any](g *graph.Graph, of device.Blocks, tensor func(name string) formats.Tensor, b Backend[M, N, V]) (*Weights[M, N, V], error) {
	l := newLoader(tensor, b)
	for i := range g.Blocks {
		if of[i] {
			_, experts := Parts(g, i, true)
			l.parts(experts)
		}
	}
	return l.Weights, l.err
}

// Parts lists what a block of a graph reads, with its routed experts apart where that is asked
// for.
func Parts(g *graph.Graph, block int, apart bool) (rest, experts []graph.Part) {
	b := &g.Blocks[block]
	for _, p := range b.Parts(g.Width) {
		if apart && b.MoE != nil && b.MoE.Routed(p.Linear) {
			experts = append(experts, p)
		} else {
			rest = append(rest, p)
		}
	}
	return rest, experts
}

// ReadsPerLayer reports whether blocks of a span read per-layer embeddings.
func ReadsPerLayer(g *graph.Graph, span device.Span) bool {
	return slices.ContainsFunc(g.Blocks[span.Lo:span.Hi], func(b graph.Block) bool { return b.PerLayer != nil })
}

// A loader remembers the first error.
type loader[M, N, V any] struct {
	*Weights[M, N, V]
	b      Backend[M, N, V]
	tensor func(name string) formats.Tensor
	err    error
}

func newLoader[M, N, V any](tensor func(name string) formats.Tensor, b Backend[M, N, V]) *loader[M, N, V] {
	w := &Weights[M, N, V]{linears: map[*graph.Linear]M{}, norms: map[*graph.Norm]N{}, vectors: map[string]V{}}
	return &loader[M, N, V]{Weights: w, b: b, tensor: tensor}
}

func (l *loader[M, N, V]) head(g *graph.Graph) {
	ends := g.Ends()
	ends[1].Out = g.Head.Out // of a rank, a part of the vocabulary
	if !g.Tied() {
		l.parts(ends)
		return
	}
	l.parts(ends[:1])
	head := &g.Head.Linear
	if bias := l.vector(head.Bias, 0, 1, g.Vocab); l.err == nil {
		l.linears[head], l.err = l.b.Tied(l.Table, head, bias)
	}
}

func (l *loader[M, N, V]) parts(parts []graph.Part) {
	for i := range parts {
		p := &parts[i]
		switch n := p.Norm; {
		case p.Linear != nil:
			l.linear(p)
		case n != nil:
			weight, bias := l.vector(n.Weight, n.Offset, n.Factor(), p.Shape()...), l.vector(n.Bias, 0, 1, p.Shape()...)
			if n.Weight == "" && l.err == nil {
				weight, l.err = l.b.Constant(max(p.Rows, 1)*p.Width, (1+n.Offset)*n.Factor())
			}
			if l.err == nil {
				l.norms[n], l.err = l.b.Norm(n, weight, bias)
			}
		default:
			l.vectors[p.Vector] = l.vector(p.Vector, 0, 1, p.Shape()...)
		}
	}
}

func (l *loader[M, N, V]) linear(p *graph.Part) {
	m, shape, bias := p.Linear, []int64{p.Out, p.In}, []int64{p.Out}
	if p.Out == 0 || p.In == 0 { // of a layer that other ranks have
		return
	}
	if p.Experts > 0 {
		shape, bias = append([]int64{p.Experts}, shape...), append([]int64{p.Experts}, bias...)
	}
	t, ok := l.get(m.Weight, shape...)
	b := l.vector(m.Bias, 0, 1, bias...)
	if ok && l.err == nil {
		l.linears[m], l.err = l.b.Matrix(t, m, p.Experts, b)
	}
}

// vector opens a vector; "" is none.
func (l *loader[M, N, V]) vector(name string, offset, factor float32, shape ...int64) (v V) {
	if name == "" {
		return v
	}
	if t, ok := l.get(name, shape...); ok {
		v, l.err = l.b.Vector(t, offset, factor)
	}
	return v
}

// get returns a tensor of a shape, or notes what is wrong.
func (l *loader[M, N, V]) get(name string, shape ...int64) (formats.Tensor, bool) {
	if l.err != nil {
		return formats.Tensor{}, false
	}
	t := l.tensor(name)
	if !slices.Equal(t.Shape, shape) {
		l.err = formats.Errorf("", name, "shape is %v, the graph says %v", t.Shape, shape)
	}
	return t, l.err == nil
}

// Activation returns the kernels' name of a graph's activation.
func Activation(a graph.Activation) ops.Activation {
	switch a {
	case graph.SiLU:
		return ops.SiLU
	case graph.GELU:
		return ops.GELU
	case graph.GELUTanh:
		return ops.GELUTanh
	case graph.GELUQuick:
		return ops.QuickGELU
	case graph.ReLU:
		return ops.ReLU
	case graph.ReLU2:
		return ops.ReLU2
	case graph.ActXIELU:
		return 0 // see XIELU
	}
	panic("load: an activation that graph.Check lets through: " + string(a))
}

// Gating returns the kernels' form of what a graph makes of a gate.
func Gating(g graph.Gating) ops.Gating {
	return ops.Gating{Alpha: g.Alpha, Limit: g.Limit, Offset: g.UpOffset}
}

// XIELU returns the kernels' form of an activation with trained numbers, nil for nil.
func XIELU(x *graph.XIELU) *ops.XIELU {
	if x == nil {
		return nil
	}
	positive, negative := x.Factors()
	return &ops.XIELU{Positive: float32(positive), Negative: float32(negative), Beta: x.Beta, Eps: x.Eps}
}
