package schedule

import (
	"context"
	"errors"
	"slices"

	"github.com/nstf/nstf/runtime/cache"
	"github.com/nstf/nstf/runtime/exec"
)

// An embedding is a text that is read for its hidden states.
type embedding struct {
	ctx    context.Context
	tokens []int32
	wanted func(token int) bool
	f      func(row []float32)
	done   chan error // takes the one that ends it

	seq   *exec.Sequence // nil: it waits
	at    int            // tokens that were read
	given int            // tokens whose rows were
}

// Embed reads a text, and calls f with the hidden state [D] behind the last norm of each
// token that wanted says, in order; row is valid during the call. It takes its turn beside
// other requests: the rows of a prompt, some in every step. They have the same bits
// whoever else is served. Errors are those of [Scheduler.Submit], and of ctx.
func (s *Scheduler) Embed(ctx context.Context, tokens []int32, wanted func(token int) bool, f func(row []float32)) error {
	if len(tokens) == 0 {
		panic("schedule: a text without tokens")
	}
	if err := s.check(&Request{Prompt: tokens}); err != nil {
		return err
	}
	e := &embedding{ctx: ctx, tokens: tokens, wanted: wanted, f: f, done: make(chan error, 1)}
	s.mu.Lock()
	if err := s.refuses(1); err != nil {
		s.mu.Unlock()
		return err
	}
	s.embeddings = append(s.embeddings, e)
	s.metrics.Requests++
	s.metrics.PromptTokens += int64(len(tokens))
	s.changed.Signal()
	s.mu.Unlock()
	return <-e.done // the loop looks at ctx
}

// embed reads rows of the oldest texts, as many as a step takes. It returns the device's
// error.
func (s *Scheduler) embed() error {
	rows := s.ex.MaxRows()
	if len(s.running) > 0 {
		rows = min(rows, s.o.PromptRows)
	}
	for rows > 0 {
		s.mu.Lock()
		if len(s.embeddings) == 0 {
			s.mu.Unlock()
			return nil
		}
		e := s.embeddings[0]
		s.mu.Unlock()
		n, err := s.embedRows(e, rows)
		if n == 0 && err == nil {
			return nil // it waits for room
		}
		if rows -= n; err == nil && e.at < len(e.tokens) {
			continue
		}
		e.release()
		s.mu.Lock()
		s.embeddings = slices.Delete(s.embeddings, 0, 1)
		s.mu.Unlock()
		e.done <- err
		if err != nil && e.ctx.Err() == nil && !full(err) && !errors.Is(err, exec.ErrContextFull) {
			return err
		}
	}
	return nil
}

// full reports whether there is no room, which is nobody's fault.
func full(err error) bool {
	var pages *cache.FullError
	var places *cache.PlacesError
	return errors.As(err, &pages) || errors.As(err, &places)
}

// embedRows reads so many rows of a text, to the next multiple of [exec.Executor.PromptUnit] or
// to the last before, and returns how many: none where those that run leave no room for it.
func (s *Scheduler) embedRows(e *embedding, rows int) (int, error) {
	if err := e.ctx.Err(); err != nil {
		return 0, err
	}
	if e.seq == nil && len(s.running) > 0 && s.promised()+s.pages(len(e.tokens)) > s.ex.Room().Pages {
		return 0, nil
	}
	if unit, rest := s.ex.PromptUnit(), len(e.tokens)-e.at; rows < rest {
		rows = min(max(rows/unit, 1)*unit, rest)
	} else {
		rows = rest
	}
	n := 0
	err := s.kept.fitted(func() (err error) { n, err = s.readRows(e, rows); return err })
	if full(err) && len(s.running) > 0 {
		e.release()
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	s.count(func(m *Metrics) { m.ComputedTokens += int64(n) })
	return n, nil
}

func (s *Scheduler) readRows(e *embedding, rows int) (int, error) {
	if e.seq == nil {
		seq, err := s.ex.NewSequence()
		if err != nil {
			return 0, err
		}
		e.seq = seq
	}
	// All rows from the first wanted one on are asked for.
	first := 0
	for first < rows && !e.wanted(e.at+first) {
		first++
	}
	i := e.at + first
	err := e.seq.Embed(e.tokens[e.at:e.at+rows], rows-first, func(row []float32) {
		if i >= e.given && e.wanted(i) {
			e.f(row)
		}
		i++
	})
	if err == nil {
		e.at += rows
		e.given = max(e.given, e.at)
	}
	return rows, err
}

// release gives a text's memory back: what was read is read again.
func (e *embedding) release() {
	if e.seq != nil {
		e.seq.Close()
	}
	e.seq, e.at = nil, 0
}

// yieldEmbedding has the text that is being read wait, and reports whether there was one.
func (s *Scheduler) yieldEmbedding() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.embeddings) == 0 || s.embeddings[0].seq == nil {
		return false
	}
	s.embeddings[0].release()
	return true
}

// endEmbeddings ends all of them.
func (s *Scheduler) endEmbeddings(err error) {
	s.mu.Lock()
	all := s.embeddings
	s.embeddings = nil
	s.mu.Unlock()
	for _, e := range all {
		e.release()
		e.done <- err
	}
}
