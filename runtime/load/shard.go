package load

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/form"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/scheme"
)

// A Shard is what one of several ranks has of a model that they compute together: heads of
// attention with their rows of the query, key and value matrices and their columns of the
// output matrix, heads or channels of a recurrent mixer in the same way, rows of the gate
// and up matrices with their columns of down, and rows of the head. What the mixer and the
// feed-forward layer give is then a part of a sum; biases that are added behind it are rank
// 0's. Norms are whole, but for those with weights for each head, and so are the embedding and
// what makes inputs of each layer and adds them.
//
// Each expert of a mixture is cut as a layer is, and routers are whole: all ranks choose the
// same experts, and have as much to read of each. Whole experts on one rank each would leave
// ranks idle, as a token uses few: of 8 of 128, the rank with most of them would have 1.3 times
// its share in the mean where there are 2 ranks, 1.7 times where there are 4.
type Shard struct {
	Graph *graph.Graph // not checked: its head gives fewer logits than its vocabulary
	// Units and Unit say how the logits are cut: rank r of n has those from
	// Units*r/n*Unit on.
	Units, Unit int
	tensor      func(name string) formats.Tensor
	cuts        map[string]cut
	own         map[string]formats.Tensor // of cuts
}

// A cut is the rows or columns of a tensor that a rank has, or matrices of a stack.
type cut struct {
	of   string // the stored tensor
	runs []scheme.Run
	axis axis
}

// An axis is what runs of a cut count.
type axis uint8

const (
	byRow axis = iota
	byColumn
	byMatrix
	byEach // rows of each matrix of a stack
)

// open cuts a stored tensor.
func (p *cut) open(t formats.Tensor) (formats.Tensor, error) {
	switch {
	case p.axis == byColumn:
		return form.Columns(t, p.dense)
	case p.axis == byMatrix && t.Form != "":
		return formats.Tensor{}, formats.Unsupportedf("", t.Name, "some matrices of the form %s", t.Form)
	}
	return form.Rows(t, p.dense)
}

