package model

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/nstf"
)

func openNSTF(path string) (*Model, error) {
	p, err := nstf.Open(path)
	if err != nil {
		return nil, err
	}
	m, err := fromPackage(p)
	if err != nil {
		p.Close()
		return nil, err
	}
	return m, nil
}

func fromPackage(p *nstf.Package) (*Model, error) {
	g, err := ParseGraph(p.Model())
	if err != nil {
		return nil, formats.Errorf(p.Path(), "model", "%v", err)
	}
	m := &Model{Path: p.Path(), Kind: KindNSTF, Graph: g, tensors: map[string]formats.Tensor{}, close: []io.Closer{p}}
	known := map[string]bool{}
	for _, w := range g.Weights() {
		item, ok := p.Tensor(w.Name)
		if !ok {
			return nil, formats.Errorf(p.Path(), w.Name, "tensor is missing")
		}
		if !slices.Equal(item.Shape, w.Shape) {
			return nil, formats.Errorf(p.Path(), w.Name, "shape is %v, the graph asks for %v", item.Shape, w.Shape)
		}
		known[w.Name] = true
		m.tensors[w.Name] = item.Tensor
	}
	var inGraph []formats.Tensor
	for _, item := range p.Tensors() {
		if !known[item.Name] {
			m.Passthrough = append(m.Passthrough, item.Tensor)
			continue
		}
		inGraph = append(inGraph, item.Tensor)
	}
	m.Quantized = quantizedAs(inGraph)
	for _, f := range p.Files() {
		data, err := p.File(f.Name)
		if err != nil {
			return nil, err
		}
		m.Files = append(m.Files, File{f.Name, data})
	}
	return m, nil
}

// ParseGraph reads a graph from a package's JSON and checks that a runtime
// can rely on it: every operation is known, sizes agree and lie within
// bounds, and names are there. Unknown keys are refused: an operation that
// this program would leave out is not the same model.
func ParseGraph(data []byte) (*Graph, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	g := &Graph{}
	if err := dec.Decode(g); err != nil {
		return nil, err
	}
	if err := g.Check(); err != nil {
		return nil, err
	}
	return g, nil
}

// Check reports the first thing in a graph that no runtime can execute.
func (g *Graph) Check() error {
	c := checker{g: g}
	c.within("vocab", g.Vocab, 1<<28)
	c.within("width", g.Width, 1<<24)
	c.within("context", g.Context, 1<<40)
	c.within("blocks", int64(len(g.Blocks)), maxLayers)
	c.name("embed.table", g.Embed.Table)
	c.finite("embed.scale", g.Embed.Scale)
	for i := range g.Blocks {
		c.at = fmt.Sprintf("blocks[%d].", i)
		c.block(&g.Blocks[i])
	}
	c.at = ""
	c.norm("norm", g.Norm)
	c.linear("head", &g.Head.Linear, g.Width, g.Vocab)
	c.finite("head.softcap", g.Head.Softcap)
	for i := range g.Ropes {
		c.at = fmt.Sprintf("ropes[%d].", i)
		c.rope(&g.Ropes[i])
	}
	return c.err
}

// A checker remembers the first thing wrong and where it is.
type checker struct {
	g   *Graph
	at  string
	err error
}

func (c *checker) fail(key, format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf("%s%s: %s", c.at, key, fmt.Sprintf(format, args...))
	}
}

func (c *checker) within(key string, v, limit int64) {
	if v < 1 || v > limit {
		c.fail(key, "%d is not between 1 and %d", v, limit)
	}
}

func (c *checker) finite(key string, v float32) {
	if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
		c.fail(key, "%v is not a number", v)
	}
}

func (c *checker) name(key, name string) {
	if name == "" {
		c.fail(key, "tensor name is missing")
	}
}

func (c *checker) norm(key string, n *Norm) {
	switch {
	case n == nil:
		c.fail(key, "norm is missing")
	case n.Kind != RMSNorm && n.Kind != LayerNorm:
		c.fail(key, "kind %q is not known", n.Kind)
	case !(n.Eps > 0):
		c.fail(key, "eps %v is not positive", n.Eps)
	default:
		c.name(key, n.Weight)
	}
}

func (c *checker) optionalNorm(key string, n *Norm) {
	if n != nil {
		c.norm(key, n)
	}
}

func (c *checker) linear(key string, l *Linear, in, out int64) {
	c.name(key, l.Weight)
	if l.In != in || l.Out != out {
		c.fail(key, "%d inputs and %d outputs where %d and %d belong", l.In, l.Out, in, out)
	}
}

