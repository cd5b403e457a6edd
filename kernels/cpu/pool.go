package cpu

import (
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// A Pool runs parts of work on a fixed number of threads, the caller's own
// among them. Close it when done: its goroutines end then, and only then.
// Running allocates nothing (a closure may; keep it where that matters).
//
// A worker without work looks for some for [spinTime] and then sleeps, so that
// runs in quick succession, as within a token, need not wake it, and an idle
// pool takes no processor time. A run does not wait for workers that have not
// begun when all its parts are done.
type Pool struct {
	mu      sync.Mutex // one Run at a time
	workers []worker
	spin    time.Duration
	ends    sync.WaitGroup // goroutines alive

	plain  func(part int) // what Run was given, or nil
	run    func(worker, part int)
	parts  int64
	_      [64]byte // next is written by all workers: a line of its own
	next   atomic.Int64
	_      [64]byte
	spans  []span              // what is left of each worker's parts; nil: they share next
	own    []span              // the memory of spans
	failed atomic.Pointer[any] // the first panic of a worker
	closed bool

	waiting atomic.Bool   // the caller of Run sleeps until a worker is idle
	idle    chan struct{} // and is woken here
}

// spinTime is how long a worker looks for work before it sleeps. Waking one
// costs some microseconds of the caller's and up to 50 until it runs; between
// the parts of a token there are a few.
const spinTime = 40 * time.Microsecond

// A span is a worker's own range of parts, those from the upper half of left to
// before the lower. Its worker takes the first, others the last.
type span struct {
	left atomic.Uint64
	_    [56]byte // others are written by other threads
}

// first takes the first part, last the last one; false where none is left.
func (s *span) first() (part int, ok bool) {
	for {
		v := s.left.Load()
		lo, hi := v>>32, v&math.MaxUint32
		if lo >= hi {
			return 0, false
		}
		if s.left.CompareAndSwap(v, (lo+1)<<32|hi) {
			return int(lo), true
		}
	}
}

func (s *span) last() (part int, ok bool) {
	for {
		v := s.left.Load()
		lo, hi := v>>32, v&math.MaxUint32
		if lo >= hi {
			return 0, false
		}
		if s.left.CompareAndSwap(v, lo<<32|(hi-1)) {
			return int(hi - 1), true
		}
	}
}

// A worker is one goroutine of a pool.
type worker struct {
	state  atomic.Uint32
	asleep atomic.Bool
	wake   chan struct{}
	_      [40]byte // neighbours are written by other threads
}

// States of a worker. The caller of Run turns idle into offered, and offered
// back into idle where the worker came too late; the worker turns offered into
// busy and busy into idle.
const (
	workerIdle uint32 = iota
	workerOffered
	workerBusy
	workerEnds
)

// NewPool starts a pool of threads workers, at least one: the goroutine that
// calls Run and threads-1 others.
func NewPool(threads int) *Pool {
	p := newPool(threads)
	for i := range p.workers {
		go p.work(i)
	}
	return p
}

// NewPinnedPool is NewPool with each goroutine of the pool on a thread and
// processor of its own, the second and later ones of those that the process may
// use; the caller's is left to the system. It fails where the system, or one
// other than Linux, does not do it.
func NewPinnedPool(threads int) (*Pool, error) {
	p := newPool(threads)
	results := make(chan error)
	for i := range p.workers {
		go func() {
			results <- pin(i + 1)
			p.work(i)
		}()
	}
	var failed error
	for range p.workers {
		if err := <-results; err != nil {
			failed = err
		}
	}
	if failed != nil {
		p.Close()
		return nil, failed
	}
	return p, nil
}

func newPool(threads int) *Pool {
	p := &Pool{workers: make([]worker, max(threads, 1)-1), own: make([]span, max(threads, 1)), idle: make(chan struct{}, 1)}
	if threads <= runtime.GOMAXPROCS(0) { // else one would keep another from running
		p.spin = spinTime
	}
	for i := range p.workers {
		p.workers[i].wake = make(chan struct{}, 1)
	}
	p.ends.Add(len(p.workers))
	return p
}

// Threads returns the number of workers, the caller of Run included.
func (p *Pool) Threads() int { return len(p.workers) + 1 }

// Run calls f(0) to f(parts-1), each once, in any order, at most Threads at a
// time, and returns when all are done. Which worker takes a part is left to
// chance, so f(part) must depend on nothing else. Calls from several goroutines
// take turns; f must not call Run on the same pool. A panic of f is raised
// again in the caller after the other workers have stopped.
func (p *Pool) Run(parts int, f func(part int)) {
	p.start(parts, f, nil, nil)
}

// RunWorkers is Run with the number of the worker, from 0 to Threads-1: no two
// parts run at once with the same one, so it selects a scratch.
func (p *Pool) RunWorkers(parts int, f func(worker, part int)) {
	p.start(parts, nil, f, nil)
}

// RunApart is RunWorkers for parts that read memory one behind the other: each worker
// begins at a place of its own and goes on from there, and helps the others, from the
// end of what they have, when it is done. A thread that reads on where it was gets a
// tenth to a quarter more from memory than one that starts anew every 128 KiB; parts
// may be small.
func (p *Pool) RunApart(parts int, f func(worker, part int)) {
	p.start(parts, nil, f, p.own)
}

func (p *Pool) start(parts int, plain func(int), run func(int, int), spans []span) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		panic("cpu: Run on a closed pool")
	}
	if parts <= 0 {
		return
	}
	p.plain, p.run, p.parts, p.spans = plain, run, int64(parts), spans
	p.next.Store(0)
	for i := range spans {
		lo, hi := Span(parts, 1, len(spans), i)
		spans[i].left.Store(uint64(lo)<<32 | uint64(hi))
	}
	helpers := p.workers[:min(len(p.workers), parts-1)]
	for i := range helpers {
		helpers[i].offer(workerOffered)
	}
	p.take(0)
	for i := range helpers {
		if w := &helpers[i]; !w.state.CompareAndSwap(workerOffered, workerIdle) {
			p.await(w)
		}
	}
	p.plain, p.run = nil, nil
	if v := p.failed.Swap(nil); v != nil {
		panic(*v)
	}
}

