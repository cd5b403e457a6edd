package schedule

import (
	"errors"
	"fmt"
	"slices"

	"github.com/nstf/nstf/runtime/cache"
	"github.com/nstf/nstf/runtime/exec"
)

// loop serves until the scheduler is closed.
func (s *Scheduler) loop() {
	defer close(s.done)
	for s.wait() {
		s.step()
	}
	s.end()
}

// wait waits for something to do, and reports whether to do it.
func (s *Scheduler) wait() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.running)+len(s.waiting)+len(s.embeddings) == 0 && !s.closed && !s.draining {
		s.changed.Wait()
	}
	idle := len(s.running)+len(s.waiting)+len(s.embeddings) == 0
	return !s.closed && s.broken == nil && !(s.draining && idle)
}

// end gives all memory back.
func (s *Scheduler) end() {
	s.mu.Lock()
	err := s.broken
	s.closed = true
	waiting := s.waiting
	s.waiting = nil
	s.mu.Unlock()
	if err == nil {
		err = ErrClosed
	}
	reason := ReasonCancel
	if !errors.Is(err, ErrClosed) {
		reason = ReasonError
	}
	for _, j := range append(waiting, s.running...) {
		s.finish(j, reason, err)
	}
	s.running = nil
	s.endEmbeddings(err)
	s.kept.drop()
	s.count(func(m *Metrics) { m.Running, m.Kept = 0, 0 })
}

// count changes the metrics.
func (s *Scheduler) count(f func(m *Metrics)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.metrics)
}

// step lets everybody go on by one.
func (s *Scheduler) step() {
	s.sweep()
	s.admit()
	if err := s.embed(); err != nil {
		s.breaks(err)
		return
	}
	if len(s.running) == 0 {
		s.count(func(m *Metrics) { m.Running, m.Kept, m.KeptDropped = 0, len(s.kept.all), s.kept.lost })
		return
	}
	if err := s.advance(); err != nil {
		s.breaks(err)
		return
	}
	s.collect(s.read)
	s.count(func(m *Metrics) {
		m.Steps++
		m.Running, m.Kept, m.KeptDropped = len(s.running), len(s.kept.all), s.kept.lost
	})
}

// breaks notes the device's error.
func (s *Scheduler) breaks(err error) {
	s.mu.Lock()
	s.broken = err
	s.mu.Unlock()
}

// finish ends a job.
func (s *Scheduler) finish(j *job, reason Reason, err error) {
	if j.seq != nil {
		j.yield()
	}
	if !j.over {
		j.over = true
		j.st.emit(Event{Choice: j.index, Token: -1, Reason: reason, Err: err})
	}
	s.count(func(m *Metrics) {
		if m.Ended == nil {
			m.Ended = map[Reason]int64{}
		}
		m.Ended[reason]++
	})
}

// sweep ends jobs that nobody waits for.
func (s *Scheduler) sweep() {
	gone := func(j *job) bool { return j.st.ended(j.index) }
	s.mu.Lock()
	var ended []*job
	for _, j := range s.waiting {
		if gone(j) {
			ended = append(ended, j)
		}
	}
	s.waiting = slices.DeleteFunc(s.waiting, func(j *job) bool { return slices.Contains(ended, j) })
	s.mu.Unlock()
	for _, j := range s.running {
		if gone(j) {
			ended = append(ended, j)
		}
	}
	s.running = slices.DeleteFunc(s.running, func(j *job) bool { return slices.Contains(ended, j) })
	for _, j := range ended {
		s.finish(j, ReasonCancel, j.st.ctx.Err())
	}
}

// admit begins the jobs that wait, by arrival, as long as there is room.
func (s *Scheduler) admit() {
	for {
		j := s.candidate()
		if j == nil {
			return
		}
		if err := s.begin(j); err != nil {
			var places *cache.PlacesError
			if errors.As(err, &places) && len(s.running) > 0 {
				s.mu.Lock()
				s.insert(j)
				s.mu.Unlock()
				return
			}
			s.finish(j, ReasonError, err)
		}
	}
}

