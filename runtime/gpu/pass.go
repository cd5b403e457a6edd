package gpu

import (
	"errors"
	"fmt"
	"slices"

	"github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/runtime/device"
	"github.com/nstf/nstf/runtime/gpu/driver"
)

// A pass is the batch whose hidden states the work space holds.
type pass struct {
	e          *Engine
	rows, from int
	many       bool // see device.Batch.Few
	reading    reading
	sequences  int // that have rows
	reaches    []rowReach
	choosing   []chosenRows
	state      *rowTable
	wanted     []int   // rows
	chosen     *chosen // nil: nothing was
}

// A graphKey names a captured list of launches.
type graphKey struct {
	what   string
	rows   int
	lo, hi int
	reading
}

// Forward implements device.Stage.
func (e *Engine) Forward(b *device.Batch) (device.Pass, error) {
	p, slots, err := e.begin(b)
	if err != nil {
		return nil, err
	}
	var runs []choice
	if e.span.Head {
		runs = choices(b)
	}
	if len(runs) > ring {
		return nil, fmt.Errorf("gpu: tokens are chosen at %d places of a batch, %d at most", len(runs), ring)
	}
	e.pass = p
	if err := e.start(p, b); err != nil {
		return nil, err
	}
	if err := e.lookUp(p, b); err != nil {
		return nil, err
	}
	if err := e.compute(p, runs); err != nil {
		return nil, err
	}
	for i := range p.choosing {
		c := &p.choosing[i]
		c.state.past.summarized = max(c.known, c.from)
	}
	for i := range b.Segments {
		s := b.Segments[i].State.(*state)
		s.Advance(int64(b.Segments[i].Rows()))
		if b.Segments[i].Choose != nil && e.span.Head {
			s.told = s.Len() + 1
			if !s.sampler.penalizes() {
				s.told = 0
			}
		}
	}
	e.notePrepared(b, runs)
	if len(runs) > 0 {
		p.chosen, err = e.fetch(runs, slots)
	} else {
		err = e.m.stream.Record(e.events[ring])
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

// begin spreads a batch out and makes its states ready. It returns the pass and the slots of
// the sequences that a token is chosen for.
func (e *Engine) begin(b *device.Batch) (p *pass, slots []int32, err error) {
	n := b.Rows()
	if n == 0 || n > e.plan.Rows || (b.Hidden == nil) != e.span.Embed {
		return nil, nil, fmt.Errorf("gpu: a batch of %d rows, or of another stage's input", n)
	}
	p = &pass{e: e, rows: n, from: n, many: !b.Few(e.FewRows()), sequences: len(b.Segments), state: &e.s.many}
	if !p.many {
		p.state, p.reading = &e.s.few, e.readingOf(b)
	}
	for i := range b.Segments {
		if s, ok := b.Segments[i].State.(*state); !ok || s.e != e {
			return nil, nil, fmt.Errorf("gpu: the state of segment %d is a %T", i, b.Segments[i].State)
		}
	}
	if err := e.pool.hosts.settle(b, p.many); err != nil { // before any table is sent
		return nil, nil, err
	}
	row := 0
	for i := range b.Segments {
		segment := &b.Segments[i]
		s := segment.State.(*state)
		if err := s.begin(segment, p.many); err != nil {
			return nil, nil, err
		}
		if segment.Choose != nil && e.span.Head {
			slots = append(slots, s.slot)
		}
		p.reaches = append(p.reaches, rowReach{rows: segment.Rows(), owner: int(s.slot), first: int(s.Len())})
		if c, some := s.chooses(row, segment.Rows()); some && p.many {
			p.choosing = append(p.choosing, c)
		}
		first := row
		row += segment.Rows()
		if len(p.wanted) == 0 && segment.Wanted > 0 && e.span.Head {
			p.from = row - segment.Wanted
			if p.many && e.follow.policy.ForPrompts() { // its block of queries chooses together
				p.from = max(first, p.from-int((s.Len()+int64(p.from-first))%PageSize))
			}
		}
		for w := row - segment.Wanted; w < row && e.span.Head; w++ {
			p.wanted = append(p.wanted, w)
		}
	}
	if !e.span.Head || e.gathering != nil || p.reading.ranks > 0 { // all rows are, the last for history's sake
		p.from = 0
	}
	return p, slots, nil
}

// begin tells the device what a segment needs of its sequence: pages, frequencies, how the
// token behind it is chosen.
func (s *state) begin(segment *device.Segment, many bool) error {
	if err := errors.Join(s.send(), s.setFrequencies(segment.Length)); err != nil {
		return err
	}
	if many {
		s.past.learned = false
	} else if err := s.followsUp(segment.Rows()); err != nil {
		return err
	}
	if segment.Tokens != nil {
		s.told = min(s.told, s.Len()) // what was chosen behind it need not be what came
	}
	if segment.Choose == nil || !s.e.span.Head {
		return nil
	}
	return s.settle(segment)
}

// start tells the device which rows come, unless it knows.
func (e *Engine) start(p *pass, b *device.Batch) error {
	if b.Hidden == nil && e.steady(b) {
		return nil
	}
	e.prepared = e.prepared[:0]
	n := p.state.capacity
	words := make([]int32, 3*n)
	row := 0
	for i := range b.Segments {
		s := b.Segments[i].State.(*state)
		for j := range b.Segments[i].Rows() {
			words[row], words[n+row], words[2*n+row] = -1, int32(s.Len())+int32(j), s.slot
			if t := b.Segments[i].Tokens; t != nil {
				words[row] = t[j]
			}
			row++
		}
	}
	if err := upload(e, driver.Buffer{Address: p.state.tokens, Size: p.state.bytes()}, words); err != nil {
		return err
	}
	if waiting(b) {
		w := &walk{e: e, s: &e.s, t: p.rows, many: p.many, state: p.state}
		w.do(&hip.Resume{Rows: w.rows(0), Token: p.state.tokens, History: e.s.chooser.history, Stride: e.s.chooser.stride})
		if err := e.m.launch(w.calls); err != nil {
			return err
		}
	}
	if b.Hidden == nil {
		return nil
	}
	return e.m.receive(driver.Buffer{Address: e.s.x, Size: 4 * int64(p.rows*e.shape.width)}, b.Hidden)
}

// compute runs the rows through the blocks and has tokens chosen. A step, in which
// each row is chosen for, is captured as a whole.
func (e *Engine) compute(p *pass, runs []choice) error {
	if len(runs) == 1 && runs[0].lo == 0 && runs[0].hi == p.rows && !p.many {
		key := graphKey{what: "step", rows: p.rows, reading: p.reading}
		if runs[0].greedy {
			key.what = "greedy step"
		}
		if runs[0].masked {
			key.what = "masked " + key.what
		}
		return e.run(key, true, func(w *walk) {
			w.forward()
			w.head(0, p.rows)
			w.choose(runs[0])
		})
	}
	err := e.forward(p)
	if err != nil || len(runs) == 0 {
		return err
	}
	w := &walk{e: e, s: &e.s, t: p.rows, many: p.many, from: p.from, state: p.state}
	for _, c := range runs {
		w.head(c.lo, c.hi)
		w.choose(c)
	}
	w.end()
	if err := e.ready(w.calls); err != nil { // all of them or none
		return err
	}
	return e.m.launch(w.calls)
}

// forward runs the rows of a pass through the blocks.
func (e *Engine) forward(p *pass) error {
	if e.inTandem(p.rows, p.many) {
		return e.forwardInTandem(&walk{e: e, t: p.rows, from: p.from, state: p.state, reaches: p.reaches})
	}
	key := graphKey{what: "forward", rows: p.rows, lo: p.from, reading: p.reading}
	return e.run(key, !p.many, func(w *walk) {
		w.forward()
		w.flush(p.from)
		w.gatherHead(p.wanted)
	})
}

// run launches what list puts into a walk over the pass; few rows by way of a
// graph, which is captured the first time.
func (e *Engine) run(key graphKey, captured bool, list func(w *walk)) error {
	if captured = captured && e.gathering == nil; captured && e.graphs[key] != nil {
		if e.team != nil {
			e.team.meeting.send()
		}
		return e.play(e.graphs[key])
	}
	made := func() *walk {
		return &walk{e: e, s: &e.s, t: e.pass.rows, many: e.pass.many, from: e.pass.from, state: e.pass.state, reading: e.pass.reading, reaches: e.pass.reaches, choosing: e.pass.choosing}
	}
	w := made()
	listed := func() ([]hip.Call, error) {
		list(w)
		w.end()
		return w.calls, w.err
	}
	if !captured && e.flows && e.gathering == nil && len(e.pass.choosing) == 0 {
		if err := e.know(key, listed); err != nil {
			return err
		}
		w = made()
		w.flow = e.m.stream
		_, err := listed()
		return err
	}
	calls, err := listed()
	if err != nil {
		return err
	}
	if err := e.ready(calls); err != nil { // nothing may be loaded during the capture, and no pass ends half-way
		return err
	}
	parts := w.stretches()
	if captured {
		if err := e.capture(parts); err != nil {
			return err
		}
		e.graphs[key] = parts
	}
	return e.play(parts)
}

// flows reports whether prompts may be launched as they are listed: the host has no part in them, and
// in a team, where nothing may be loaded while others wait, their key says which kernels they want. By
// policy, and where caches keep codes, how far they reach does so too.
func (o *Options) flows(blocks int) bool {
	if o.team == nil {
		return o.Experts == nil
	}
	kept, err := o.formats(blocks)
	return err == nil && o.Policy == nil && !slices.ContainsFunc(kept, cpu.KVFormat.Coded)
}

// know has the kernels of a list of launches be ready before any of it is launched, if it comes for
// the first time: later it is launched as it is listed, which all ranks of a team do alike.
func (e *Engine) know(key graphKey, list func() ([]hip.Call, error)) error {
	if e.known[key] {
		if e.team != nil {
			e.team.meeting.send()
		}
		return nil
	}
	calls, err := list()
	if err != nil {
		return err
	}
	if err := e.ready(calls); err != nil {
		return err
	}
	if len(e.known) >= mostKnown {
		clear(e.known)
	}
	e.known[key] = true
	return nil
}

// mostKnown is how many lists of launches are known at once: prompts have many numbers of rows.
const mostKnown = 4096

// Hidden implements device.Pass.
func (p *pass) Hidden() device.Hidden { return &hidden{p.e.m, p.e.s.x, p.rows, p.e.shape.width} }

// Tokens implements device.Pass.
func (p *pass) Tokens() ([]int32, error) {
	if p.chosen == nil {
		return nil, p.e.events[ring].Wait()
	}
	return p.chosen.read()
}

// Logits implements device.Pass.
func (p *pass) Logits(lo, hi int, dst []float32) error {
	e := p.e
	return p.runs(lo, hi, e.s.logitRows, e.shape.vocab, dst, func(row, n int, dst []float32) error {
		return e.logits(row, row+n, dst)
	})
}

// runs calls f with runs of neighbouring rows among the wanted ones from lo to hi, at most
// so many in each, and with where their numbers go, of which a row has width.
func (p *pass) runs(lo, hi, most, width int, dst []float32, f func(row, n int, dst []float32) error) error {
	if p != p.e.pass || lo < 0 || hi > len(p.wanted) || lo >= hi || len(dst) != (hi-lo)*width {
		panic(fmt.Sprintf("gpu: wanted rows %d to %d of %d into %d numbers", lo, hi, len(p.wanted), len(dst)))
	}
	for lo < hi {
		n := 1
		for lo+n < hi && n < most && p.wanted[lo+n] == p.wanted[lo]+n {
			n++
		}
		if err := f(p.wanted[lo], n, dst[:n*width]); err != nil {
			return err
		}
		lo, dst = lo+n, dst[n*width:]
	}
	return nil
}

// Normed implements device.Pass.
func (p *pass) Normed(lo, hi int, dst []float32) error {
	e, d := p.e, p.e.shape.width
	return p.runs(lo, hi, hi-lo, d, dst, func(row, n int, dst []float32) error {
		x := at(e.s.x, row, d)
		if e.norm.Weight != 0 {
			w := &walk{e: e, s: &e.s, t: n, many: p.many, from: p.from, state: p.state}
			w.do(&hip.Norm{T: n, D: d, X: x, Next: e.norm, Out: e.s.h, Few: !p.many, Exact: e.exact})
			if err := e.m.prepare(w.calls); err != nil {
				return err
			}
			if err := e.m.launch(w.calls); err != nil {
				return err
			}
			x = e.s.h
		}
		return e.download(dst, x)
	})
}

// logits computes those of neighbouring rows for which there is room at once.
func (e *Engine) logits(lo, hi int, dst []float32) error {
	key := graphKey{what: "logits", rows: e.pass.rows, lo: lo, hi: hi}
	if err := e.run(key, !e.pass.many, func(w *walk) { w.head(lo, hi) }); err != nil {
		return err
	}
	if !e.first() { // another rank's are the same
		return nil
	}
	return e.download(dst, e.s.logits)
}

// download waits for numbers of the device.
func (e *Engine) download(dst []float32, from hip.Address) error { return e.m.download(dst, from) }

// through lists a pass through all blocks, of which the rows from one on are
// wanted. Operations are kept beside their launches if asked.
func (e *Engine) through(rows, from int, keep bool) *walk {
	w := e.newWalk(rows, rows > fewRows, from)
	w.keep = keep
	w.forward()
	return w
}

// newWalk begins the list of a pass of so many rows of one order, which see all of a context.
func (e *Engine) newWalk(rows int, many bool, from int) *walk {
	w := &walk{e: e, s: &e.s, t: rows, many: many, from: from, state: &e.s.few, reaches: []rowReach{{rows: rows, first: int(e.context) - 1}}}
	if many {
		w.state = &e.s.many
	}
	return w
}

// addPass adds the kernels of a pass of which the rows from one on are wanted, with logits.
func (u *unitSet) addPass(e *Engine, rows int, many bool, from int) {
	if e.follow.policy != nil && !many && from == 0 {
		u.addReading(e, rows)
	}
	if h := e.pool.hosts; h != nil {
		u.add(h.of(1).Calls(e.m.target)[0].Unit)
	}
	if many && e.follow.policy.ForPrompts() && rows >= PageSize {
		u.addChoosing(e, rows)
	}
	w := e.newWalk(rows, many, from)
	w.forward()
	w.flush(from)
	if n := min(rows-from, e.s.logitRows); n > 0 && e.span.Head {
		w.head(from, from+n)
	}
	w.end()
	for i := range w.calls {
		u.add(w.calls[i].Unit)
	}
	if !e.inTandem(rows, many) {
		return
	}
	parts := e.parts(e.newWalk(rows, many, from))
	e.listParts(parts) // nothing fails that is not launched
	for _, w := range parts {
		for i := range w.calls {
			u.add(w.calls[i].Unit)
		}
	}
}

// units lists what has to be compiled for single tokens and for prompts, of
// which all logits are wanted, or the last, or none. Passes of a few rows find
// what they lack when they come.
func (e *Engine) units() []hip.Unit {
	u := &unitSet{seen: map[hip.Unit]bool{}}
	for _, p := range []pass{{rows: 1}, {rows: e.plan.Rows}, {rows: e.plan.Rows, from: e.plan.Rows - 1}, {rows: e.plan.Rows, from: e.plan.Rows}} {
		u.addPass(e, p.rows, p.rows > fewRows, p.from)
	}
	return u.list
}
