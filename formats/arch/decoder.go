package arch

import (
	"fmt"
	"math"

	"github.com/nstf/nstf/formats/graph"
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

	norm       graph.NormKind
	eps        float32
	offset     float32 // norms store weight-offset
	act        graph.Activation
	gated      bool
	parallel   bool
	oneNorm    bool // parallel blocks whose two branches share one norm
	postNorms  bool
	bare       bool // no norms in front of the branches
	noNormBias bool // of LayerNorms
	qkNorm     bool
	jointNorms bool // qkNorm is of all heads at once
	lateNorms  bool // qkNorm follows the rotation
	headNorms  bool // qkNorm has weights for each head, and no biases
	bias       biases

	embedScale float32 // 1 = none
	positions  bool
	tied       bool

	scale        float32 // of attention scores
	scaleByLayer bool    // divided by the layer's number, from 1
	attnSoftcap  float32
	headSoftcap  float32
	headScale    float32 // of the logits; 0: 1
	temperature  *graph.Temperature
	ropes        []graph.Rope
	rope         func(layer int) int   // index into ropes; nil: 0 where there is one, -1 where there is none
	window       func(layer int) int64 // nil: none

	moe moeParams
	// latent is attention over latents in place of other attention; nil: none. heads
	// is its, headDim what is rotated of each.
	latent *latentParams

	// mtp counts modules of multi-token prediction: a block like the last ones, with a
	// table, a norm and a head of their own where the checkpoint has them.
	mtp int64

	// each changes a block where no field above says what is meant; nil: nothing.
	each func(layer int, b *graph.Block)
	// finish changes the graph at the end; nil: nothing.
	finish func(g *graph.Graph)
}

// biases says which linears and norms carry one.
type biases struct{ qkv, o, ffn, head bool }

type moeParams struct {
	experts, topK, inner int64
	shared               int64 // width of a layer that all tokens go through; 0: none
	sharedGate           bool  // behind a gate of its own
	normalize            bool
	sparse               func(layer int) bool // nil: every layer
}

// newDecoder returns what most architectures have in common.
func newDecoder(arch string) *decoder {
	return &decoder{arch: arch, norm: graph.RMSNorm, act: graph.SiLU, gated: true, embedScale: 1}
}

