package schedule

import (
	"context"
	"io"
	"sync"
)

// A Stream gives the tokens of a request. Next is called by one goroutine at a time.
type Stream struct {
	s   *Scheduler
	ctx context.Context // of the request

	mu      sync.Mutex
	events  []Event
	left    int    // choices that have not ended
	stopped []bool // choices whose reader has seen enough
	usage   Usage
	scores  []Score
	more    chan struct{} // has something when there is something new
}

// A Usage is what a request took.
type Usage struct {
	PromptTokens int
	CachedTokens int // of those, the ones that were not computed for its first choice
	Tokens       int // chosen, of all choices
}

// Next waits for the next event: io.EOF behind the end of all choices, or the error of
// ctx, which ends nothing else.
func (st *Stream) Next(ctx context.Context) (Event, error) {
	for {
		st.mu.Lock()
		if len(st.events) > 0 {
			e := st.events[0]
			st.events = st.events[1:]
			st.mu.Unlock()
			return e, nil
		}
		left := st.left
		st.mu.Unlock()
		if left == 0 {
			return Event{}, io.EOF
		}
		select {
		case <-st.more:
		case <-ctx.Done():
			return Event{}, ctx.Err()
		}
	}
}

// Stop ends a choice: it gives no more tokens, but those that were chosen.
func (st *Stream) Stop(choice int) {
	st.mu.Lock()
	st.stopped[choice] = true
	st.mu.Unlock()
	st.s.mu.Lock()
	st.s.changed.Signal()
	st.s.mu.Unlock()
}

// Close stops all choices.
func (st *Stream) Close() {
	for i := range st.stopped {
		st.Stop(i)
	}
}

// Scores returns what [Request.Scored] asks for, as far as it is known: all of it once a
// token was given.
func (st *Stream) Scores() []Score {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.scores
}

// Usage returns what the request took so far.
func (st *Stream) Usage() Usage {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.usage
}

// emit adds an event.
func (st *Stream) emit(e Event) {
	st.mu.Lock()
	st.events = append(st.events, e)
	if e.Token >= 0 {
		st.usage.Tokens++
	}
	if e.Reason != "" {
		st.left--
	}
	st.mu.Unlock()
	select {
	case st.more <- struct{}{}:
	default:
	}
}

// ended reports whether nobody wants more of a choice.
func (st *Stream) ended(choice int) bool {
	if st.ctx.Err() != nil {
		return true
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.stopped[choice]
}
