package gpu

import (
	"errors"
	"slices"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/runtime/gpu/driver"
)

// A tandem is how a team computes a prompt in two parts, of rows behind one another, each on a stream
// of its own: while one part's sums are on their way to the other ranks, or the last blocks of one of
// its launches leave units idle, the other part computes. What goes to other ranks is copied by the
// driver, which takes no unit. The second part's attention waits for the keys and values of the first;
// the first never waits for the second. Where the hardware takes launches of both streams in the order
// in which they were queued, all ranks still end, for that order is the same on all.
//
// A row's bits are those that it has in any pass (docs/decisions/0014-width-independence.md).
type tandem struct {
	stream              *driver.Stream // of the second part
	begun, turned, done *driver.Event  // of the pass, of the first part's keys and values, of the second part
}

// A part is what a walk knows of being one of two: launches begin when those before have ended, for
// units that wait would be the other's.
type part struct {
	ranks  *hip.Ranks
	second bool
	joins  []join
	ends   []int // calls of the walk at the end of the begin, each block, and the end
}

// A join is what a part does in front of one of its calls beside launching.
type join struct {
	at    int
	turns bool // tells the second part that the first's keys and values are there, or waits for that
	moves []hip.Transfer
}

// leastTandem is how many rows are computed in two parts at least, and the first part has whole
// blocks of so many.
const leastTandem, tandemBlock = 512, 128

// firstPart returns how many of rows are the first part's: half of them, or a few more.
func firstPart(rows int) int { return (rows/2 + tandemBlock - 1) / tandemBlock * tandemBlock }

// twofold reports whether ranks compute long prompts in two parts: of blocks that attend and have a
// plain layer, which leave nothing in work space that is not the row's.
func twofold(g *graph.Graph, ranks int, tensor func(name string) formats.Tensor, o *Options) bool {
	if o.Exact || o.Policy != nil || o.KVHost > 0 || g.PerLayer != nil || g.Width%32 != 0 {
		return false
	}
	kept, err := o.formats(len(g.Blocks))
	if err != nil {
		return false
	}
	for i := range g.Blocks {
		b, f := &g.Blocks[i], kept.Of(i)
		if b.Attn == nil || b.FFN == nil || b.MoE != nil || b.Parallel || b.PerLayer != nil || squares(b, ranks) > 0 || f != cpu.KVF16 && f != cpu.KVF32 {
			return false
		}
	}
	for _, w := range g.Weights() {
		if tensor(w.Name).Form != "" {
			return false
		}
	}
	return true
}

// openTandem makes what an engine of a team that computes in two parts needs on its device.
func (e *Engine) openTandem() (err error) {
	if e.team == nil || !e.team.twofold {
		return nil
	}
	t := &tandem{}
	e.tandem = t
	if t.stream, err = e.m.device.Stream(); err != nil {
		return err
	}
	for _, v := range []**driver.Event{&t.begun, &t.turned, &t.done} {
		if *v, err = e.m.device.Event(); err != nil {
			return err
		}
	}
	return nil
}

// close gives it back.
func (t *tandem) close() (errs []error) {
	if t == nil {
		return nil
	}
	for _, v := range []*driver.Event{t.begun, t.turned, t.done} {
		if v != nil {
			errs = append(errs, v.Free())
		}
	}
	if t.stream != nil {
		errs = append(errs, t.stream.Close())
	}
	return errs
}

// inTandem reports whether rows of a prompt are computed in two parts.
func (e *Engine) inTandem(rows int, many bool) bool {
	return many && rows >= leastTandem && e.team != nil && e.team.twofold && e.gathering == nil
}

// parts lists a pass in two parts, the hidden states of whose rows from one on are wanted.
func (e *Engine) parts(whole *walk) (parts [2]*walk) {
	row := firstPart(whole.t)
	behind := e.s.behind(row, &e.shape)
	state := *whole.state
	state.tokens += hip.Address(4 * row)
	parts[0] = &walk{e: e, s: &e.s, t: row, many: true, from: min(whole.from, row), state: whole.state, part: &part{}}
	parts[1] = &walk{e: e, s: behind, t: whole.t - row, many: true, from: max(whole.from-row, 0), state: &state, part: &part{second: true}}
	for _, r := range whole.reaches {
		n := min(r.rows, row)
		if n > 0 {
			parts[0].reaches = append(parts[0].reaches, rowReach{n, r.owner, r.first})
		}
		if n < r.rows {
			parts[1].reaches = append(parts[1].reaches, rowReach{r.rows - n, r.owner, r.first + n})
		}
		row -= n
	}
	for i, w := range parts {
		w.part.ranks = &e.team.tandem[i]
		w.begin()
		w.endLeg()
		for i := range e.blocks {
			w.block(i)
			w.endLeg()
		}
		if w.from < w.t {
			w.flush(w.from)
		}
		w.end()
		w.endLeg()
	}
	return parts
}