// check refuses hyper-parameters that no model can have, so that what follows
// may multiply and divide them.
func (d *decoder) check() error {
	for _, f := range []struct {
		name string
		v    int64
		max  int64
	}{
		{"vocabulary size", d.vocab, 1 << 28}, {"width", d.width, 1 << 24}, {"context", d.context, 1 << 40},
		{"layer count", int64(d.layers), graph.MaxBlocks}, {"attention head count", d.heads, 1 << 16},
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
	if d.latent != nil {
		if err := d.latent.check(); err != nil {
			return err
		}
	}
	if m := d.moe; m.experts != 0 && (m.experts < 0 || m.experts > 1<<16 || m.topK < 1 || m.topK > m.experts || m.inner < 1 || m.inner > 1<<28 || m.shared < 0 || m.shared > 1<<28) {
		return fmt.Errorf("%d experts of width %d with %d used is not a mixture", m.experts, m.inner, m.topK)
	}
	if d.mtp < 0 || d.mtp > graph.MaxBlocks {
		return fmt.Errorf("%d modules of multi-token prediction make no sense", d.mtp)
	}
	for i := range d.ropes {
		if err := d.ropes[i].Check(d.headDim); err != nil {
			return err
		}
	}
	return nil
}

// graph writes the decoder out as a graph.
func (d *decoder) graph() (*graph.Graph, error) {
	if err := d.check(); err != nil {
		return nil, err
	}
	g := &graph.Graph{
		Arch: d.arch, Context: d.context, Vocab: d.vocab, Width: d.width,
		Embed: graph.Embedding{Table: "embed.weight", Scale: d.embedScale},
		Ropes: d.ropes,
		Norm:  d.newNorm("norm"),
	}
	if d.headScale != 0 && d.headScale != 1 {
		g.Norm.Scale = d.headScale // which the head hands on
	}
	if d.positions {
		g.Embed.Positions = "embed.positions.weight"
	}
	for i := range d.layers {
		g.Blocks = append(g.Blocks, d.block(i, fmt.Sprintf("blocks.%d.", i)))
	}
	g.Head = graph.Head{Linear: d.linear("head", graph.RoleHead, "head.in", d.width, d.vocab, d.bias.head), Softcap: d.headSoftcap}
	if d.tied {
		g.Head.Weight = g.Embed.Table
	}
	for i := range int(d.mtp) {
		g.MTP = append(g.MTP, d.module(i))
	}
	if d.finish != nil {
		d.finish(g)
	}
	return g, nil
}

// module is one of multi-token prediction, with all that it may have; what a
// checkpoint lacks is left out when its tensors are known.
func (d *decoder) module(i int) graph.MTP {
	p := fmt.Sprintf("mtp.%d.", i)
	b := d.block(d.layers+i, p+"block.")
	for _, l := range b.Linears() {
		l.Role = l.Role.MTP()
	}
	head := d.linear(p+"head", graph.RoleHead.MTP(), p+"head.in", d.width, d.vocab, false)
	return graph.MTP{
		EmbedNorm: d.newNorm(p + "embed_norm"), HiddenNorm: d.newNorm(p + "hidden_norm"),
		Project: d.linear(p+"project", graph.RoleMTPProject, p+"in", 2*d.width, d.width, false),
		Block:   b, Norm: d.newNorm(p + "norm"), Table: p + "embed.weight", Head: &head,
	}
}

// block is layer i, whose tensors' names begin with p.
func (d *decoder) block(i int, p string) graph.Block {
	b := d.usual(i, p)
	if d.each != nil {
		d.each(i, &b)
	}
	return b
}

// usual is a layer without what each changes.
func (d *decoder) usual(i int, p string) graph.Block {
	b := graph.Block{Parallel: d.parallel, Bare: d.bare}
	if d.latent != nil {
		b.Latent = d.latentAttention(p)
	} else {
		b.Attn = d.attention(i, p)
	}
	if !d.bare {
		b.AttnNorm = d.newNorm(p + "attn_norm")
	}
	if d.postNorms {
		b.AttnPostNorm = d.newNorm(p + "attn_post_norm")
		b.FFNPostNorm = d.newNorm(p + "ffn_post_norm")
	}
	if !d.oneNorm && !d.bare {
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
	f := &graph.FFN{
		Act:  d.act,
		Up:   d.linear(p+"ffn.up", graph.RoleUp, in, d.width, d.inner, d.bias.ffn),
		Down: d.linear(p+"ffn.down", graph.RoleDown, p+"ffn.mid", d.inner, d.width, d.bias.ffn),
	}
	if d.gated {
		gate := d.linear(p+"ffn.gate", graph.RoleGate, in, d.width, d.inner, d.bias.ffn)
		f.Gate = &gate
	}
	b.FFN = f
	return b
}

func (d *decoder) attention(i int, p string) *graph.Attention {
	q, kv := d.heads*d.headDim, d.kvHeads*d.headDim
	k := d.linear(p+"attn.k", graph.RoleK, p+"attn.in", d.width, kv, d.bias.qkv)
	v := d.linear(p+"attn.v", graph.RoleV, p+"attn.in", d.width, kv, d.bias.qkv)
	a := &graph.Attention{
		Heads: d.heads, KVHeads: d.kvHeads, HeadDim: d.headDim,
		Scale: d.scale, Softcap: d.attnSoftcap, Rope: -1,
		Q: d.linear(p+"attn.q", graph.RoleQ, p+"attn.in", d.width, q, d.bias.qkv),
		K: &k, V: &v,
		O: d.linear(p+"attn.o", graph.RoleO, p+"attn.mid", q, d.width, d.bias.o),
	}
	if a.Scale == 0 {
		a.Scale = float32(1 / math.Sqrt(float64(d.headDim)))
	}
	if d.scaleByLayer {
		a.Scale /= float32(i + 1)
	}
	a.Temperature = d.temperature
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
		a.JointNorms, a.LateNorms, a.HeadNorms = d.jointNorms, d.lateNorms, d.headNorms
		if d.headNorms {
			a.QNorm.Bias, a.KNorm.Bias = "", ""
		}
	}
	return a
}

func (d *decoder) mixture(p, in string) *graph.MoE {
	m := d.moe
	gate := d.linear(p+"moe.gate", graph.RoleXGate, in, d.width, m.inner, false)
	x := &graph.MoE{
		Act: d.act, Experts: m.experts, TopK: m.topK, Normalize: m.normalize,
		Router: d.linear(p+"moe.router", graph.RoleRouter, in, d.width, m.experts, false),
		Gate:   &gate,
		Up:     d.linear(p+"moe.up", graph.RoleXUp, in, d.width, m.inner, false),
		Down:   d.linear(p+"moe.down", graph.RoleXDown, p+"moe.mid", m.inner, d.width, false),
	}
	if m.shared > 0 {
		gate := d.linear(p+"moe.shared.gate", graph.RoleGate, in, d.width, m.shared, false)
		x.Shared = &graph.FFN{
			Act: d.act, Gate: &gate, Up: d.linear(p+"moe.shared.up", graph.RoleUp, in, d.width, m.shared, false),
			Down: d.linear(p+"moe.shared.down", graph.RoleDown, p+"moe.shared.mid", m.shared, d.width, false),
		}
	}
	if m.sharedGate {
		factor := d.linear(p+"moe.shared_gate", graph.RoleRouter, in, d.width, 1, false)
		x.SharedGate = &factor
	}
	return x
}

func (d *decoder) newNorm(module string) *graph.Norm {
	n := &graph.Norm{Kind: d.norm, Weight: module + ".weight", Eps: d.eps, Offset: d.offset}
	if d.norm == graph.LayerNorm && !d.noNormBias {
		n.Bias = module + ".bias"
	}
	return n
}

func (d *decoder) linear(module string, role graph.Role, input string, in, out int64, bias bool) graph.Linear {
	l := graph.Linear{Role: role, Weight: module + ".weight", In: in, Out: out, Input: input}
	if bias {
		l.Bias = module + ".bias"
	}
	return l
}
