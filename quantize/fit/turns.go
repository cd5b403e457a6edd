package fit

import "sync"

// Turns have fits that run at once share threads, for what takes most of their time: searches
// and answers. Of the fits that wait for a thread, that which began first gets it: its end,
// where few of its rows are left, and what it does by one thread alone, then fall into the
// middle of the next.
type Turns struct {
	mu      sync.Mutex
	free    int
	begun   int
	waiting []waiter
}

// A waiter waits for a thread.
type waiter struct {
	turn  int
	ready chan struct{}
}

// NewTurns shares so many threads.
func NewTurns(threads int) *Turns { return &Turns{free: threads} }

// Next returns the turn of a fit that begins now.
func (t *Turns) Next() *Turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.begun++
	return &Turn{t, t.begun}
}

// A Turn is a fit's among those that run at once; nil: it is alone.
type Turn struct {
	of *Turns
	at int
}

// take waits for a thread, which give gives back.
func (t *Turn) take() {
	if t == nil {
		return
	}
	t.of.mu.Lock()
	if t.of.free > 0 {
		t.of.free--
		t.of.mu.Unlock()
		return
	}
	ready := t.of.wait(t.at)
	t.of.mu.Unlock()
	<-ready
}

// pass hands a thread to a fit that began before, if one waits, and waits for another.
func (t *Turn) pass() {
	if t == nil {
		return
	}
	t.of.mu.Lock()
	i := t.of.first()
	if i < 0 || t.of.waiting[i].turn >= t.at {
		t.of.mu.Unlock()
		return
	}
	ready := t.of.wait(t.at)
	t.of.wake(i)
	t.of.mu.Unlock()
	<-ready
}

func (t *Turn) give() {
	if t == nil {
		return
	}
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	if i := t.of.first(); i >= 0 {
		t.of.wake(i)
	} else {
		t.of.free++
	}
}

func (t *Turns) wait(turn int) (ready chan struct{}) {
	ready = make(chan struct{})
	t.waiting = append(t.waiting, waiter{turn, ready})
	return ready
}

// first returns which waiter's fit began first, -1 where nobody waits.
func (t *Turns) first() int {
	first := -1
	for i, w := range t.waiting {
		if first < 0 || w.turn < t.waiting[first].turn {
			first = i
		}
	}
	return first
}

// wake gives a thread to a waiter.
func (t *Turns) wake(i int) {
	close(t.waiting[i].ready)
	t.waiting = append(t.waiting[:i], t.waiting[i+1:]...)
}
