package model

import (
	"fmt"
	"math"
)

// A decoder is the hyper-parameters of a decoder-only transformer: what a
// checkpoint's configuration says, in one vocabulary. Each architecture fills
// it from config.json or from GGUF metadata; graph writes it out as
// operations. Zero means absent unless a field says otherwise.
type decoder struct {
	arch                           string
	vocab, width, context          int64
	heads, kvHeads, headDim, inner int64
	layers                         int

	norm      NormKind
	eps       float32
	offset    float32 // norms store weight-offset
	act       Activation
	gated     bool
	parallel  bool
	oneNorm   bool // parallel blocks whose two branches share one norm
	postNorms bool
	qkNorm    bool
	bias      biases

	embedScale float32 // 1 = none
	positions  bool
	tied       bool

	scale        float32 // of attention scores
	scaleByLayer bool    // divided by the layer's number, from 1
	attnSoftcap  float32
	headSoftcap  float32
	ropes        []Rope
	rope         func(layer int) int   // index into ropes; nil: 0 where there is one, -1 where there is none
	window       func(layer int) int64 // nil: none

	moe moeParams
}

// biases says which linears and norms carry one.
type biases struct{ qkv, o, ffn, head bool }

type moeParams struct {
	experts, topK, inner int64
	normalize            bool
	sparse               func(layer int) bool // nil: every layer
}

// newDecoder returns what most architectures have in common.
func newDecoder(arch string) *decoder {
	return &decoder{arch: arch, norm: RMSNorm, act: SiLU, gated: true, embedScale: 1}
}

// maxLayers bounds what a configuration may claim, far above any model.
const maxLayers = 4096

// check refuses hyper-parameters that no model can have, so that what follows
// may multiply and divide them.
func (d *decoder) check() error {
	for _, f := range []struct {
		name string
		v    int64
		max  int64
	}{
		{"vocabulary size", d.vocab, 1 << 28}, {"width", d.width, 1 << 24}, {"context", d.context, 1 << 40},
		{"layer count", int64(d.layers), maxLayers}, {"attention head count", d.heads, 1 << 16},
		{"key-value head count", d.kvHeads, 1 << 16}, {"head size", d.headDim, 1 << 16},
		{"feed-forward width", d.inner, 1 << 28},
	} {
		if f.v < 1 || f.v > f.max {
			return fmt.Errorf("%s is %d, not between 1 and %d", f.name, f.v, f.max)
		}
	}
	if d.heads%d.kvHeads != 0 {
		return fmt.Errorf("%d attention heads are not a multiple of %d key-value heads", d.heads, d.kvHeads)
	}
	if !(d.eps > 0) || math.IsInf(float64(d.eps), 0) {
		return fmt.Errorf("norm epsilon is %v, not positive", d.eps)
	}
	if m := d.moe; m.experts != 0 && (m.experts < 0 || m.experts > 1<<16 || m.topK < 1 || m.topK > m.experts || m.inner < 1 || m.inner > 1<<28) {
		return fmt.Errorf("%d experts of width %d with %d used is not a mixture", m.experts, m.inner, m.topK)
	}
	for i := range d.ropes {
		if err := d.ropes[i].check(d.headDim); err != nil {
			return err
		}
	}
	return nil
}

// graph writes the decoder out as a graph.
func (d *decoder) graph() (*Graph, error) {
	if err := d.check(); err != nil {
		return nil, err
	}
	g := &Graph{
		Arch: d.arch, Context: d.context, Vocab: d.vocab, Width: d.width,
		Embed: Embedding{Table: "embed.weight", Scale: d.embedScale},
		Ropes: d.ropes,
		Norm:  d.newNorm("norm"),
	}
	if d.positions {
		g.Embed.Positions = "embed.positions.weight"
	}
	for i := range d.layers {
		g.Blocks = append(g.Blocks, d.block(i))
	}
	g.Head = Head{Linear: d.linear("head", RoleHead, "head.in", d.width, d.vocab, d.bias.head), Softcap: d.headSoftcap}
	if d.tied {
		g.Head.Weight = g.Embed.Table
	}
	return g, nil
}

func (d *decoder) block(i int) Block {
	p := fmt.Sprintf("blocks.%d.", i)
	b := Block{Parallel: d.parallel, AttnNorm: d.newNorm(p + "attn_norm"), Attn: d.attention(i, p)}
	if d.postNorms {
		b.AttnPostNorm = d.newNorm(p + "attn_post_norm")
		b.FFNPostNorm = d.newNorm(p + "ffn_post_norm")
	}
	if !d.oneNorm {
		b.FFNNorm = d.newNorm(p + "ffn_norm")
	}
	in := p + "ffn.in"
	if d.oneNorm {
		in = p + "attn.in"
	}
	if d.moe.experts > 0 && (d.moe.sparse == nil || d.moe.sparse(i)) {
		b.MoE = d.mixture(p, in)
		return b
	}
	f := &FFN{
		Act:  d.act,
		Up:   d.linear(p+"ffn.up", RoleUp, in, d.width, d.inner, d.bias.ffn),
		Down: d.linear(p+"ffn.down", RoleDown, p+"ffn.mid", d.inner, d.width, d.bias.ffn),
	}
	if d.gated {
		gate := d.linear(p+"ffn.gate", RoleGate, in, d.width, d.inner, d.bias.ffn)
		f.Gate = &gate
	}
	b.FFN = f
	return b
}