// offer changes the state of an idle worker and wakes it where it sleeps.
func (w *worker) offer(state uint32) {
	w.state.Store(state)
	if w.asleep.CompareAndSwap(true, false) {
		w.wake <- struct{}{} // there is room: the last one was taken before it slept
	}
}

// await waits until a busy worker is idle.
func (p *Pool) await(w *worker) {
	if p.spun(func() bool { return w.state.Load() == workerIdle }) {
		return
	}
	for w.state.Load() != workerIdle {
		p.waiting.Swap(true) // see rest
		if w.state.Load() == workerIdle && p.waiting.CompareAndSwap(true, false) {
			return
		}
		<-p.idle // this worker's word, or that of one before it
	}
}

// spun looks for a condition and reports whether it came true in time.
func (p *Pool) spun(done func() bool) bool {
	if done() {
		return true
	}
	if p.spin == 0 {
		return false
	}
	for begin := time.Now(); time.Since(begin) < p.spin; {
		for range 8 {
			pause(4)
			if done() {
				return true
			}
		}
	}
	return false
}

// Close ends the workers and waits for them. A second Close does nothing.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.closed = true
	for i := range p.workers {
		p.workers[i].offer(workerEnds)
	}
	p.ends.Wait()
}

func (p *Pool) work(number int) {
	defer p.ends.Done()
	w := &p.workers[number]
	for {
		w.rest(p)
		switch {
		case w.state.CompareAndSwap(workerOffered, workerBusy):
			p.take(number + 1)
			w.state.Store(workerIdle)
			if p.waiting.CompareAndSwap(true, false) {
				p.idle <- struct{}{}
			}
		case w.state.Load() == workerEnds:
			return
		}
	}
}

// rest returns when the state is, or was for a moment, not idle.
func (w *worker) rest(p *Pool) {
	if p.spun(func() bool { return w.state.Load() != workerIdle }) {
		return
	}
	w.asleep.Swap(true) // not Store: emulated arm64 (qemu 7.2 on x86) lets the load below overtake a store
	if w.state.Load() != workerIdle && w.asleep.CompareAndSwap(true, false) {
		return
	}
	<-w.wake
}

// take runs parts until none is left; a panic leaves none.
func (p *Pool) take(worker int) {
	defer func() {
		if v := recover(); v != nil {
			p.next.Store(p.parts)
			for i := range p.spans {
				p.spans[i].left.Store(0)
			}
			first := v // a copy, that only a panic allocates
			p.failed.CompareAndSwap(nil, &first)
		}
	}()
	if p.spans != nil {
		p.takeApart(worker)
		return
	}
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

// takeApart runs a worker's own parts and then those that others have left.
func (p *Pool) takeApart(worker int) {
	for part, ok := p.spans[worker].first(); ok; part, ok = p.spans[worker].first() {
		p.run(worker, part)
	}
	for i := 1; i < len(p.spans); i++ {
		other := &p.spans[(worker+i)%len(p.spans)]
		for part, ok := other.last(); ok; part, ok = other.last() {
			p.run(worker, part)
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
