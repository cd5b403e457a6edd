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
// A row's bits are those that it has in any pass (docs/decisions/0014-width-independence.md). Why two
// streams and copies: docs/decisions/0025-ranks-add-in-order.md.
type tandem struct {
	stream              *driver.Stream // of the second part
	begun, turned, done *driver.Event  // of the pass, of the first part's keys and values, of the second part
}

// A part is what a walk knows of being one of two: launches begin when those before have ended, for
// units that wait would be the other's.
type part struct {
	ranks  *hip.Ranks
	second bool
}

// leastTandem is how many rows are computed in two parts at least: on two H200s two parts of 2048 took 0.93 of
// one's time and of 512 1.21 times as long, so that 1024, whose one part was not timed, may lose. The first part
// has whole blocks of so many.
const leastTandem, tandemBlock = 1536, 128

// firstPart returns how many of rows are the first part's: half of them, or a few more.
func firstPart(rows int) int { return ((rows+1)/2 + tandemBlock - 1) / tandemBlock * tandemBlock }

// twofoldHead is how many numbers a head has at most whose keys and values have room in the LDS of any
// target as prompts want them: attention of others shares work space.
const twofoldHead = 256

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
		if b.Attn == nil || b.FFN == nil || b.MoE != nil || b.Parallel || b.PerLayer != nil || b.Attn.HeadDim > twofoldHead || squares(b, ranks) > 0 || f != cpu.KVF16 && f != cpu.KVF32 {
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

// parts are two walks over a pass of which the rows from one on are wanted.
func (e *Engine) parts(whole *walk) (parts [2]*walk) {
	row := firstPart(whole.t)
	state := *whole.state
	state.tokens += hip.Address(4 * row)
	parts[0] = &walk{e: e, s: &e.s, t: row, many: true, from: min(whole.from, row), state: whole.state, part: &part{ranks: &e.team.tandem[0]}}
	parts[1] = &walk{e: e, s: e.s.behind(row, &e.shape), t: whole.t - row, many: true, from: max(whole.from-row, 0), state: &state, part: &part{ranks: &e.team.tandem[1], second: true}}
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
	return parts
}

// listParts lists both, block by block.
func (e *Engine) listParts(parts [2]*walk) error {
	for _, w := range parts {
		w.begin()
	}
	for i := range e.blocks {
		for _, w := range parts {
			w.block(i)
		}
	}
	for _, w := range parts {
		if w.from < w.t {
			w.flush(w.from)
		}
		w.end()
	}
	return errors.Join(parts[0].err, parts[1].err)
}

// turns has the second part wait for the keys and values of the first, which tells of them: of one of
// two parts.
func (w *walk) turns(second bool) {
	switch {
	case w.flow == nil || w.part == nil || w.part.second != second:
	case second:
		w.fail(w.flow.After(w.e.tandem.turned))
	default:
		w.fail(w.flow.Record(w.e.tandem.turned))
	}
}

// bring has n numbers that were left go to the other ranks, and waits for theirs.
func (w *walk) bring(x hip.Exchange, n int) {
	for _, m := range x.Transfers(n) {
		if w.flow != nil {
			w.fail(w.flow.Copy(driver.Buffer{Address: m.To, Size: m.Bytes}, driver.Buffer{Address: m.From, Size: m.Bytes}, m.Bytes))
		}
	}
	w.do(&hip.Meet{Exchange: x})
}

// forwardInTandem runs the rows of a pass through the blocks in two parts.
func (e *Engine) forwardInTandem(whole *walk) error {
	err := e.know(graphKey{what: "tandem", rows: whole.t, lo: whole.from}, func() ([]hip.Call, error) {
		parts := e.parts(whole)
		err := e.listParts(parts)
		return slices.Concat(parts[0].calls, parts[1].calls), err
	})
	if err != nil {
		return err
	}
	return e.playTandem(whole)
}

// playTandem queues both parts.
func (e *Engine) playTandem(whole *walk) error {
	t, parts := e.tandem, e.parts(whole)
	parts[0].flow, parts[1].flow = e.m.stream, t.stream
	if err := errors.Join(e.m.stream.Record(t.begun), t.stream.After(t.begun)); err != nil {
		return err
	}
	return errors.Join(e.listParts(parts), t.stream.Record(t.done), e.m.stream.After(t.done))
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
