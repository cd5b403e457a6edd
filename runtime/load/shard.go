package load

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/scheme"
)

// A Shard is what one of several ranks has of a model that they compute together: heads of
// attention with their rows of the query, key and value matrices and their columns of the
// output matrix, rows of the gate and up matrices with their columns of down, and rows of
// the head. What attention and the feed-forward layer give is then a part of a sum; biases
// that are added behind it are rank 0's. Norms are whole, but for those
// with weights for each head, and so is the embedding.
type Shard struct {
	Graph *graph.Graph // not checked: its head gives fewer logits than its vocabulary
	// Units and Unit say how the logits are cut: rank r of n has those from
	// Units*r/n*Unit on.
	Units, Unit int
	tensor      func(name string) formats.Tensor
	cuts        map[string]cut
	own         map[string]formats.Tensor // of cuts
}

// A cut is the rows or columns of a tensor that a rank has.
type cut struct {
	of      string // the stored tensor
	lo, n   int64
	columns bool
}

// Cut returns what a rank of several has of a checked graph, and reads nothing. Sizes that
// the number of ranks does not divide are cut unevenly. It fails with an UnsupportedError,
// which names what it is, where a block has something that is not cut.
func Cut(g *graph.Graph, tensor func(name string) formats.Tensor, rank, ranks int) (*Shard, error) {
	s := &Shard{tensor: tensor, cuts: map[string]cut{}, own: map[string]formats.Tensor{}}
	own := *g
	own.Blocks, own.MTP = slices.Clone(g.Blocks), nil
	s.Graph = &own
	c := &cutter{Shard: s, rank: int64(rank), ranks: int64(ranks)}
	if g.PerLayer != nil {
		return nil, Uncut("", "inputs of each layer")
	}
	for i := range own.Blocks {
		c.block(&own.Blocks[i])
	}
	c.head(&own)
	for _, name := range slices.Sorted(maps.Keys(c.cuts)) { // one error, whichever is met
		c.open(name, c.cuts[name])
	}
	if c.err != nil {
		return nil, c.err
	}
	return s, nil
}

// Tensor returns what the rank has of a stored tensor, by a name of its graph's.
func (s *Shard) Tensor(name string) formats.Tensor {
	if t, ok := s.own[name]; ok {
		return t
	}
	return s.tensor(name)
}

// Uncut is the error of what cannot be shared by its tensors; name is a tensor's, or none.
func Uncut(name, what string, args ...any) error {
	e := formats.Unsupportedf("", name, "tensors cut over several GPUs: "+what, args...)
	e.Hint = "share the model by its layers (--split layers)"
	return e
}

// A cutter remembers the first error.
type cutter struct {
	*Shard
	rank, ranks int64
	err         error
}

func (c *cutter) fail(name, what string, args ...any) {
	if c.err == nil {
		c.err = Uncut(name, what, args...)
	}
}

// open cuts a tensor.
func (c *cutter) open(name string, p cut) {
	if c.err != nil {
		return
	}
	t, part := c.tensor(p.of), scheme.Slice
	if t.Form != "" {
		c.fail(p.of, "a matrix of the form %s", t.Form)
		return
	}
	if p.columns {
		part = scheme.Columns
	}
	own, err := part(t, p.lo, p.n)
	if e, ok := errors.AsType[*formats.UnsupportedError](err); ok {
		c.fail(p.of, "%v", e)
		return
	}
	c.own[name], c.err = own, err
}

// share returns which of n things are the rank's.
func (c *cutter) share(n int64) (lo, count int64) {
	lo = n * c.rank / c.ranks
	return lo, n*(c.rank+1)/c.ranks - lo
}

// part notes that the rank has a part of a tensor.
func (c *cutter) part(name string, p cut) {
	if p.of == "" {
		p.of = name
	}
	if old, ok := c.cuts[name]; ok && old != p {
		c.fail(name, "a tensor that is read in two places")
	}
	c.cuts[name] = p
}

// rows gives a linear the rows from lo on, and its bias with them.
func (c *cutter) rows(l *graph.Linear, lo, n int64) *graph.Linear {
	if l == nil {
		return nil
	}
	own := *l
	own.Out = n
	c.part(l.Weight, cut{lo: lo, n: n})
	if l.Bias != "" {
		c.part(l.Bias, cut{lo: lo, n: n})
	}
	return &own
}

// columns gives a linear the columns from lo on. Its bias is rank 0's.
func (c *cutter) columns(l *graph.Linear, lo, n int64) graph.Linear {
	own := *l
	own.In = n
	c.part(l.Weight, cut{lo: lo, n: n, columns: true})
	if c.rank > 0 {
		own.Bias = ""
	}
	if unit := c.unit(l.Weight); lo%unit != 0 || n%unit != 0 {
		c.fail(l.Weight, "columns %d to %d, where blocks have %d", lo, lo+n, unit)
	}
	return own
}

