package main

import (
	"context"
	"github.com/nstf/nstf/formats/corpus"
	"sync"
)

// interrupts decides what a signal does: end the command, or what the
// command wants first to be ended.
type interrupts struct {
	cancel context.CancelCauseFunc

	mu      sync.Mutex
	handler func() bool // nil: none
	drainer func()      // nil: none
}

// handle makes f the first to know of Ctrl-C; it returns false to let the
// command end. nil takes it back.
func (i *interrupts) handle(f func() bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.handler = f
}

// drain has the first signal call f, once, instead of ending the command: what is being
// answered is answered. The next one ends it.
func (i *interrupts) drain(f func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.drainer = f
}

// signal passes a signal on and reports whether the command was told to end.
// SIGTERM always ends it, where nothing is to be drained.
func (i *interrupts) signal(fromKeyboard bool) bool {
	i.mu.Lock()
	f, drain := i.handler, i.drainer
	i.drainer = nil
	i.mu.Unlock()
	if drain != nil {
		drain()
		return false
	}
	if fromKeyboard && f != nil && f() {
		return false
	}
	i.cancel(errInterrupted)
	return true
}

// maxInput bounds a text that is read as a whole.
const maxInput = 256 << 20

// readInput returns the whole of standard input, or ends with the context:
// nobody may be about to type.
func (a *app) readInput(ctx context.Context) ([]byte, error) {
	type result struct {
		p   []byte
		err error
	}
	done := make(chan result, 1)
	go func() {
		p, err := corpus.ReadInput("standard input", a.in, maxInput)
		done <- result{p, err}
	}()
	select {
	case r := <-done:
		return r.p, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
