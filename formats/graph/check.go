package graph

import (
	"fmt"
	"math"

	"github.com/nstf/nstf/formats"
)

// MaxBlocks bounds what a configuration or a graph may claim, far above any model.
const MaxBlocks = 4096

// Check reports the first thing in a graph that no runtime can rely on: sizes
// that do not fit together or lie beyond bounds, names that are missing (a
// [formats.FormatError]), operations that are not known (a
// [formats.UnsupportedError]). The errors name the place, not the file: see
// [formats.In].
func (g *Graph) Check() error {
	c := checker{g: g}
	c.within("vocab", g.Vocab, 1<<28)
	c.within("width", g.Width, 1<<24)
	c.within("context", g.Context, 1<<40)
	c.within("blocks", int64(len(g.Blocks)), MaxBlocks)
	c.name("embed.table", g.Embed.Table)
	c.finite("embed.scale", g.Embed.Scale)
	for i := range g.Ropes {
		c.at = fmt.Sprintf("ropes[%d].", i)
		c.rope(&g.Ropes[i])
	}
	if g.PerLayer != nil {
		c.perLayer(g.PerLayer)
	}
	for i := range g.Blocks {
		c.at, c.block = fmt.Sprintf("blocks[%d].", i), i
		c.checkBlock(&g.Blocks[i])
	}
	c.at = ""
	if g.Norm == nil {
		c.fail("norm", "is missing")
	}
	c.parts(g.Ends())
	if c.finite("head.softcap", g.Head.Softcap); !(g.Head.Softcap >= 0) {
		c.fail("head.softcap", "%v is negative", g.Head.Softcap)
	}
	c.modules()
	return c.err
}

// A checker remembers the first thing wrong and where it is.
type checker struct {
	g     *Graph
	at    string
	block int
	mtp   bool // within a module of multi-token prediction
	err   error
}

func (c *checker) fail(key, format string, args ...any) {
	if c.err == nil {
		c.err = formats.Errorf("", "graph."+c.at+key, format, args...)
	}
}

// unsupported says that the graph uses a kind of something that this program
// does not know.
func (c *checker) unsupported(key, what, value string) {
	if c.err == nil {
		c.err = formats.Unsupportedf("", "graph."+c.at+key, "%s %q", what, value)
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

func (c *checker) checkBlock(b *Block) {
	mixers, ffns := b.mixers(), b.ffns()
	switch {
	case len(mixers) > 1:
		c.fail("attn", "a block has one mixer of attn, latent, delta, mamba and shortconv, not %d", len(mixers))
	case len(mixers)+len(ffns) == 0:
		c.fail("ffn", "a block has a mixer, a feed-forward layer or a mixture")
	case b.Parallel && (len(mixers) == 0 || len(ffns) == 0):
		c.fail("parallel", "the block has no mixer, or no layer beside it")
	case len(mixers) == 0 && (b.AttnNorm != nil || b.AttnPostNorm != nil):
		c.fail("attn_norm", "norms of a mixer where there is none")
	case len(ffns) == 0 && (b.FFNNorm != nil || b.FFNPostNorm != nil):
		c.fail("ffn_norm", "norms of a layer where there is none")
	case len(ffns) > 1 && b.Parallel:
		c.fail("ffn", "a parallel block has either a feed-forward layer or a mixture")
	case len(ffns) < 2 && (b.DensePostNorm != nil || b.MoENorm != nil || b.MoEPostNorm != nil):
		c.fail("moe_norm", "norms of a layer and a mixture beside one another, where one is alone")
	case b.Parallel && b.MoE != nil && b.MoE.RouterNorm != nil:
		c.fail("moe.router_norm", "the block is parallel")
	case b.Bare && (b.Parallel || b.AttnNorm != nil || b.FFNNorm != nil):
		c.fail("bare", "the block is parallel, or has norms in front")
	case b.Bare:
	case b.AttnNorm == nil && b.Mixes():
		c.fail("attn_norm", "norm is missing")
	case b.FFNNorm == nil && !b.Parallel && b.Feeds():
		c.fail("ffn_norm", "norm is missing")
	}
	if c.err != nil {
		return
	}
	for _, o := range append(append(mixers, ffns...), present(b.PerLayer)...) {
		o.check(c)
	}
	if c.err == nil { // their sizes may be multiplied
		c.parts(b.Parts(c.g.Width))
	}
}

// parts checks what every operation's parts have in common.
func (c *checker) parts(parts []Part) {
	for i := range parts {
		p := &parts[i]
		switch l := p.Linear; {
		case p.Norm != nil:
			c.norm(p.Name, p.Norm)
		case l == nil: // a vector has a name, or it would be none
		default:
			c.name(p.Name, l.Weight)
			if l.In != p.In || l.Out != p.Out {
				c.fail(p.Name, "%d inputs and %d outputs where %d and %d belong", l.In, l.Out, p.In, p.Out)
			}
			if l.Role.stacked() != (p.Experts > 0) || l.Role.IsMTP() != c.mtp {
				c.fail(p.Name, "role %q is not one of its place", l.Role)
			}
		}
	}
}

func (c *checker) norm(key string, n *Norm) {
	switch {
	case n.Kind != RMSNorm && n.Kind != LayerNorm:
		c.unsupported(key, "norm", string(n.Kind))
	case !(n.Eps > 0):
		c.fail(key, "eps %v is not positive", n.Eps)
	case n.Kind == RMSNorm && n.Bias != "":
		c.unsupported(key, "a bias on norm", string(n.Kind))
	default:
		c.finite(key, n.Scale)
	}
}

func (c *checker) rope(r *Rope) {
	if r.Style != RopeHalf && r.Style != RopeInterleaved {
		c.unsupported("style", "rotary style", string(r.Style))
	}
	s := &r.Scaling
	switch s.Kind {
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
		c.unsupported("scaling", "rotary scaling", string(s.Kind))
	}
	if err := r.Check(1 << 16); err != nil {
		c.fail("scaling", "%v", err)
	}
}
