package cpu

import (
	"sync"
	"sync/atomic"
)

// A Pool runs parts of work on a fixed number of threads, the caller's own
// among them. Close it when done: its goroutines end then, and only then.
// Running allocates nothing (a closure may; keep it where that matters).
type Pool struct {
	mu   sync.Mutex // one Run at a time
	wake []chan struct{}
	done sync.WaitGroup // workers of the Run in progress
	ends sync.WaitGroup // goroutines alive

	plain  func(part int) // what Run was given, or nil
	run    func(worker, part int)
	parts  int64
	next   atomic.Int64
	failed atomic.Pointer[any] // the first panic of a worker
	closed bool
}

// NewPool starts a pool of threads workers, at least one: the goroutine that
// calls Run and threads-1 others, which sleep between calls.
func NewPool(threads int) *Pool {
	p := &Pool{wake: make([]chan struct{}, max(threads, 1)-1)}
	for i := range p.wake {
		p.wake[i] = make(chan struct{}, 1)
		p.ends.Add(1)
		go p.work(i+1, p.wake[i])
	}
	return p
}

// Threads returns the number of workers, the caller of Run included.
func (p *Pool) Threads() int { return len(p.wake) + 1 }

// Run calls f(0) to f(parts-1), each once, in any order, at most Threads at a
// time, and returns when all are done. Which worker takes a part is left to
// chance, so f(part) must depend on nothing else. Calls from several goroutines
// take turns; f must not call Run on the same pool. A panic of f is raised
// again in the caller after the other workers have stopped.
func (p *Pool) Run(parts int, f func(part int)) {
	p.start(parts, f, nil)
}

// RunWorkers is Run with the number of the worker, from 0 to Threads-1: no two
// parts run at once with the same one, so it selects a scratch.
func (p *Pool) RunWorkers(parts int, f func(worker, part int)) {
	p.start(parts, nil, f)
}

func (p *Pool) start(parts int, plain func(int), run func(int, int)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		panic("cpu: Run on a closed pool")
	}
	if parts <= 0 {
		return
	}
	p.plain, p.run, p.parts = plain, run, int64(parts)
	p.next.Store(0)
	helpers := min(len(p.wake), parts-1)
	p.done.Add(helpers)
	for _, c := range p.wake[:helpers] {
		c <- struct{}{}
	}
	p.take(0)
	p.done.Wait()
	p.plain, p.run = nil, nil
	if v := p.failed.Swap(nil); v != nil {
		panic(*v)
	}
}

// Close ends the workers and waits for them. A second Close does nothing.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.closed = true
	for _, c := range p.wake {
		close(c)
	}
	p.ends.Wait()
}

func (p *Pool) work(worker int, wake <-chan struct{}) {
	defer p.ends.Done()
	for range wake {
		p.take(worker)
		p.done.Done()
	}
}

// take runs parts until none is left; a panic leaves none.
func (p *Pool) take(worker int) {
	defer func() {
		if v := recover(); v != nil {
			p.next.Store(p.parts)
			first := v // a copy, that only a panic allocates
			p.failed.CompareAndSwap(nil, &first)
		}
	}()
	for {
		part := p.next.Add(1) - 1
		if part >= p.parts {
			return
		}
		if p.plain != nil {
			p.plain(int(part))
		} else {
			p.run(worker, int(part))
		}
	}
}

// Span returns the half-open range of part i of parts when n items are split
// evenly at multiples of align: the whole of n is covered, the last range may
// be short and any may be empty.
func Span(n, align, parts, i int) (lo, hi int) {
	blocks := (n + align - 1) / align
	return min(i*blocks/parts*align, n), min((i+1)*blocks/parts*align, n)
}
