package exec

import (
	"slices"

	"github.com/nstf/nstf/runtime/device"
)

// A Turn is one of several decodings that go on together.
type Turn struct {
	*Decoding
	Rows int // of what it has not read yet, at most; what is read goes on by one in any case
}

// A part is what a sequence adds to a pass.
type part struct {
	d       *Decoding
	s       *Sequence
	segment device.Segment
	prompt  bool
	chooses bool // whether a token is chosen behind it, here or by the host
	scored  bool // whether all of its rows' logits are shown
	last    int  // row of the pass's wanted ones behind which the host chooses
}

// Room returns what there is room for: the least of all stages.
func (e *Executor) Room() device.Room {
	e.mu.Lock()
	defer e.mu.Unlock()
	var all device.Room
	for i, s := range e.stages {
		r := s.Room()
		if i == 0 {
			all = r
			continue
		}
		all.Pages, all.Free = min(all.Pages, r.Pages), min(all.Free, r.Free)
		if r.Places > 0 && (all.Places == 0 || r.Places < all.Places) {
			all.Places, all.Idle = r.Places, r.Idle
		}
	}
	return all
}

// Advance has decodings go on together: each reads what it has not read yet, as
// many rows as its turn says, or begins to choose one more token, unless as many are
// under way as may be; [Decoding.Read] gives them. Rows of prompts travel together,
// and so do those of few, as many at a time as all stages take
// ([device.Stage.FewRows]): each row has the bits that it would have alone, so neither
// who else takes a turn nor how many rows a turn says changes a token.
//
// Where a pool has no room for all of them, the error is a cache.FullError, and
// nothing has changed. What concerns one decoding alone (its context is full, its
// chooser failed) Read returns, behind the tokens before. Any other error is the
// device's. It panics where a sequence has two turns.
func (e *Executor) Advance(turns []Turn) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	var parts []part
	for i, t := range turns {
		if t.s.e != e || t.stopped {
			panic("exec: a turn of another executor's decoding, or of one that was stopped")
		}
		for _, other := range turns[:i] {
			if other.s == t.s {
				panic("exec: two turns of one sequence")
			}
		}
		if t.err != nil {
			continue
		}
		p, err := t.next(max(t.Rows, 1))
		if err != nil {
			t.err = err
		} else if p.s != nil {
			parts = append(parts, p)
		}
	}
	return e.runParts(parts)
}

// runParts makes room for all parts, or for none, and runs them.
func (e *Executor) runParts(parts []part) error {
	for i := range parts {
		if err := parts[i].s.reserve(parts[i].segment.Rows()); err != nil {
			for _, p := range parts[:i+1] {
				p.s.giveBack()
			}
			return err
		}
	}
	slices.SortStableFunc(parts, func(a, b part) int { return a.place() - b.place() })
	few := 0
	for few < len(parts) && !parts[few].prompt {
		few++
	}
	if err := e.runFew(parts[:few]); err != nil {
		for _, p := range parts[few:] {
			p.s.giveBack()
		}
		return err
	}
	return e.runPrompts(parts[few:])
}

// runFew runs parts of few rows.
func (e *Executor) runFew(parts []part) error {
	for len(parts) > 0 {
		var some []part
		some, parts = e.together(parts, e.fewRows)
		e.flight.take(some, false)
		if err := e.fly(&e.flight); err != nil {
			return err
		}
		if err := e.landed(some, e.flight.pass); err != nil {
			return err
		}
	}
	return nil
}

// place orders parts: those of few before prompts, and of both the ones that nobody
// chooses for first and those that the host chooses for last, so that rows of which
// tokens are chosen, and those of which logits are wanted, are neighbours.
func (p *part) place() (at int) {
	if p.prompt {
		at = 3
	}
	switch {
	case p.chooses && p.segment.Choose == nil:
		at += 2
	case p.chooses:
		at++
	}
	return at
}

// together returns the parts of the next pass, of at most so many rows, of which a device chooses
// behind at most as many as are few, and the rest. Of a sequence it has one, and behind those that
// are chosen for come no others.
func (e *Executor) together(parts []part, most int) (some, rest []part) {
	n, rows, choices := 0, 0, 0
	for n < len(parts) && (n == 0 || rows+parts[n].segment.Rows() <= most && choices < e.fewRows && (choices == 0 || parts[n].chooses) && parts[n].s != parts[n-1].s) {
		rows += parts[n].segment.Rows()
		if parts[n].chooses {
			choices++
		}
		n++
	}
	return parts[:n], parts[n:]
}

// take makes the flight a pass of parts.
func (f *flight) take(parts []part, prompt bool) {
	f.set(prompt)
	for i := range parts {
		f.add(parts[i].s, parts[i].segment)
	}
}

// runPrompts runs parts of prompts.
func (e *Executor) runPrompts(parts []part) error {
	if len(parts) == 0 {
		return nil
	}
	rows := 0
	for i := range parts {
		rows += parts[i].segment.Rows()
	}
	most := e.cut(rows)
	all := cutParts(parts, most)
	begun, landed := all, all
	err := e.flow(func(f *flight) bool {
		if len(begun) == 0 {
			return false
		}
		var some []part
		some, begun = e.together(begun, most)
		f.take(some, true)
		return true
	}, func(pass device.Pass) error {
		var some []part
		some, landed = e.together(landed, most)
		return e.landed(some, pass)
	})
	if err != nil {
		for i := range landed { // what stages have counted, or hold room for
			landed[i].s.truncate(len(landed[i].s.history))
		}
	}
	return err
}

