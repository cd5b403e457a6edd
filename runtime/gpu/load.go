package gpu

import (
	"math"
	"slices"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/kernels/ops"
	"github.com/nstf/nstf/runtime/device"
	"github.com/nstf/nstf/runtime/load"
)

// A block is a layer's weights beside its place in the graph.
type block struct {
	*graph.Block
	index                                int
	attnNorm, attnPost, ffnNorm, ffnPost hip.Normal
	densePost, moeNorm, moePost          hip.Normal
	qNorm, kNorm, vNorm                  hip.Normal
	q, k, v, o                           *matrix     // k and v may be nil
	kv                                   int         // layer of the cache that has its keys and values
	sinks                                hip.Address // f32 [Heads], 0: none
	layer                                            // the feed-forward layer, or all experts
	here                                 pinnedExperts
	dense                                layer // beside experts, without matrices where there is none
	routerNorm                           hip.Normal
	router, sharedGate                   *matrix
	latentDown, latentUp                 *matrix     // of a mixture, or nil
	selectBias, expertScale              hip.Address // f32 [Experts], 0: none
	shared                               layer       // without matrices where there is none
	perLayer                             perLayerInput
	outGate                              *matrix // of what attention gives, or nil
	delta                                deltaNet
	mamba                                mamba
	shortConv                            shortConv
	latent                               latentNet
	outScale                             hip.Address // f32 [1], 0: none
	remembers                            int64       // where in what a sequence remembers the block's numbers begin
}

// A deltaNet is a gated delta net in place of attention, without matrices where there
// is none; its output matrix is the block's.
type deltaNet struct {
	qkv, z, beta, alpha *matrix
	za, alphaA          *matrix // what z and alpha read, or nil
	conv, decay, dtBias hip.Address
	norm                hip.Normal
}

// A mamba is a state space, and a shortConv a short convolution, in the same way.
type mamba struct {
	z, xbc, dt                      *matrix
	conv, bias, decay, dtBias, skip hip.Address // bias may be 0
	norm                            hip.Normal
}

type shortConv struct {
	in         *matrix
	conv, bias hip.Address
}

// A perLayerInput is a block's, without matrices where it has none.
type perLayerInput struct {
	act        ops.Activation
	gate, down *matrix
	norm       hip.Normal
}

// perLayer is the tables of per-layer embeddings, without matrices where no block of
// the span reads them.
type perLayer struct {
	table      *matrix // rows are looked up by the host
	projection *matrix
	norm       hip.Normal
}

// A layer is a feed-forward layer, or stacks of all experts; gate may be nil.
type layer struct {
	act            ops.Activation
	gating         ops.Gating
	xielu          *ops.XIELU // in place of act, or nil
	gate, up, down *matrix
}

// A vector is numbers that kernels read as float32.
type vector struct {
	tensor         formats.Tensor
	offset, factor float32 // (v+offset)*factor of each
	constant       int64   // numbers that are factor, of no tensor; 0: it is one's
	place          hip.Address
}

// A layout gives the tensors of a graph their places, in an arena that begins
// wherever it is told to: it is a load.Backend. It reads no weights.
type layout struct {
	arena    arena
	exact    bool
	matrices []*matrix
	vectors  []vector
	err      error
	pinned   map[int][]int
	streams  bool // whether experts that lie apart come for rows of prompts
	staging  staging
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
	perLayer  perLayer
	blocks    []block
	settled   int // block of the span behind which only wanted rows go on
	norm      hip.Normal
	head      *matrix
}