func (d *decoder) attention(i int, p string) Attention {
	q, kv := d.heads*d.headDim, d.kvHeads*d.headDim
	a := Attention{
		Heads: d.heads, KVHeads: d.kvHeads, HeadDim: d.headDim,
		Scale: d.scale, Softcap: d.attnSoftcap, Rope: -1,
		Q: d.linear(p+"attn.q", RoleQ, p+"attn.in", d.width, q, d.bias.qkv),
		K: d.linear(p+"attn.k", RoleK, p+"attn.in", d.width, kv, d.bias.qkv),
		V: d.linear(p+"attn.v", RoleV, p+"attn.in", d.width, kv, d.bias.qkv),
		O: d.linear(p+"attn.o", RoleO, p+"attn.mid", q, d.width, d.bias.o),
	}
	if a.Scale == 0 {
		a.Scale = float32(1 / math.Sqrt(float64(d.headDim)))
	}
	if d.scaleByLayer {
		a.Scale /= float32(i + 1)
	}
	if d.window != nil {
		a.Window = d.window(i)
	}
	if len(d.ropes) > 0 {
		a.Rope = 0
		if d.rope != nil {
			a.Rope = d.rope(i)
		}
	}
	if d.qkNorm {
		a.QNorm, a.KNorm = d.newNorm(p+"attn.q_norm"), d.newNorm(p+"attn.k_norm")
	}
	return a
}

func (d *decoder) mixture(p, in string) *MoE {
	m := d.moe
	return &MoE{
		Act: d.act, Experts: m.experts, TopK: m.topK, Normalize: m.normalize,
		Router: d.linear(p+"moe.router", RoleRouter, in, d.width, m.experts, false),
		Gate:   d.linear(p+"moe.gate", RoleXGate, in, d.width, m.inner, false),
		Up:     d.linear(p+"moe.up", RoleXUp, in, d.width, m.inner, false),
		Down:   d.linear(p+"moe.down", RoleXDown, p+"moe.mid", m.inner, d.width, false),
	}
}

func (d *decoder) newNorm(module string) *Norm {
	n := &Norm{Kind: d.norm, Weight: module + ".weight", Eps: d.eps, Offset: d.offset}
	if d.norm == LayerNorm {
		n.Bias = module + ".bias"
	}
	return n
}

func (d *decoder) linear(module string, role Role, input string, in, out int64, bias bool) Linear {
	l := Linear{Role: role, Weight: module + ".weight", In: in, Out: out, Input: input}
	if bias {
		l.Bias = module + ".bias"
	}
	return l
}

// check refuses rotary embeddings that the head cannot hold.
func (r *Rope) check(headDim int64) error {
	if r.Dim < 2 || r.Dim%2 != 0 || r.Dim > headDim {
		return fmt.Errorf("rotary dimension %d does not fit a head of %d", r.Dim, headDim)
	}
	if !(r.Theta > 0) || math.IsInf(r.Theta, 0) {
		return fmt.Errorf("rotary base %v is not positive", r.Theta)
	}
	s := &r.Scaling
	for _, f := range [][]float32{s.Short, s.Long} {
		if f != nil && int64(len(f)) != r.Dim/2 {
			return fmt.Errorf("rotary scaling has %d factors, not %d", len(f), r.Dim/2)
		}
		for _, v := range f {
			if !(v > 0) {
				return fmt.Errorf("rotary factor %v is not positive", v)
			}
		}
	}
	switch s.Kind {
	case ScaleLinear, ScaleDynamic, ScaleLlama3, ScaleYarn:
		if !(s.Factor >= 1) || math.IsInf(s.Factor, 0) {
			return fmt.Errorf("rotary scaling factor %v is less than 1", s.Factor)
		}
	}
	if s.Kind == ScaleYarn && r.Theta <= 1 {
		return fmt.Errorf("rotary base %v of scaling %q is not above 1", r.Theta, s.Kind)
	}
	return s.check()
}

// check refuses constants that would make frequencies infinite or no numbers.
func (s *RopeScaling) check() error {
	stretches := s.Kind == ScaleDynamic || s.Kind == ScaleLlama3 || s.Kind == ScaleYarn || s.Kind == ScaleLongRope
	switch {
	case stretches && s.Original < 1:
		return fmt.Errorf("rotary scaling stretches a context of %d", s.Original)
	case s.Kind == ScaleLlama3 && !(s.LowFreq > 0 && s.HighFreq > s.LowFreq && s.HighFreq <= math.MaxFloat32):
		return fmt.Errorf("rotary scaling between the frequencies %v and %v", s.LowFreq, s.HighFreq)
	case s.Kind == ScaleYarn && !(s.BetaFast > 0 && s.BetaSlow > 0 && s.BetaFast+s.BetaSlow <= math.MaxFloat32):
		return fmt.Errorf("rotary scaling between %v and %v turns", s.BetaFast, s.BetaSlow)
	case !(s.Attention >= 0 && s.Attention <= math.MaxFloat32):
		return fmt.Errorf("rotary attention factor %v", s.Attention)
	}
	return nil
}