// unit is how many columns of a tensor lie together.
func (c *cutter) unit(name string) int64 {
	t := c.tensor(name)
	s, ok := scheme.ByName(t.Scheme)
	if !ok || s.Block < 1 {
		return 1
	}
	return int64(s.Block)
}

func (c *cutter) block(b *graph.Block) {
	switch {
	case b.MoE != nil:
		c.fail(b.MoE.Router.Weight, "a mixture of experts")
	case b.Latent != nil:
		c.fail(b.Latent.O.Weight, "attention over latents")
	case b.Delta != nil, b.Mamba != nil, b.ShortConv != nil:
		c.fail("", "recurrent blocks")
	case b.PerLayer != nil:
		c.fail("", "inputs of each layer")
	case b.Mixes() && b.Attn == nil, b.Feeds() && b.FFN == nil: // all ranks would add the same
		c.fail("", "an operation that nobody cuts")
	}
	if c.err != nil {
		return
	}
	if b.Attn != nil {
		b.Attn = c.attention(b.Attn)
	}
	if b.FFN != nil {
		b.FFN = c.feedForward(b.FFN)
	}
}

func (c *cutter) attention(a *graph.Attention) *graph.Attention {
	own := *a
	lo, n := c.share(a.KVHeads)
	if a.JointNorms {
		c.fail(a.Q.Weight, "norms of all heads at once")
	}
	if n == 0 || c.ranks > a.KVHeads {
		c.fail(a.Q.Weight, "%d key-value heads on %d GPUs", a.KVHeads, c.ranks)
		return &own
	}
	group := a.Heads / a.KVHeads
	own.KVHeads, own.Heads = n, n*group
	q, qn := lo*group*a.HeadDim, n*group*a.HeadDim
	own.Q, own.Gate = *c.rows(&a.Q, q, qn), c.rows(a.Gate, q, qn)
	own.K, own.V = c.rows(a.K, lo*a.HeadDim, n*a.HeadDim), c.rows(a.V, lo*a.HeadDim, n*a.HeadDim)
	if a.Sinks != "" {
		c.part(a.Sinks, cut{lo: lo * group, n: n * group})
	}
	if a.HeadNorms { // a row of weights for each head
		c.heads(a.QNorm, lo*group, n*group)
		c.heads(a.KNorm, lo, n)
	}
	own.O = c.columns(&a.O, q, qn)
	return &own
}

// heads gives a norm the weights of heads from lo on.
func (c *cutter) heads(norm *graph.Norm, lo, n int64) {
	if norm == nil {
		return
	}
	for _, name := range []string{norm.Weight, norm.Bias} {
		if name != "" {
			c.part(name, cut{lo: lo, n: n})
		}
	}
}

// feedForward cuts between blocks of down's columns, and where the layer is wide between
// whole tiles of them.
func (c *cutter) feedForward(f *graph.FFN) *graph.FFN {
	own := *f
	unit := c.unit(f.Down.Weight)
	for unit < widestTile && f.Up.Out%(2*unit) == 0 && f.Up.Out/(2*unit) >= tilesOfRank*c.ranks {
		unit *= 2
	}
	if f.Up.Out%unit != 0 || f.Up.Out/unit < c.ranks {
		c.fail(f.Down.Weight, "%d columns in blocks of %d on %d GPUs", f.Up.Out, unit, c.ranks)
		return &own
	}
	lo, n := c.share(f.Up.Out / unit)
	own.Gate, own.Up = c.rows(f.Gate, lo*unit, n*unit), *c.rows(&f.Up, lo*unit, n*unit)
	own.Down = c.columns(&f.Down, lo*unit, n*unit)
	return &own
}

const (
	widestTile  = 256 // columns that products take together
	tilesOfRank = 8   // so that uneven shares differ by little
)

// head cuts the vocabulary. A head that is the embedding table reads a part of it, beside
// the whole.
func (c *cutter) head(g *graph.Graph) {
	c.Unit = 1
	for c.Unit < 64 && g.Vocab%int64(2*c.Unit) == 0 && g.Vocab/int64(2*c.Unit) >= c.ranks {
		c.Unit *= 2
	}
	c.Units = int(g.Vocab) / c.Unit
	lo, n := c.share(int64(c.Units))
	head := g.Head.Linear
	name := head.Weight
	if g.Tied() {
		head.Weight = fmt.Sprintf("%s, %d of %d", name, c.rank+1, c.ranks)
	}
	head.Out = n * int64(c.Unit)
	c.part(head.Weight, cut{of: name, lo: lo * int64(c.Unit), n: head.Out})
	if head.Bias != "" {
		c.part(head.Bias, cut{lo: lo * int64(c.Unit), n: head.Out})
	}
	if head.Out == 0 {
		c.fail(name, "a vocabulary of %d on %d GPUs", g.Vocab, c.ranks)
	}
	g.Head.Linear = head
}
