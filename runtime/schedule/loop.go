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
	s.collect()
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
	found, err := s.kept.begin(seq, j.prefix, len(j.tokens)-1)
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

// advance makes one step of those that run, fewer where there is no room for all. An
// error is the device's.
func (s *Scheduler) advance() error {
	for len(s.running) > 0 {
		err := s.kept.fitted(func() error { return s.ex.Advance(s.plan()) })
		var full *cache.FullError
		if !errors.As(err, &full) {
			return err
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
	return nil
}

// yield has a job wait again.
func (s *Scheduler) yield(j *job) {
	j.yield()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.metrics.Yields++
	s.insert(j)
}

// plan lists the turns of a step: one for each sequence that decodes, of which some have
// several tokens to follow, and rows of the oldest prompts.
func (s *Scheduler) plan() []exec.Turn {
	s.turns = s.turns[:0]
	rows := s.ex.MaxRows()
	for _, j := range s.running {
		j.under = j.d.Underway()
		if jumps := j.jumps(); jumps || j.d.Unread() == 0 && j.wants() {
			s.turns = append(s.turns, exec.Turn{Decoding: j.d, Rows: j.d.Unread()})
			rows = min(rows, s.o.PromptRows)
		}
	}
	for _, j := range s.running {
		if n := min(j.d.Unread(), rows); n > 0 && !j.jumps() {
			if at := j.seq.Len(); s.ex.Recurrent() && at < j.prompted {
				n = min(n, s.kept.bound(at, j.prompted)-at)
			}
			s.turns = append(s.turns, exec.Turn{Decoding: j.d, Rows: n})
			rows -= n
		}
	}
	return s.turns
}

// collect keeps the prompts that were read and gives out the tokens that were chosen.
func (s *Scheduler) collect() {
	var going []*job
	for _, j := range s.running {
		if reason, err := s.collectOne(j); reason != "" {
			s.finish(j, reason, err)
		} else if j.seq != nil {
			going = append(going, j)
		}
	}
	s.running = going
}

// collectOne is collect of one job, and returns why it ended.
func (s *Scheduler) collectOne(j *job) (Reason, error) {
	if j.d.Err() == nil {
		if err := s.keep(j); err != nil {
			return ReasonError, err
		}
		if j.d.Unread() > 0 {
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
