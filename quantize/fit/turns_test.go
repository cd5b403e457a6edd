package fit

import (
	"slices"
	"sync"
	"testing"
)

// TestTurns has fits share one thread: a later one gets it when nobody before wants it, and
// hands it back as soon as one does.
func TestTurns(t *testing.T) {
	turns := NewTurns(1)
	first, second, third := turns.Next(), turns.Next(), turns.Next()
	var got []string
	var all sync.WaitGroup
	waits := func(n int) {
		for {
			turns.mu.Lock()
			now := len(turns.waiting)
			turns.mu.Unlock()
			if now == n {
				return
			}
		}
	}
	second.take()
	second.pass() // nobody waits
	all.Go(func() {
		third.take()
		got = append(got, "third")
		third.give()
	})
	waits(1)
	second.pass() // who waits began later
	all.Go(func() {
		first.take()
		got = append(got, "first")
		first.pass()
		first.give()
	})
	waits(2)
	second.pass()
	got = append(got, "second")
	second.give()
	all.Wait()
	if !slices.Equal(got, []string{"first", "second", "third"}) {
		t.Errorf("threads went to %q", got)
	}
	if turns.free != 1 || len(turns.waiting) > 0 {
		t.Errorf("%d threads are free, %d wait", turns.free, len(turns.waiting))
	}
	var alone *Turn
	alone.take()
	alone.pass()
	alone.give()
}
