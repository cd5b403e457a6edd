package main

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// When a phase of work is told of where nobody watches a bar: a phase that ends at once
// says nothing.
const (
	firstLine = time.Second
	everyLine = 30 * time.Second
)

// A lockedWriter lets lines of several goroutines be whole.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// A phaseLog tells of one phase in lines: when it has begun, how long it takes as soon as
// that can be told, every half minute, and when it is done.
type phaseLog struct {
	w           io.Writer
	what, unit  string
	first, next time.Duration
	begun       time.Time
	stop        chan struct{}
	moved       chan struct{} // the first step behind a line that could not tell how long it takes
	stopped     sync.WaitGroup

	mu          sync.Mutex
	done, total int64
	told, blind bool // a line was written; it could not tell how long it takes
}

// newPhaseLog begins a phase.
func newPhaseLog(w io.Writer, what, unit string, first, next time.Duration) *phaseLog {
	l := &phaseLog{w: w, what: what, unit: unit, first: first, next: next, begun: time.Now(), stop: make(chan struct{}), moved: make(chan struct{}, 1)}
	l.stopped.Go(l.watch)
	return l
}

func (l *phaseLog) watch() {
	wait := time.NewTimer(l.first)
	defer wait.Stop()
	for {
		select {
		case <-l.stop:
			return
		case <-wait.C:
		case <-l.moved:
		}
		l.tell()
		wait.Reset(l.next)
	}
}

func (l *phaseLog) step(done, total int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.done, l.total = done, total
	if l.blind && done > 0 && done < total {
		l.blind = false
		l.moved <- struct{}{}
	}
}

// end ends the phase; it may be called again.
func (l *phaseLog) end() {
	l.mu.Lock()
	select {
	case <-l.stop:
		l.mu.Unlock()
		return
	default:
		close(l.stop)
	}
	told, whole := l.told, l.done >= l.total && l.total > 0
	l.mu.Unlock()
	l.stopped.Wait()
	switch {
	case told && whole:
		fmt.Fprintf(l.w, "%s: done in %s\n", l.what, brief(time.Since(l.begun)))
	case told:
		fmt.Fprintf(l.w, "%s: ended after %s\n", l.what, brief(time.Since(l.begun)))
	}
}

// tell writes how far the phase is, and how long it will take at the rate so far.
func (l *phaseLog) tell() {
	l.mu.Lock()
	l.told, l.blind = true, l.done <= 0 || l.total <= 0
	done, total := l.done, l.total
	l.mu.Unlock()
	took := time.Since(l.begun)
	if total <= 0 || done <= 0 {
		fmt.Fprintf(l.w, "%s: begun %s ago\n", l.what, brief(took))
		return
	}
	left := time.Duration(float64(took) * float64(max(total-done, 0)) / float64(done))
	fmt.Fprintf(l.w, "%s: %s of %s, %s so far, about %s left\n", l.what, l.amount(done, false), l.amount(total, true), brief(took), brief(left))
}

func (l *phaseLog) amount(n int64, unit bool) string {
	switch {
	case l.unit == "bytes":
		return size(n)
	case unit:
		return count(n) + " " + l.unit
	}
	return count(n)
}

// brief writes a time as people say it.
func brief(d time.Duration) string {
	switch {
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < 2*time.Minute:
		return fmt.Sprintf("%.0f s", d.Seconds())
	case d < 2*time.Hour:
		return fmt.Sprintf("%.0f min", d.Minutes())
	}
	return fmt.Sprintf("%.1f h", d.Hours())
}