// graph places the weights of a span of a graph, without experts that lie apart.
func (l *layout) graph(g *graph.Graph, span device.Span, apart device.Blocks, tensor func(name string) formats.Tensor) (weights, error) {
	w, err := load.Open(g, span, apart, tensor, l)
	if err != nil {
		return weights{}, err
	}
	out := weights{table: w.Table, positions: w.Positions, blocks: make([]block, span.Hi-span.Lo), norm: w.Norm(g.Norm), head: w.Linear(&g.Head.Linear)}
	if p := g.PerLayer; p != nil {
		out.perLayer = perLayer{w.PerLayer, w.Linear(&p.Projection), w.Norm(p.Norm)}
	}
	if len(g.Carried(span.Lo))+len(g.Carried(span.Hi)) > 0 {
		e := formats.Unsupportedf("", "graph.blocks", "on GPUs, stages whose blocks read another stage's keys and values")
		e.Hint = "calibrating and quantizing by a text: --device cpu"
		return weights{}, e
	}
	out.settled = g.Settled(span.Lo, span.Hi) - span.Lo
	layers, remembered := map[int]int{}, int64(0)
	for i := range out.blocks {
		if from, ok := g.KeysOf(span.Lo + i); ok {
			if from == span.Lo+i {
				layers[from] = len(layers)
			}
			out.blocks[i].kv = layers[from]
		}
		if err := check(&g.Blocks[span.Lo+i]); err != nil {
			return weights{}, err
		}
		out.blocks[i].index = i
		out.blocks[i].open(w, &g.Blocks[span.Lo+i])
		out.blocks[i].remembers = remembered
		remembered += out.blocks[i].Memory()
		if m := g.Blocks[span.Lo+i].MoE; m != nil && l.streams && apart[span.Lo+i] {
			out.blocks[i].layer = l.stream(m, tensor)
		}
		if some := l.pinned[span.Lo+i]; len(some) > 0 && apart[span.Lo+i] {
			if out.blocks[i].here, err = l.pin(g.Blocks[span.Lo+i].MoE, some, tensor); err != nil {
				return weights{}, err
			}
		}
	}
	return out, nil
}

func (b *block) open(w *load.Weights[*matrix, hip.Normal, hip.Address], m *graph.Block) {
	b.Block = m
	b.attnNorm, b.attnPost, b.ffnNorm, b.ffnPost = w.Norm(m.AttnNorm), w.Norm(m.AttnPostNorm), w.Norm(m.FFNNorm), w.Norm(m.FFNPostNorm)
	b.densePost, b.moeNorm, b.moePost = w.Norm(m.DensePostNorm), w.Norm(m.MoENorm), w.Norm(m.MoEPostNorm)
	if a := m.Attn; a != nil {
		b.qNorm, b.kNorm, b.vNorm = w.Norm(a.QNorm), w.Norm(a.KNorm), w.Norm(a.VNorm)
		b.q, b.k, b.v, b.o = w.Linear(&a.Q), w.Linear(a.K), w.Linear(a.V), w.Linear(&a.O)
		b.outGate, b.sinks = w.Linear(a.Gate), w.Vector(a.Sinks)
	}
	if a := m.Latent; a != nil {
		b.latent, b.o = openLatent(w, a), w.Linear(&a.O)
	}
	if n := m.Delta; n != nil {
		b.o = w.Linear(&n.Out)
		b.delta = deltaNet{qkv: w.Linear(&n.QKV), z: w.Linear(&n.Z), beta: w.Linear(&n.Beta), alpha: w.Linear(&n.Alpha),
			za: w.Linear(n.ZA), alphaA: w.Linear(n.AlphaA),
			conv: w.Vector(n.Conv), decay: w.Vector(n.Decay), dtBias: w.Vector(n.DTBias), norm: w.Norm(n.Norm)}
	}
	if n := m.Mamba; n != nil {
		b.o = w.Linear(&n.Out)
		b.mamba = mamba{z: w.Linear(&n.Z), xbc: w.Linear(&n.XBC), dt: w.Linear(&n.DT), conv: w.Vector(n.Conv), bias: w.Vector(n.ConvBias),
			decay: w.Vector(n.Decay), dtBias: w.Vector(n.DTBias), skip: w.Vector(n.Skip), norm: w.Norm(n.Norm)}
	}
	if n := m.ShortConv; n != nil {
		b.o = w.Linear(&n.Out)
		b.shortConv = shortConv{in: w.Linear(&n.In), conv: w.Vector(n.Conv), bias: w.Vector(n.ConvBias)}
	}
	b.layer.open(w, m.FFN)
	if p := m.PerLayer; p != nil {
		b.perLayer = perLayerInput{load.Activation(p.Act), w.Linear(&p.Gate), w.Linear(&p.Down), w.Norm(p.Norm)}
	}
	b.outScale = w.Vector(m.OutScale)
	if x := m.MoE; x != nil {
		b.dense = b.layer
		b.router, b.sharedGate, b.selectBias = w.Linear(&x.Router), w.Linear(x.SharedGate), w.Vector(x.SelectBias)
		b.routerNorm, b.expertScale = w.Norm(x.RouterNorm), w.Vector(x.ExpertScale)
		b.latentDown, b.latentUp = w.Linear(x.LatentDown), w.Linear(x.LatentUp)
		b.layer = layer{load.Activation(x.Act), load.Gating(x.Gating), nil, w.Linear(x.Gate), w.Linear(&x.Up), w.Linear(&x.Down)}
		b.shared.open(w, x.Shared)
	}
}