func (w *walk) endLeg() { w.part.ends = append(w.part.ends, len(w.calls)) }

// turns has the second part wait for the keys and values of the first: of one of two parts.
func (w *walk) turns(second bool) {
	if w.part != nil && w.part.second == second {
		w.part.joins = append(w.part.joins, join{at: len(w.calls), turns: true})
	}
}

// forwardInTandem runs the rows of a pass through the blocks in two parts.
func (e *Engine) forwardInTandem(whole *walk) error {
	parts := e.parts(whole)
	for _, w := range parts {
		if w.err != nil {
			return w.err
		}
	}
	if err := e.ready(slices.Concat(parts[0].calls, parts[1].calls)); err != nil {
		return err
	}
	return e.playTandem(parts)
}

// playTandem queues two parts, block by block.
func (e *Engine) playTandem(parts [2]*walk) error {
	t, streams := e.tandem, [2]*driver.Stream{e.m.stream, e.tandem.stream}
	if err := errors.Join(streams[0].Record(t.begun), streams[1].After(t.begun)); err != nil {
		return err
	}
	joins := [2][]join{parts[0].part.joins, parts[1].part.joins}
	for leg := range parts[0].part.ends {
		for i, w := range parts {
			var err error
			if joins[i], err = e.playLeg(streams[i], w, leg, joins[i]); err != nil {
				return err
			}
		}
	}
	return errors.Join(streams[1].Record(t.done), streams[0].After(t.done))
}

// playLeg queues one leg of a part, and returns the joins behind it.
func (e *Engine) playLeg(s *driver.Stream, w *walk, leg int, joins []join) ([]join, error) {
	from, end := 0, w.part.ends[leg]
	if leg > 0 {
		from = w.part.ends[leg-1]
	}
	for ; len(joins) > 0 && joins[0].at <= end; joins = joins[1:] {
		if err := errors.Join(e.m.launchOn(s, w.calls[from:joins[0].at]), e.join(s, w, &joins[0])); err != nil {
			return nil, err
		}
		from = joins[0].at
	}
	return joins, e.m.launchOn(s, w.calls[from:end])
}

func (e *Engine) join(s *driver.Stream, w *walk, j *join) error {
	switch {
	case j.turns && w.part.second:
		return s.After(e.tandem.turned)
	case j.turns:
		return s.Record(e.tandem.turned)
	}
	for _, m := range j.moves {
		if err := s.Copy(driver.Buffer{Address: m.To, Size: m.Bytes}, driver.Buffer{Address: m.From, Size: m.Bytes}, m.Bytes); err != nil {
			return err
		}
	}
	return nil
}

// behind is the work space of the rows of a pass from one on, while those before have theirs: what
// twofold graphs need of it.
func (s *scratch) behind(row int, sh *shape) *scratch {
	own := *s
	own.rows -= row
	for _, p := range []struct {
		at    *hip.Address
		width int
	}{{&own.x, sh.width}, {&own.h, sh.width}, {&own.a, sh.width}, {&own.f, sh.width}, {&own.q, sh.q}, {&own.att, sh.q}, {&own.k, sh.kv}, {&own.v, sh.kv},
		{&own.z, sh.z}, {&own.gate, sh.inner}, {&own.up, sh.inner}, {&own.turned, max(sh.row(), sh.inner)}, {&own.sums, sh.width}} {
		*p.at = at(*p.at, row, p.width)
	}
	own.tiles += hip.Address(hip.MatmulScratch(row, max(sh.row(), sh.inner)))
	own.cos, own.sin = nil, nil
	for i, pairs := range sh.pairs {
		own.cos, own.sin = append(own.cos, at(s.cos[i], row, pairs)), append(own.sin, at(s.sin[i], row, pairs))
	}
	return &own
}