// dense cuts a stored tensor without a form, or a factor.
func (p *cut) dense(t formats.Tensor) (formats.Tensor, error) {
	switch p.axis {
	case byColumn:
		return scheme.Columns(t, p.runs...)
	case byEach:
		return scheme.Each(t, p.runs[0].From, p.runs[0].N)
	}
	shape, each := slices.Clone(t.Shape), int64(1)
	if p.axis == byMatrix && len(shape) > 2 {
		each = shape[1]
	}
	var parts []formats.Tensor
	shape[0] = 0
	for _, r := range p.runs {
		own, err := scheme.Slice(t, r.From*each, r.N*each)
		if err != nil {
			return formats.Tensor{}, err
		}
		parts, shape[0] = append(parts, own), shape[0]+r.N
	}
	if len(parts) == 1 && len(shape) < 3 {
		return parts[0], nil
	}
	return scheme.Concat(t.Name, shape, parts...)
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
	for i := range own.Blocks {
		c.at = int64(i)
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
	at          int64 // the block that is cut
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
	t := c.tensor(p.of)
	if p.axis != byMatrix && !slices.ContainsFunc(p.runs, func(r scheme.Run) bool { return r.N > 0 }) {
		c.own[name] = formats.Tensor{Name: t.Name, Scheme: t.Scheme, Params: t.Params, Shape: make([]int64, len(t.Shape))}
		return
	}
	own, err := p.open(t)
	if e, ok := errors.AsType[*formats.UnsupportedError](err); ok {
		c.fail(p.of, "%s", e.Feature)
		return
	}
	c.own[name], c.err = own, err
}

// share returns which of n things are the rank's.
func (c *cutter) share(n int64) (lo, count int64) { return share(n, c.rank, c.ranks) }

// share returns one of so many neighbouring shares of n things.
func share(n, which, of int64) (lo, count int64) {
	lo = n * which / of
	return lo, n*(which+1)/of - lo
}

// part notes that the rank has a part of a tensor.
func (c *cutter) part(name string, p cut) {
	if p.of == "" {
		p.of = name
	}
	if old, ok := c.cuts[name]; ok && (old.of != p.of || old.axis != p.axis || !slices.Equal(old.runs, p.runs)) {
		c.fail(name, "a tensor that is read in two places")
	}
	c.cuts[name] = p
}

// rows gives a linear runs of its rows, and its bias with them.
func (c *cutter) rows(l *graph.Linear, runs ...scheme.Run) *graph.Linear {
	if l == nil {
		return nil
	}
	own := *l
	own.Out = 0
	for _, r := range runs {
		own.Out += r.N
	}
	c.part(l.Weight, cut{runs: runs})
	c.vector(l.Bias, runs...)
	return &own
}

// vector gives the rank runs of a vector, or of a table's rows; "" is none.
func (c *cutter) vector(name string, runs ...scheme.Run) {
	if name != "" {
		c.part(name, cut{runs: runs})
	}
}

// columns gives a linear runs of its columns. Its bias is rank 0's.
func (c *cutter) columns(l *graph.Linear, runs ...scheme.Run) graph.Linear {
	own := *l
	own.In = 0
	unit := c.unit(l.Weight)
	for _, r := range runs {
		if own.In += r.N; r.From%unit != 0 || r.N%unit != 0 && r.From+r.N != l.In {
			c.fail(l.Weight, "columns %d to %d, where blocks have %d", r.From, r.From+r.N, unit)
		}
	}
	c.part(l.Weight, cut{runs: runs, axis: byColumn})
	if c.rank > 0 {
		own.Bias = ""
	}
	return own
}

// each gives a stack a run of the rows of each of its matrices, and of their biases.
func (c *cutter) each(l *graph.Linear, run scheme.Run) *graph.Linear {
	if l == nil {
		return nil
	}
	own := *l
	own.Out = run.N
	c.part(l.Weight, cut{runs: []scheme.Run{run}, axis: byEach})
	if l.Bias != "" {
		c.part(l.Bias, cut{runs: []scheme.Run{run}, axis: byColumn})
	}
	return &own
}

// unit is how many columns of a tensor lie together, and rows of those that make what it
// reads.
func (c *cutter) unit(name string, before ...*graph.Linear) int64 {
	t := c.tensor(name)
	_, unit := form.Unit(&t)
	unit = max(unit, 1)
	for _, l := range before {
		if l != nil {
			t = c.tensor(l.Weight)
			rows, _ := form.Unit(&t)
			unit = unit / divisor(unit, rows) * rows
		}
	}
	return unit
}

// divisor is the greatest of two numbers.
func divisor(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

func (c *cutter) block(b *graph.Block) {
	switch {
	case b.Feeds() && b.FFN == nil && b.MoE == nil: // all ranks would add the same
		c.fail("", "an operation that nobody cuts")
	}
	if c.err != nil {
		return
	}
	c.mixer(b)
	if b.FFN != nil {
		b.FFN = c.feedForward(b.FFN)
	}
	if b.MoE != nil {
		b.MoE = c.mixture(b.MoE)
	}
}

// feedForward cuts between blocks of down's columns and of the others' rows, and where the
// layer is wide between whole tiles.
func (c *cutter) feedForward(f *graph.FFN) *graph.FFN {
	own := *f
	run := c.tiles(&f.Down, f.Gate, &f.Up)
	own.Gate, own.Up, own.Down = c.rows(f.Gate, run), *c.rows(&f.Up, run), c.columns(&f.Down, run)
	own.Down.Bias = c.last(&f.Down)
	return &own
}

// mixture cuts each expert, and the layer that all rows go through.
func (c *cutter) mixture(m *graph.MoE) *graph.MoE {
	own := *m
	run := c.tiles(&m.Down, m.Gate, &m.Up)
	own.Gate, own.Up, own.Down = c.each(m.Gate, run), *c.each(&m.Up, run), c.columns(&m.Down, run)
	own.Down.Bias = c.last(&m.Down)
	if m.LatentUp != nil { // of a part of what experts give
		up := *m.LatentUp
		up.Bias = c.last(&up)
		own.LatentUp = &up
	}
	if m.Shared != nil {
		own.Shared = c.feedForward(m.Shared)
	}
	return &own
}

// piece is which part of a layer is the rank's: another one in each block, so that where parts
// are uneven all ranks need as much memory.
func (c *cutter) piece() int64 { return (c.rank + c.at) % c.ranks }

// last returns the bias behind a layer, for the rank that has its last piece, which is never
// empty.
func (c *cutter) last(l *graph.Linear) string {
	if c.piece() == c.ranks-1 {
		return l.Bias
	}
	return ""
}

// tiles returns which columns of a matrix are the rank's, and which rows of those that make
// what it reads: none where there are fewer blocks of them than ranks, and others have them.
func (c *cutter) tiles(l *graph.Linear, before ...*graph.Linear) scheme.Run {
	unit := c.unit(l.Weight, before...)
	for unit < widestTile && l.In%(2*unit) == 0 && l.In/(2*unit) >= tilesOfRank*c.ranks {
		unit *= 2
	}
	lo, n := share((l.In+unit-1)/unit, c.piece(), c.ranks) // the last block may be short
	return scheme.Run{From: lo * unit, N: min(n*unit, l.In-lo*unit)}
}

const (
	widestTile  = 256 // columns that products take together
	tilesOfRank = 8   // so that uneven shares differ by little
)

// head cuts the vocabulary. A head that is the embedding table reads a part of it, beside
// the whole.
func (c *cutter) head(g *graph.Graph) {
	table := c.tensor(g.Head.Weight)
	rows, _ := form.Unit(&table)
	c.Unit = 1
	for c.Unit < max(64, int(rows)) && g.Vocab%int64(2*c.Unit) == 0 && g.Vocab/int64(2*c.Unit) >= c.ranks {
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
	run := scheme.Run{From: lo * int64(c.Unit), N: head.Out}
	c.part(head.Weight, cut{of: name, runs: []scheme.Run{run}})
	c.vector(head.Bias, run)
	if head.Out == 0 {
		c.fail(name, "a vocabulary of %d on %d GPUs", g.Vocab, c.ranks)
	}
	g.Head.Linear = head
}
