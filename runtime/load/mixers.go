package load

import (
	"fmt"

	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/scheme"
)

// mixer cuts what a block mixes positions with, if it does.
func (c *cutter) mixer(b *graph.Block) {
	switch {
	case !b.Mixes():
	case b.Attn != nil:
		b.Attn = c.attention(b.Attn)
	case b.Delta != nil:
		b.Delta = c.delta(b.Delta)
	case b.Mamba != nil:
		b.Mamba = c.mamba(b.Mamba)
	case b.ShortConv != nil:
		b.ShortConv = c.shortConv(b.ShortConv)
	case b.Latent != nil:
		b.Latent = c.latent(b.Latent)
	default: // all ranks would add the same
		c.fail("", "an operation that nobody cuts")
	}
}

// heads returns which of n heads, or groups of heads, are the rank's, each of which has so
// many columns of an output matrix: as many lie together as blocks of it ask for.
func (c *cutter) heads(l *graph.Linear, what string, n, columns int64) (lo, count int64) {
	unit, together := c.unit(l.Weight), int64(1)
	for together*columns%unit != 0 {
		together++
	}
	switch {
	case n < c.ranks:
		c.fail(l.Weight, "%d %s on %d GPUs", n, what, c.ranks)
	case n%together != 0 || n/together < c.ranks:
		c.fail(l.Weight, "%d %s of %d columns on %d GPUs, where blocks have %d", n, what, columns, c.ranks, unit)
	default:
		lo, count = c.share(n / together)
	}
	return lo * together, count * together
}

// times returns a run of things that have so many numbers each, behind others.
func times(behind, lo, n, each int64) scheme.Run {
	return scheme.Run{From: behind + lo*each, N: n * each}
}

// spread returns runs of heads as runs of their numbers.
func spread(heads []scheme.Run, behind, each int64) (out []scheme.Run) {
	for _, r := range heads {
		out = append(out, times(behind, r.From, r.N, each))
	}
	return out
}

// KeyHeads returns which key-value heads of a block are a rank's. Of fewer heads than ranks
// several ranks have the same one.
func KeyHeads(heads int64, rank, ranks int) (lo, n int64) {
	r, of := int64(rank), int64(ranks)
	lo = heads * r / of
	return lo, max(heads*(r+1)/of-lo, 1)
}

// attention cuts by key-value heads, each with the query heads that read it, or where there
// are fewer than ranks cuts the query heads of each.
func (c *cutter) attention(a *graph.Attention) *graph.Attention {
	own := *a
	group := a.Heads / a.KVHeads
	lo, n := KeyHeads(a.KVHeads, int(c.rank), int(c.ranks))
	heads := times(0, lo, n, group)
	if c.ranks > a.KVHeads {
		heads = c.within(&a.O, "key-value heads", "query heads", a.KVHeads, lo, group, a.HeadDim)
	}
	if heads.N == 0 {
		return &own
	}
	own.KVHeads, own.Heads = n, heads.N
	keys := scheme.Run{From: lo, N: n}
	q, kv := times(0, heads.From, heads.N, a.HeadDim), times(0, lo, n, a.HeadDim)
	own.Q, own.Gate, own.K, own.V = *c.rows(&a.Q, q), c.rows(a.Gate, q), c.rows(a.K, kv), c.rows(a.V, kv)
	c.vector(a.Sinks, heads)
	if a.HeadNorms { // a row of weights for each head
		c.norm(a.QNorm, heads)
		c.norm(a.KNorm, keys)
	}
	if a.JointNorms {
		c.joint(a.QNorm, q)
		c.joint(a.KNorm, kv)
	}
	own.O = c.columns(&a.O, q)
	return &own
}

// within returns which of the heads of a group, of which there are fewer than ranks, are the
// rank's: of so many heads in each, with so many columns of an output matrix.
func (c *cutter) within(l *graph.Linear, groups, heads string, count, group, each, columns int64) scheme.Run {
	first := (group*c.ranks + count - 1) / count // rank that has this group
	last := ((group+1)*c.ranks + count - 1) / count
	own := *c
	own.rank, own.ranks = c.rank-first, last-first
	lo, n := own.heads(l, fmt.Sprintf("%s of one of %d %s", heads, count, groups), each, columns)
	if c.err == nil {
		c.err = own.err
	}
	return scheme.Run{From: group*each + lo, N: n}
}

// joint gives a norm of all heads at once runs of its weights. Its squares are added up over
// ranks.
func (c *cutter) joint(n *graph.Norm, runs ...scheme.Run) {
	if n != nil && n.Kind != graph.RMSNorm {
		c.fail(n.Weight, "a layer norm of all heads at once")
	}
	c.norm(n, runs...)
}

// norm gives a norm runs of its weights.
func (c *cutter) norm(n *graph.Norm, runs ...scheme.Run) {
	if n != nil {
		c.vector(n.Weight, runs...)
		c.vector(n.Bias, runs...)
	}
}