func (c *checker) block(b *Block) {
	c.norm("attn_norm", b.AttnNorm)
	c.optionalNorm("attn_post_norm", b.AttnPostNorm)
	c.optionalNorm("ffn_post_norm", b.FFNPostNorm)
	if b.FFNNorm != nil || !b.Parallel {
		c.norm("ffn_norm", b.FFNNorm)
	}
	c.attention(&b.Attn)
	switch {
	case (b.FFN == nil) == (b.MoE == nil):
		c.fail("ffn", "a block has either a feed-forward layer or a mixture")
	case b.FFN != nil:
		c.ffn(b.FFN)
	default:
		c.mixture(b.MoE)
	}
}

func (c *checker) attention(a *Attention) {
	c.within("attn.heads", a.Heads, 1<<16)
	c.within("attn.kv_heads", a.KVHeads, 1<<16)
	c.within("attn.head_dim", a.HeadDim, 1<<16)
	if c.err != nil {
		return
	}
	if a.Heads%a.KVHeads != 0 {
		c.fail("attn.heads", "%d is not a multiple of %d key-value heads", a.Heads, a.KVHeads)
	}
	if a.Rope < -1 || a.Rope >= len(c.g.Ropes) {
		c.fail("attn.rope", "%d is not one of %d", a.Rope, len(c.g.Ropes))
	} else if a.Rope >= 0 && c.g.Ropes[a.Rope].Dim > a.HeadDim {
		c.fail("attn.rope", "rotates %d numbers of a head of %d", c.g.Ropes[a.Rope].Dim, a.HeadDim)
	}
	if a.Window < 0 || !(a.Softcap >= 0) {
		c.fail("attn", "window %d and softcap %v must not be negative", a.Window, a.Softcap)
	}
	c.finite("attn.scale", a.Scale)
	c.finite("attn.softcap", a.Softcap)
	c.optionalNorm("attn.q_norm", a.QNorm)
	c.optionalNorm("attn.k_norm", a.KNorm)
	q, kv := a.Heads*a.HeadDim, a.KVHeads*a.HeadDim
	c.linear("attn.q", &a.Q, c.g.Width, q)
	c.linear("attn.k", &a.K, c.g.Width, kv)
	c.linear("attn.v", &a.V, c.g.Width, kv)
	c.linear("attn.o", &a.O, q, c.g.Width)
}

func (c *checker) activation(key string, a Activation) {
	switch a {
	case SiLU, GELU, GELUTanh, GELUQuick, ReLU:
	default:
		c.fail(key, "activation %q is not known", a)
	}
}

func (c *checker) ffn(f *FFN) {
	c.activation("ffn.act", f.Act)
	c.within("ffn.up", f.Up.Out, 1<<28)
	c.linear("ffn.up", &f.Up, c.g.Width, f.Up.Out)
	c.linear("ffn.down", &f.Down, f.Up.Out, c.g.Width)
	if f.Gate != nil {
		c.linear("ffn.gate", f.Gate, c.g.Width, f.Up.Out)
	}
}

func (c *checker) mixture(m *MoE) {
	c.activation("moe.act", m.Act)
	c.within("moe.experts", m.Experts, 1<<16)
	c.within("moe.top_k", m.TopK, m.Experts)
	c.within("moe.up", m.Up.Out, 1<<28)
	c.linear("moe.router", &m.Router, c.g.Width, m.Experts)
	c.linear("moe.gate", &m.Gate, c.g.Width, m.Up.Out)
	c.linear("moe.up", &m.Up, c.g.Width, m.Up.Out)
	c.linear("moe.down", &m.Down, m.Up.Out, c.g.Width)
}

func (c *checker) rope(r *Rope) {
	if r.Style != RopeHalf && r.Style != RopeInterleaved {
		c.fail("style", "%q is not known", r.Style)
	}
	if err := r.check(1 << 16); err != nil {
		c.fail("", "%v", err)
	}
	switch s := &r.Scaling; s.Kind {
	case ScaleNone, ScaleLinear, ScaleDynamic, ScaleLlama3, ScaleYarn:
	case ScaleFactors:
		if s.Short == nil {
			c.fail("scaling", "factors are missing")
		}
	case ScaleLongRope:
		if s.Short == nil || s.Long == nil {
			c.fail("scaling", "factors are missing")
		}
	default:
		c.fail("scaling", "kind %q is not known", s.Kind)
	}
}
