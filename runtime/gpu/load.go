package gpu

import (
	"math"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/kernels/hip"
)

// A block is a layer's weights beside its place in the graph.
type block struct {
	*model.Block
	index                                int
	attnNorm, attnPost, ffnNorm, ffnPost hip.Normal
	qNorm, kNorm                         hip.Normal
	q, k, v, o                           *matrix
	act                                  cpu.Activation
	gate, up, down                       *matrix // of the feed-forward layer, or of all experts
	router                               *matrix
}

// A vector is numbers that kernels read as float32.
type vector struct {
	tensor formats.Tensor
	offset float32 // added to each
	place  hip.Address
}

// A layout gives the tensors of a graph their places, in an arena that begins
// wherever it is told to, and remembers the first error. It reads no weights.
type layout struct {
	tensor   func(name string) formats.Tensor
	arena    arena
	exact    bool
	matrices []*matrix
	vectors  []vector
	err      error
}

func (l *layout) fail(err error) {
	if l.err == nil {
		l.err = err
	}
}

// weights are what a layout made of a graph.
type weights struct {
	table     *matrix
	positions hip.Address // f32 [Context][D] of learned positions, 0: none
	blocks    []block
	norm      hip.Normal
	head      *matrix
}

func (l *layout) graph(g *model.Graph) weights {
	var w weights
	w.table = l.matrix(g.Embed.Table, g.Vocab, g.Width, 0)
	if g.Embed.Positions != "" {
		w.positions = l.vector(g.Embed.Positions, g.Context*g.Width, 0)
	}
	w.blocks = make([]block, len(g.Blocks))
	for i := range g.Blocks {
		w.blocks[i].index = i
		l.block(&w.blocks[i], &g.Blocks[i], g.Width)
	}
	w.norm = l.norm(g.Norm, g.Width)
	if g.Tied() && l.err == nil {
		w.head = w.table.withBias(l.vector(g.Head.Bias, g.Vocab, 0))
	} else {
		w.head = l.linear(&g.Head.Linear, 0)
	}
	return w
}

func (l *layout) block(b *block, m *model.Block, width int64) {
	b.Block = m
	b.attnNorm, b.attnPost = l.norm(m.AttnNorm, width), l.norm(m.AttnPostNorm, width)
	b.ffnNorm, b.ffnPost = l.norm(m.FFNNorm, width), l.norm(m.FFNPostNorm, width)
	b.qNorm, b.kNorm = l.norm(m.Attn.QNorm, m.Attn.HeadDim), l.norm(m.Attn.KNorm, m.Attn.HeadDim)
	b.q, b.k = l.linear(&m.Attn.Q, 0), l.linear(&m.Attn.K, 0)
	b.v, b.o = l.linear(&m.Attn.V, 0), l.linear(&m.Attn.O, 0)
	if f := m.FFN; f != nil {
		b.act = l.activation(f.Act)
		if f.Gate != nil {
			b.gate = l.linear(f.Gate, 0)
		}
		b.up, b.down = l.linear(&f.Up, 0), l.linear(&f.Down, 0)
	}
	if x := m.MoE; x != nil {
		b.act = l.activation(x.Act)
		b.router = l.linear(&x.Router, 0)
		b.gate, b.up, b.down = l.linear(&x.Gate, x.Experts), l.linear(&x.Up, x.Experts), l.linear(&x.Down, x.Experts)
	}
}

func (l *layout) activation(a model.Activation) cpu.Activation {
	switch a {
	case model.SiLU:
		return cpu.SiLU
	case model.GELU:
		return cpu.GELU
	case model.GELUTanh:
		return cpu.GELUTanh
	case model.GELUQuick:
		return cpu.QuickGELU
	case model.ReLU:
		return cpu.ReLU
	}
	l.fail(formats.Unsupportedf("", "", "activation %q", a))
	return 0
}

// linear places a weight and its bias, or those of so many experts, stacked; 0:
// it is no stack.
func (l *layout) linear(m *model.Linear, experts int64) *matrix {
	w := l.matrix(m.Weight, max(experts, 1)*m.Out, m.In, experts)
	w.N, w.experts = int(m.Out), int(experts)
	return w.withBias(l.vector(m.Bias, max(experts, 1)*m.Out, 0))
}

// vector places all n numbers of a tensor; "" has none.
func (l *layout) vector(name string, n int64, offset float32) hip.Address {
	if name == "" || l.err != nil {
		return 0
	}
	t := l.tensor(name)
	if rows, k := t.Rows(); rows*k != n {
		l.fail(formats.Errorf("", name, "shape is %v, the graph says %d", t.Shape, n))
		return 0
	}
	return l.numbers(t, offset)
}

// numbers places what kernels read as float32.
func (l *layout) numbers(t formats.Tensor, offset float32) hip.Address {
	if err := scheme.Check(&t); err != nil {
		l.fail(err)
		return 0
	}
	rows, k := t.Rows()
	l.vectors = append(l.vectors, vector{t, offset, l.arena.floats(int(rows * k))})
	return l.vectors[len(l.vectors)-1].place
}

func (l *layout) norm(n *model.Norm, width int64) hip.Normal {
	if n == nil {
		return hip.Normal{}
	}
	kind := hip.RMSNorm
	switch {
	case n.Kind == model.LayerNorm:
		kind = hip.LayerNorm
	case n.Kind != model.RMSNorm:
		l.fail(formats.Unsupportedf("", n.Weight, "normalisation %q", n.Kind))
	case n.Bias != "":
		l.fail(formats.Unsupportedf("", n.Bias, "a bias on normalisation %q", n.Kind))
	}
	return hip.Normal{Kind: kind, Weight: l.vector(n.Weight, width, n.Offset), Bias: l.vector(n.Bias, width, 0), Eps: n.Eps}
}

// floats reads a vector's numbers.
func (v *vector) floats() ([]float32, error) {
	n, k := v.tensor.Rows()
	out := make([]float32, n*k)
	if err := scheme.DecodeRows(out, &v.tensor, 0, n); err != nil {
		return nil, err
	}
	if v.offset != 0 {
		for i := range out {
			out[i] += v.offset
		}
	}
	return out, nil
}

// bytesOf encodes numbers as the device reads them.
func bytesOf[T float32 | int32](dst []byte, numbers []T) []byte {
	for _, v := range numbers {
		var bits uint32
		switch v := any(v).(type) {
		case float32:
			bits = math.Float32bits(v)
		case int32:
			bits = uint32(v)
		}
		dst = append(dst, byte(bits), byte(bits>>8), byte(bits>>16), byte(bits>>24))
	}
	return dst
}