// candidate takes the next job from those that wait, nil where it has to go on
// waiting.
func (s *Scheduler) candidate() *job {
	if len(s.running) >= s.o.Running {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, j := range s.waiting {
		if j.leader != nil && !j.leader.read && !j.leader.over {
			continue // it finds what the leader is reading
		}
		if !s.fits(j) {
			return nil
		}
		s.waiting = slices.Delete(s.waiting, i, i+1)
		return j
	}
	return nil
}

// fits reports whether the pages that a job needs to begin, and one more for what
// follows, are promised to nobody. What runs is counted as if it shared nothing.
func (s *Scheduler) fits(j *job) bool {
	if len(s.running) == 0 {
		return true
	}
	return s.promised()+s.pages(len(j.tokens)+1)+1 <= s.ex.Room().Pages
}

// promised returns the pages of what runs.
func (s *Scheduler) promised() int64 {
	var n int64
	for _, r := range s.running {
		n += s.pages(max(len(r.tokens)+1, r.seq.Len())) + 1
	}
	return n
}

// begin gives a job a sequence, with what is kept of its prompt.
func (s *Scheduler) begin(j *job) error {
	seq, err := s.ex.NewSequence()
	if err != nil {
		return err
	}
	j.seq = seq
	j.prefix = s.kept.prefix(j.tokens[:j.prompted])
	most := len(j.tokens) - 1
	if j.score != nil {
		most = min(most, j.score.done())
	}
	found, err := s.kept.begin(seq, j.prefix, most)
	if err == nil {
		err = j.begin()
	}
	if err != nil {
		seq.Close()
		j.seq = nil
		return err
	}
	j.keep = true
	if !j.read && j.index == 0 {
		j.st.mu.Lock()
		j.st.usage.CachedTokens = found
		j.st.mu.Unlock()
	}
	s.count(func(m *Metrics) {
		m.CachedTokens += int64(found)
		m.DiskTokens = s.kept.read
		m.ComputedTokens += int64(len(j.tokens) - found)
		if found > 0 {
			m.KeptHits++
		}
	})
	at, _ := slices.BinarySearchFunc(s.running, j, byArrival)
	s.running = slices.Insert(s.running, at, j)
	return nil
}

// advance makes one step of those that run: rows of prompts first, then a token for each
// that decodes. So a device has a step to do while the host reads the tokens behind the
// prompts and looks who has come meanwhile, whose rows are the next: whoever comes waits
// for the prompts that are under way, and not for those that were planned beside. An error
// is the device's.
func (s *Scheduler) advance() error {
	for _, j := range s.running {
		j.under = j.d.Underway()
	}
	for rows := s.promptRows(); rows > 0; {
		turns, err := s.turn(func() []exec.Turn { return s.prompts(rows) })
		if err != nil {
			return err
		}
		if len(turns) == 0 {
			break
		}
		for _, t := range turns {
			rows -= t.Rows
		}
		s.collect(func(j *job) (Reason, error) { return s.behindPrompt(j, turns) })
	}
	_, err := s.turn(s.steps)
	return err
}

// turn has those that run take turns, fewer where there is no room for all, and returns
// them.
func (s *Scheduler) turn(plan func() []exec.Turn) ([]exec.Turn, error) {
	for len(s.running) > 0 {
		turns := plan()
		if len(turns) == 0 {
			break
		}
		err := s.kept.fitted(func() error { return s.ex.Advance(turns) })
		var full *cache.FullError
		if !errors.As(err, &full) {
			return turns, err
		}
		if s.yieldEmbedding() {
			continue
		}
		last := len(s.running) - 1
		j := s.running[last]
		s.running = s.running[:last]
		if last == 0 {
			s.finish(j, ReasonError, fmt.Errorf("%d tokens: %w", len(j.tokens), err))
			break
		}
		s.yield(j)
	}
	return nil, nil
}

// yield has a job wait again.
func (s *Scheduler) yield(j *job) {
	j.yield()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.metrics.Yields++
	s.insert(j)
}

// decodes reports whether a job has a turn beside prompts.
func (j *job) decodes() bool { return j.jumps() || j.d.Unread() == 0 && j.wants() }

// promptRows returns how many rows of prompts a step takes.
func (s *Scheduler) promptRows() int {
	if slices.ContainsFunc(s.running, (*job).decodes) {
		return min(s.o.PromptRows, s.ex.MaxRows())
	}
	return s.ex.MaxRows()
}

// prompts lists turns of so many rows at most: half of them, at least, are the oldest's,
// so that it comes to its end; the others go to those of which the fewest are left, so
// that who asks little does not wait for who asks much.
func (s *Scheduler) prompts(rows int) []exec.Turn {
	s.turns = s.turns[:0]
	var order []*job
	for _, j := range s.running {
		if j.d.Unread() > 0 && !j.jumps() {
			order = append(order, j)
		}
	}
	if len(order) == 0 {
		return nil
	}
	oldest := order[0]
	promised := min(s.rows(oldest), (rows+1)/2)
	slices.SortStableFunc(order, func(a, b *job) int { return a.d.Unread() - b.d.Unread() })
	for _, j := range order {
		most := rows
		if j == oldest {
			promised = 0
		} else {
			most -= promised
		}
		if n := min(s.rows(j), most); n > 0 {
			s.turns = append(s.turns, exec.Turn{Decoding: j.d, Rows: n})
			rows -= n
		}
	}
	return s.turns
}

// rows returns how many rows of a job's prompt may be read at once.
func (s *Scheduler) rows(j *job) int {
	n := j.d.Unread()
	if at := j.seq.Len(); s.ex.Recurrent() && at < j.prompted {
		n = min(n, s.kept.bound(at, j.prompted)-at)
	}
	return n
}

// steps lists a turn for each sequence that decodes, of which some have several tokens to
// follow.
func (s *Scheduler) steps() []exec.Turn {
	s.turns = s.turns[:0]
	for _, j := range s.running {
		if j.decodes() {
			s.turns = append(s.turns, exec.Turn{Decoding: j.d, Rows: j.d.Unread()})
		}
	}
	return s.turns
}

// collect gives out the tokens that were chosen, each job's by one, which returns why it
// has ended, "" where it has not.
func (s *Scheduler) collect(one func(j *job) (Reason, error)) {
	var going []*job
	for _, j := range s.running {
		if reason, err := one(j); reason != "" {
			s.finish(j, reason, err)
		} else if j.seq != nil {
			going = append(going, j)
		}
	}
	s.running = going
}

// behindPrompt keeps a job's prompt as far as it was read in these turns. Where nothing is
// computed ahead the token behind it is given out before others go on.
func (s *Scheduler) behindPrompt(j *job, turns []exec.Turn) (Reason, error) {
	if j.d.Err() != nil || !slices.ContainsFunc(turns, func(t exec.Turn) bool { return t.Decoding == j.d }) {
		return "", nil
	}
	if err := s.keep(j); err != nil {
		return ReasonError, err
	}
	if s.ex.Ahead() > 1 {
		return "", nil
	}
	return s.read(j)
}

// read gives out a job's tokens that are there, and returns why it ended.
func (s *Scheduler) read(j *job) (Reason, error) {
	if j.d.Err() == nil {
		if j.d.Unread() > 0 {
			if err := j.d.Wait(); err != nil { // a device is not told of more than it can do
				return ReasonError, err
			}
			return "", nil
		}
		j.read = true
	}
	for stuck := j.d.Underway() <= j.under; s.ripe(j, stuck); {
		id, err := j.d.Read()
		var full *cache.FullError
		switch {
		case errors.Is(err, exec.ErrContextFull):
			return ReasonContext, nil
		case errors.As(err, &full) && len(s.running) > 1:
			s.yield(j)
			return "", nil
		case err != nil:
			return ReasonError, err
		}
		s.count(func(m *Metrics) { m.Tokens++ })
		reason, err := j.take(id)
		if reason == "" {
			reason, err = j.jump()
		}
		if reason != "" {
			return reason, err
		}
	}
	return "", nil
}

// keep keeps a job's prompt as far as it was read, where that is worth it.
func (s *Scheduler) keep(j *job) error {
	at := j.seq.Len()
	if at > j.prompted || !j.keep || at < j.prompted && !(s.ex.Recurrent() && s.kept.bound(at-1, j.prompted) == at) {
		return nil
	}
	if at >= j.prompted {
		j.keep = false
		if s.ex.Recurrent() { // a prompt that goes on is not found in a whole one
			return nil
		}
	}
	return s.kept.add(j.seq, j.prefix, at)
}

// ripe reports whether to wait for the job's oldest token: its device is as far ahead
// as may be, or stuck, getting no further before it is read. Else the device is left
// something to do meanwhile.
func (s *Scheduler) ripe(j *job, stuck bool) bool {
	n := j.d.Underway()
	if n == 0 {
		return j.d.Err() != nil
	}
	return n >= j.d.Ahead() || stuck || !j.wants()
}