// cutParts cuts parts of more rows than a pass has.
func cutParts(parts []part, most int) []part {
	if !slices.ContainsFunc(parts, func(p part) bool { return p.segment.Rows() > most }) {
		return parts
	}
	var all []part
	for _, p := range parts {
		tokens, wanted, at := p.segment.Tokens, p.segment.Wanted, len(p.s.history)
		for len(tokens) > most {
			n := p.s.cut(at, len(tokens), most)
			if n == len(tokens) {
				break
			}
			front := part{d: p.d, s: p.s, prompt: p.prompt, scored: p.scored, segment: device.Segment{Tokens: tokens[:n], Length: p.segment.Length}}
			if p.scored {
				front.segment.Wanted = n
				wanted -= n
			}
			all, tokens, at = append(all, front), tokens[n:], at+n
		}
		p.segment.Tokens, p.segment.Wanted = tokens, wanted
		all = append(all, p)
	}
	return all
}

// landed gives parts what their pass came to.
func (e *Executor) landed(parts []part, pass device.Pass) error {
	chosen, row := 0, 0 // rows are counted among those that are wanted
	var hosts []*part
	for i := range parts { // all of them have been computed, whatever becomes of their logits
		p := &parts[i]
		p.done(pass, chosen)
		if p.segment.Choose != nil {
			chosen++
		} else if p.chooses {
			p.last = row + p.segment.Wanted - 1
			hosts = append(hosts, p)
		}
		row += p.segment.Wanted
	}
	row = 0
	for i := range parts {
		if parts[i].scored {
			if err := parts[i].score(pass, row); err != nil {
				return err
			}
		}
		row += parts[i].segment.Wanted
	}
	for len(hosts) > 0 { // neighbours together
		n := 1
		for n < len(hosts) && hosts[n].last == hosts[0].last+n {
			n++
		}
		first := hosts[0].last
		if err := e.eachLogits(pass, first, first+n, func(row int, logits []float32) error {
			hosts[row-first].choose(logits)
			return nil
		}); err != nil {
			return err
		}
		hosts = hosts[n:]
	}
	return nil
}

// score shows the logits behind the tokens of a part of a prompt, whose first row is the
// given one of those that are wanted.
func (p *part) score(pass device.Pass, first int) error {
	at := len(p.s.history) - len(p.segment.Tokens)
	return p.s.e.logits(pass, first, first+p.segment.Wanted, func(row int, logits []float32) error {
		p.d.scores(at+row-first, logits)
		return nil
	})
}

// reserve makes room for so many more positions in all stages.
func (s *Sequence) reserve(rows int) error {
	for _, state := range s.states {
		if err := state.Reserve(state.Len() + int64(rows)); err != nil {
			return err
		}
	}
	return nil
}

// giveBack gives back what was reserved and is not held.
func (s *Sequence) giveBack() {
	for _, state := range s.states {
		state.Rewind(state.Len())
	}
}

// Recurrent reports whether sequences go back to where they were kept alone: a
// [Snapshot] then begins others with all of its tokens or none.
func (e *Executor) Recurrent() bool { return e.recurrent }

// byLength reports whether frequencies of a rope depend on the length of a sequence
// otherwise than by regime.
func (e *Executor) byLength() bool {
	for i := range e.g.Ropes {
		if r := &e.g.Ropes[i]; r.Regime(1) != r.Regime(1<<40) {
			return true
		}
	}
	return false
}

// A Snapshot is a sequence as it was, to begin others with. It holds memory until it
// is released.
type Snapshot struct {
	e        *Executor
	states   []device.Snapshot
	tokens   []int32
	length   int64
	prompted int
}

// Len returns its number of tokens.
func (n *Snapshot) Len() int { return len(n.tokens) }

// Tokens returns its tokens, which the caller must not change.
func (n *Snapshot) Tokens() []int32 { return n.tokens }

// Snapshot keeps the sequence as it is. Nothing of it is under way.
func (s *Sequence) Snapshot() (*Snapshot, error) {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	n := &Snapshot{e: s.e, tokens: append([]int32(nil), s.history...), length: s.length, prompted: s.prompted}
	var err error
	if n.states, err = s.snapshots(); err != nil {
		return nil, err
	}
	return n, nil
}

// Release gives the snapshot's memory back.
func (n *Snapshot) Release() {
	n.e.mu.Lock()
	defer n.e.mu.Unlock()
	n.release()
}

func (n *Snapshot) release() {
	release(n.states)
	n.states = nil
}

// Restore makes the sequence begin as a snapshot does, with so many of its tokens, or
// with fewer where states cannot go back there, and returns how many.
func (s *Sequence) Restore(from *Snapshot, tokens int) (int, error) {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	for i, state := range s.states {
		if err := state.Restore(from.states[i]); err != nil {
			s.truncate(0)
			return 0, err
		}
	}
	left := s.rewind(int64(tokens))
	s.history = append(s.history[:0:0], from.tokens[:left]...)
	s.kept.release()
	s.length, s.prompted, s.failed = from.length, min(from.prompted, int(left)), nil
	return int(left), nil
}

// Prompted returns how many of the first tokens were computed in the order of
// prompts: what [Continuation] wants to compute the sequence again.
func (s *Sequence) Prompted() int { return s.prompted }