// open finds a layer's matrices; nil is none.
func (l *layer) open(w *load.Weights[*matrix, hip.Normal, hip.Address], f *graph.FFN) {
	if f != nil {
		*l = layer{load.Activation(f.Act), load.Gating(f.Gating), load.XIELU(f.XIELU), w.Linear(f.Gate), w.Linear(&f.Up), w.Linear(&f.Down)}
	}
}

// check refuses what kernels have no room for.
func check(m *graph.Block) error {
	if x := m.MoE; x != nil && x.TopK > hip.MaxChosen {
		return formats.Unsupportedf("", x.Router.Weight, "%d experts of a token on GPUs, where %d are the most", x.TopK, hip.MaxChosen)
	}
	if a := m.Attn; a != nil && a.Temperature != nil && a.Temperature.Offset > 1<<30 {
		return formats.Unsupportedf("", a.Q.Weight, "a temperature that counts from %d on GPUs", a.Temperature.Offset)
	}
	return nil
}

// Table implements load.Backend.
func (l *layout) Table(t formats.Tensor) (*matrix, error) { return l.matrix(t, 0), l.err }

// Tied implements load.Backend.
func (l *layout) Tied(table *matrix, m *graph.Linear, bias hip.Address) (*matrix, error) {
	head := table.withBias(bias)
	head.input = m.Input
	return head, nil
}

// Matrix implements load.Backend.
func (l *layout) Matrix(t formats.Tensor, m *graph.Linear, experts int64, bias hip.Address) (*matrix, error) {
	w := l.matrix(t, experts)
	w.N, w.experts = int(m.Out), int(experts)
	w = w.withBias(bias)
	w.input = m.Input
	return w, l.err
}

// Vector implements load.Backend.
func (l *layout) Vector(t formats.Tensor, offset, factor float32) (hip.Address, error) {
	return l.numbers(t, offset, factor), l.err
}

// Constant implements load.Backend.
func (l *layout) Constant(n int64, value float32) (hip.Address, error) {
	l.vectors = append(l.vectors, vector{constant: n, factor: value, place: l.arena.floats(int(n))})
	return l.vectors[len(l.vectors)-1].place, nil
}

// Norm implements load.Backend.
func (l *layout) Norm(n *graph.Norm, weight, bias hip.Address) (hip.Normal, error) {
	kind := hip.RMSNorm
	if n.Kind == graph.LayerNorm {
		kind = hip.LayerNorm
	}
	return hip.Normal{Kind: kind, Weight: weight, Bias: bias, Eps: n.Eps}, nil
}

// numbers places what kernels read as float32.
func (l *layout) numbers(t formats.Tensor, offset, factor float32) hip.Address {
	if err := scheme.Check(&t); err != nil {
		l.fail(err)
		return 0
	}
	rows, k := t.Rows()
	l.vectors = append(l.vectors, vector{tensor: t, offset: offset, factor: factor, place: l.arena.floats(int(rows * k))})
	return l.vectors[len(l.vectors)-1].place
}

// floats reads a vector's numbers.
func (v *vector) floats() ([]float32, error) {
	if v.constant > 0 {
		return slices.Repeat([]float32{v.factor}, int(v.constant)), nil
	}
	n, k := v.tensor.Rows()
	out := make([]float32, n*k)
	if err := scheme.DecodeRows(out, &v.tensor, 0, n); err != nil {
		return nil, err
	}
	if v.offset != 0 || v.factor != 1 {
		for i := range out {
			out[i] = (out[i] + v.offset) * v.factor
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
