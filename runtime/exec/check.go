package exec

import (
	"fmt"
	"math"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/model"
)

// check holds a graph to what the backends rely on, so that nothing in a
// package, however it came about, makes them panic: sizes that fit together.
// That the stored tensors have these sizes a backend checks when it opens
// them, and operations that it does not know it refuses.
func check(file string, g *model.Graph) error {
	c := checker{file: file, g: g}
	c.size("vocab", g.Vocab, 1<<31-1)
	c.size("width", g.Width, 1<<24)
	c.size("context", g.Context, math.MaxInt64)
	c.name("embed.table", g.Embed.Table)
	for i := range g.Ropes {
		c.rope(i, &g.Ropes[i])
	}
	if len(g.Blocks) == 0 {
		c.fail("blocks", "is empty")
	}
	for i := range g.Blocks {
		c.block(i, &g.Blocks[i])
	}
	c.norm("norm", g.Norm)
	c.linear("head", &g.Head.Linear, g.Width, g.Vocab)
	return c.err
}

// A checker remembers the first thing that is wrong with a graph.
type checker struct {
	file string
	g    *model.Graph
	err  error
}

func (c *checker) fail(place, format string, args ...any) {
	if c.err == nil {
		c.err = formats.Errorf(c.file, "graph."+place, format, args...)
	}
}

func (c *checker) unsupported(place, format string, args ...any) {
	if c.err == nil {
		c.err = formats.Unsupportedf(c.file, "graph."+place, format, args...)
	}
}

func (c *checker) size(place string, n, most int64) {
	if n < 1 || n > most {
		c.fail(place, "%d is not between 1 and %d", n, most)
	}
}

func (c *checker) name(place, name string) {
	if name == "" {
		c.fail(place, "names no tensor")
	}
}

func (c *checker) norm(place string, n *model.Norm) {
	if n == nil {
		c.fail(place, "is missing")
		return
	}
	c.name(place, n.Weight)
}

func (c *checker) optional(place string, n *model.Norm) {
	if n != nil {
		c.norm(place, n)
	}
}

func (c *checker) linear(place string, l *model.Linear, in, out int64) {
	c.name(place, l.Weight)
	if l.In != in || l.Out != out {
		c.fail(place, "is %d x %d where its neighbours ask for %d x %d", l.Out, l.In, out, in)
	}
}

func (c *checker) rope(i int, r *model.Rope) {
	place, s := fmt.Sprintf("ropes.%d", i), &r.Scaling
	if r.Dim < 2 || r.Dim%2 != 0 || r.Dim > 1<<16 {
		c.fail(place, "dimension %d is not even and between 2 and 65536", r.Dim)
		return
	}
	if r.Style != model.RopeHalf && r.Style != model.RopeInterleaved {
		c.unsupported(place, "style %q", r.Style)
	}
	pairs := int(r.Dim / 2)
	short, long := 0, 0 // the factors that Frequencies reads
	switch s.Kind {
	case model.ScaleNone, model.ScaleLinear, model.ScaleDynamic, model.ScaleLlama3, model.ScaleYarn:
	case model.ScaleFactors:
		short = pairs
	case model.ScaleLongRope:
		short, long = pairs, pairs
	default:
		c.unsupported(place, "scaling %q", s.Kind)
		return
	}
	if len(s.Short) != short || len(s.Long) != long {
		c.fail(place, "%d short and %d long factors where %q has %d and %d", len(s.Short), len(s.Long), s.Kind, short, long)
	}
}

func (c *checker) block(i int, b *model.Block) {
	place, d := fmt.Sprintf("blocks.%d", i), c.g.Width
	c.norm(place+".attn_norm", b.AttnNorm)
	c.attention(place+".attn", &b.Attn, d)
	if b.FFNNorm != nil || !b.Parallel {
		c.norm(place+".ffn_norm", b.FFNNorm)
	}
	c.optional(place+".attn_post_norm", b.AttnPostNorm)
	c.optional(place+".ffn_post_norm", b.FFNPostNorm)
	if (b.FFN == nil) == (b.MoE == nil) {
		c.fail(place, "has not exactly one of ffn and moe")
		return
	}
	if f := b.FFN; f != nil {
		c.size(place+".ffn", f.Up.Out, 1<<28)
		if f.Gate != nil {
			c.linear(place+".ffn.gate", f.Gate, d, f.Up.Out)
		}
		c.linear(place+".ffn.up", &f.Up, d, f.Up.Out)
		c.linear(place+".ffn.down", &f.Down, f.Up.Out, d)
		return
	}
	m := b.MoE
	// The role says that a weight is a stack.
	if m.Gate.Role != model.RoleXGate || m.Up.Role != model.RoleXUp || m.Down.Role != model.RoleXDown {
		c.fail(place+".moe", "has roles %q, %q and %q", m.Gate.Role, m.Up.Role, m.Down.Role)
	}
	c.size(place+".moe.experts", m.Experts, 1<<16)
	c.size(place+".moe.top_k", m.TopK, max(m.Experts, 1))
	c.size(place+".moe", m.Up.Out, 1<<28)
	c.linear(place+".moe.router", &m.Router, d, m.Experts)
	c.linear(place+".moe.gate", &m.Gate, d, m.Up.Out)
	c.linear(place+".moe.up", &m.Up, d, m.Up.Out)
	c.linear(place+".moe.down", &m.Down, m.Up.Out, d)
}

func (c *checker) attention(place string, a *model.Attention, d int64) {
	c.size(place+".heads", a.Heads, 1<<16)
	c.size(place+".kv_heads", a.KVHeads, 1<<16)
	c.size(place+".head_dim", a.HeadDim, 1<<16)
	if c.err != nil {
		return
	}
	if a.Heads%a.KVHeads != 0 {
		c.fail(place, "%d heads are not a multiple of %d key-value heads", a.Heads, a.KVHeads)
	}
	if a.Rope < -1 || a.Rope >= len(c.g.Ropes) {
		c.fail(place+".rope", "%d is not one of %d", a.Rope, len(c.g.Ropes))
	} else if a.Rope >= 0 && c.g.Ropes[a.Rope].Dim > a.HeadDim {
		c.fail(place+".rope", "turns %d numbers of a head of %d", c.g.Ropes[a.Rope].Dim, a.HeadDim)
	}
	if a.Window < 0 {
		c.fail(place+".window", "%d is negative", a.Window)
	}
	c.optional(place+".q_norm", a.QNorm)
	c.optional(place+".k_norm", a.KNorm)
	q, kv := a.Heads*a.HeadDim, a.KVHeads*a.HeadDim
	c.linear(place+".q", &a.Q, d, q)
	c.linear(place+".k", &a.K, d, kv)
	c.linear(place+".v", &a.V, d, kv)
	c.linear(place+".o", &a.O, q, d)
}