// delta cuts by key heads, each with the value heads that read it. What Z and Alpha read of
// matrices before them, all heads read: they are every rank's.
func (c *cutter) delta(d *graph.Delta) *graph.Delta {
	own := *d
	group := d.Heads / d.KeyHeads
	columns := group * d.ValueDim
	if d.Tiled { // of each tile the rank has a run
		columns = d.ValueDim
	}
	lo, n := c.heads(&d.Out, "key heads", d.KeyHeads, columns)
	if n == 0 {
		return &own
	}
	heads := []scheme.Run{times(0, lo, n, group)}
	if d.Tiled {
		heads = nil
		for tile := range group {
			heads = append(heads, scheme.Run{From: tile*d.KeyHeads + lo, N: n})
		}
	}
	own.KeyHeads, own.Heads = n, n*group
	keys, values := d.KeyHeads*d.KeyDim, spread(heads, 0, d.ValueDim)
	channels := append([]scheme.Run{times(0, lo, n, d.KeyDim), times(keys, lo, n, d.KeyDim)}, spread(heads, 2*keys, d.ValueDim)...)
	own.QKV, own.Z = *c.rows(&d.QKV, channels...), *c.rows(&d.Z, values...)
	fades := heads
	if d.ByChannel {
		fades = spread(heads, 0, d.KeyDim)
	}
	own.Beta, own.Alpha = *c.rows(&d.Beta, heads...), *c.rows(&d.Alpha, fades...)
	c.vector(d.Conv, channels...)
	c.vector(d.Decay, heads...)
	c.vector(d.DTBias, fades...)
	own.Out = c.columns(&d.Out, values...)
	return &own
}

// mamba cuts by groups, each with its heads, or where there are fewer than ranks cuts the
// heads of each: what a group has in common is then computed by each of its ranks.
func (c *cutter) mamba(m *graph.Mamba) *graph.Mamba {
	own := *m
	group := m.Heads / m.Groups
	var lo, n int64
	var heads scheme.Run
	if c.ranks > m.Groups {
		lo, n = KeyHeads(m.Groups, int(c.rank), int(c.ranks))
		heads = c.within(&m.Out, "groups", "heads", m.Groups, lo, group, m.HeadDim)
	} else {
		lo, n = c.heads(&m.Out, "groups of heads", m.Groups, group*m.HeadDim)
		heads = times(0, lo, n, group)
	}
	if heads.N == 0 {
		return &own
	}
	own.Groups, own.Heads = n, heads.N
	all, values := m.Groups*m.State, times(0, heads.From, heads.N, m.HeadDim)
	channels := []scheme.Run{values, times(m.Values(), lo, n, m.State), times(m.Values()+all, lo, n, m.State)}
	own.Z, own.XBC, own.DT = *c.rows(&m.Z, values), *c.rows(&m.XBC, channels...), *c.rows(&m.DT, heads)
	c.vector(m.Conv, channels...)
	c.vector(m.ConvBias, channels...)
	for _, name := range []string{m.Decay, m.DTBias, m.Skip} {
		c.vector(name, heads)
	}
	c.norm(m.Norm, values)
	own.Out = c.columns(&m.Out, values)
	return &own
}

// shortConv cuts by channels.
func (c *cutter) shortConv(s *graph.ShortConv) *graph.ShortConv {
	own := *s
	run := c.tiles(&s.Out, &s.In)
	if run.N == 0 {
		c.fail(s.Out.Weight, "%d channels on %d GPUs", s.Channels(), c.ranks)
		return &own
	}
	all := s.Channels()
	own.In = *c.rows(&s.In, run, times(all, run.From, run.N, 1), times(2*all, run.From, run.N, 1))
	c.vector(s.Conv, run)
	c.vector(s.ConvBias, run)
	own.Out = c.columns(&s.Out, run)
	return &own
}

// latent cuts by heads. Latents, which all of them read, are every rank's.
func (c *cutter) latent(a *graph.Latent) *graph.Latent {
	own := *a
	lo, n := c.heads(&a.O, "heads", a.Heads, a.ValueDim)
	if n == 0 {
		return &own
	}
	own.Heads = n
	own.Q = *c.rows(&a.Q, times(0, lo, n, a.QueryDim()))
	own.KB, own.VB = c.stack(&a.KB, lo, n), c.stack(&a.VB, lo, n)
	own.O = c.columns(&a.O, times(0, lo, n, a.ValueDim))
	return &own
}

// stack gives a linear of several matrices those from lo on, and their biases.
func (c *cutter) stack(l *graph.Linear, lo, n int64) graph.Linear {
	run := scheme.Run{From: lo, N: n}
	c.part(l.Weight, cut{runs: []scheme.Run{run}, axis: byMatrix})
	c.vector(l.Bias, run)
	return *l
}
