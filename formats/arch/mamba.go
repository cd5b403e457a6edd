package arch

import (
	"fmt"
	"math"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/pyjson"
)

// What models with state spaces (Mamba 2) have in common.

// A mambaShape is the constants of state spaces.
type mambaShape struct {
	heads, headDim, groups, state, kernel int64
	minStep, maxStep                      float32 // the last 0: no limit
	convBias, bias                        bool    // of the convolution, and of the projections
	eps                                   float32
}

// check refuses sizes that no graph has, so that what follows may multiply them.
func (s *mambaShape) check() error {
	n := graph.Mamba{Heads: s.heads, HeadDim: s.headDim, Groups: s.groups, State: s.state, Kernel: s.kernel}
	return n.CheckSizes()
}

// mamba returns a block's state space, whose decays are logarithms with log.
func (d *decoder) mamba(layer int, s *mambaShape, log bool) *graph.Mamba {
	p := fmt.Sprintf("blocks.%d.mamba.", layer)
	n := &graph.Mamba{Heads: s.heads, HeadDim: s.headDim, Groups: s.groups, State: s.state, Kernel: s.kernel, MinStep: s.minStep, MaxStep: s.maxStep,
		DecayLog: log, Conv: p + "conv.weight", Decay: p + "decay", DTBias: p + "dt_bias", Skip: p + "skip",
		Norm: &graph.Norm{Kind: graph.RMSNorm, Weight: p + "norm.weight", Eps: s.eps}}
	if s.convBias {
		n.ConvBias = p + "conv.bias"
	}
	n.Z = d.linear(p+"z", graph.RoleMZ, p+"in", d.width, n.Values(), s.bias)
	n.XBC = d.linear(p+"xbc", graph.RoleMXBC, p+"in", d.width, n.Channels(), s.bias)
	n.DT = d.linear(p+"dt", graph.RoleMGate, p+"in", d.width, s.heads, s.bias)
	n.Out = d.linear(p+"out", graph.RoleMOut, p+"mid", n.Values(), d.width, s.bias)
	return n
}

// stepLimit reads the bounds of steps, the upper of which may be infinite.
func (s *settings) stepLimit(key string) (least, most float32) {
	s.read[key] = true
	v, ok := s.c.Get(key)
	if !ok || v == nil {
		return 0, 0
	}
	list, ok := v.([]pyjson.Value)
	if !ok || len(list) != 2 {
		s.bad(key, v)
		return 0, 0
	}
	lo, hi := number(list[0]), number(list[1])
	if !(lo >= 0) || math.IsInf(lo, 0) || !(hi > 0) || !(hi >= lo) {
		s.bad(key, fmt.Sprint(lo, " to ", hi))
		return 0, 0
	}
	if math.IsInf(hi, 1) {
		hi = 0
	}
	return float32(lo), float32(hi)
}

// number reads a number, also one that transformers spells as an object; NaN is none.
func number(v pyjson.Value) float64 {
	switch v := v.(type) {
	case pyjson.Number:
		if v == "Infinity" {
			return math.Inf(1)
		}
		if f, ok := v.Float64(); ok {
			return f
		}
	case *pyjson.Object:
		if tag, _ := v.Get("__float__"); tag == pyjson.Value("Infinity") {
			return math.Inf(1)
		}
	}
	return math.NaN()
}

// limits writes what settings.stepLimit reads.
func (c configWriter) limits(key string, n *graph.Mamba) {
	limit := []any{n.MinStep, n.MaxStep}
	if n.MaxStep == 0 {
		limit[1] = map[string]any{"__float__": "Infinity"}
	}
	c[key] = limit
}

// mambas reads the shape of state spaces.
func (k *keys) mambas() *mambaShape {
	s := &mambaShape{heads: k.int("ssm.time_step_rank"), groups: k.int("ssm.group_count"), state: k.int("ssm.state_size"), kernel: k.int("ssm.conv_kernel"), convBias: true}
	inner := k.int("ssm.inner_size")
	if s.heads < 1 || inner%s.heads != 0 {
		k.note(formats.Errorf(k.f.Name(), k.prefix+"ssm.inner_size", "%d is not a multiple of %d heads", inner, s.heads))
		return s
	}
	s.headDim = inner / s.heads
	if err := s.check(); err != nil {
		k.note(formats.Errorf(k.f.Name(), k.prefix+"ssm.time_step_rank", "%v", err))
	}
	return s
}

// mambas writes the keys of keys.mambas.
func (w *keyWriter) mambas(n *graph.Mamba) {
	w.int("ssm.conv_kernel", n.Kernel)
	w.int("ssm.state_size", n.State)
	w.int("ssm.group_count", n.Groups)
	w.int("ssm.time_step_rank", n.Heads)
	w.int("ssm.inner_size", n.Values())
}

// firstMamba returns the first state space of a graph, nil where there is none.
func firstMamba(g *graph.Graph) *graph.Mamba {
	for i := range g.Blocks {
		if n := g.Blocks[i].Mamba; n != nil {
			return n
		}
	}
	return nil
}

// hfMambaLinks are the tensors of a state space below a module.
func hfMambaLinks(module string) []Link {
	return []Link{
		{Foreign: module + "in_proj", Parts: []string{"blocks.#.mamba.z", "blocks.#.mamba.xbc", "blocks.#.mamba.dt"}},
		{Foreign: module + "conv1d", Parts: []string{"blocks.#.mamba.conv"}, Middle: true},
		{Foreign: module + "A_log", Parts: []string{"blocks.#.mamba.decay"}, Written: decays(true)},
		one(module+"D", "blocks.#.mamba.skip"),
		one(module+"dt_bias", "blocks.#.mamba.dt_bias"),
		one(module+"norm", "blocks.#.mamba.norm"),
		one(module+"out_proj", "blocks.#.mamba.out"),
	}
}

// ggufMambaLinks are GGUF's, which has decays as they are, and vectors of heads as
// tables of one column.
//
// Source: the class Mamba2Model of llama.cpp's conversion/mamba.py.
func ggufMambaLinks() []Link {
	column := func(g *graph.Graph, block int) []int64 { return []int64{g.Blocks[block].Mamba.Heads, 1} }
	return []Link{
		{Foreign: "blk.#.ssm_in", Parts: []string{"blocks.#.mamba.z", "blocks.#.mamba.xbc", "blocks.#.mamba.dt"}},
		one("blk.#.ssm_conv1d", "blocks.#.mamba.conv"),
		{Foreign: "blk.#.ssm_a", Parts: []string{"blocks.#.mamba.decay"}, Written: decays(false), Shape: column},
		{Foreign: "blk.#.ssm_d", Parts: []string{"blocks.#.mamba.skip"}, Shape: column},
		one("blk.#.ssm_dt.bias", "blocks.#.mamba.dt_bias"),
		{Foreign: "blk.#.ssm_norm", Parts: []string{"blocks.#.mamba.norm"}, Shape: func(g *graph.Graph, block int) []int64 {
			n := g.Blocks[block].Mamba
			return []int64{n.Groups, n.Values() / n.Groups}
		}},
		one("blk.#.ssm_out", "blocks.#.mamba.out"),
	}
}
