package driver

import (
	goruntime "runtime"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxArgs is how many arguments a kernel may have.
	maxArgs = 64
	// maxQueued is how many commands may wait for the thread: some milliseconds
	// of launches. Who queues more waits.
	maxQueued = 512
	// spin is how long the thread looks for more before it sleeps: waking it
	// costs some microseconds, and a decoding loop comes back sooner than that.
	spin = 20 * time.Microsecond
)

type kind uint8

const (
	kindDo kind = iota
	kindLaunch
	kindCopy
	kindUpload
	kindDownload
	kindFill
	kindReplay
	kindRecord
	kindAfter
	kindBarrier // nothing: who waits for it knows that all before it was handed on
)

// A command is one thing for a device's thread to do.
type command struct {
	kind   kind
	always bool // do it on a lost device too
	stream *Stream
	done   *ticket // nil: nobody waits
	do     func() error

	fn            *Function
	grid, block   [3]uint32
	lds           uint32
	cooperative   bool
	early         bool
	graph         *Graph
	event         *Event
	dst, src, len uint64
	n             int // arguments in use
	args          [maxArgs]uint64
}

// A ticket brings a command's result to whoever waits for it.
type ticket struct {
	result chan error
	timer  *time.Timer // nil without patience
}

// A worker is the queue in front of a device's thread. Commands are put in
// one slice while the thread works through another, so that a command costs
// no allocation and a batch one exchange.
type worker struct {
	queued   atomic.Uint64 // commands put in the queue so far
	done     atomic.Uint64 // commands carried out so far
	mu       sync.Mutex
	room     sync.Cond // there is room in the queue again, or the device is lost
	queue    []command
	working  []command
	sleeping bool
	stopped  bool // nothing more is accepted
	wake     chan struct{}
	tickets  []*ticket
	patience time.Duration
	exited   chan struct{}
}

func newWorker(patience time.Duration) *worker {
	w := &worker{wake: make(chan struct{}, 1), patience: patience, exited: make(chan struct{})}
	w.room.L = &w.mu
	return w
}

// reserve returns the next command of the queue, to be filled in until
// commit; the queue is locked in between. refused is asked while waiting.
func (w *worker) reserve(refused func() error) (*command, error) {
	w.mu.Lock()
	for {
		if err := refused(); err != nil {
			w.mu.Unlock()
			return nil, err
		}
		if w.stopped {
			w.mu.Unlock()
			return nil, closedError()
		}
		if len(w.queue) < maxQueued {
			break
		}
		w.room.Wait()
	}
	n := len(w.queue)
	if n < cap(w.queue) {
		w.queue = w.queue[:n+1]
	} else {
		w.queue = append(w.queue, command{})
	}
	c := &w.queue[n]
	c.always, c.done, c.do, c.n = false, nil, nil, 0
	return c, nil
}

// commit ends what reserve began.
func (w *worker) commit() {
	sleeping := w.sleeping
	w.sleeping = false
	w.queued.Add(1)
	w.mu.Unlock()
	if sleeping {
		w.wake <- struct{}{} // has room: only a sleeping thread is woken, and once
	}
}

// drained waits for a moment until everything that was queued before is
// carried out. Where it reports false, a barrier has to be waited for.
func (w *worker) drained() bool {
	upTo := w.queued.Load()
	for began := time.Now(); w.done.Load() < upTo; {
		if time.Since(began) > spin {
			return false
		}
	}
	return true
}

// drop takes back what reserve began.
func (w *worker) drop() {
	w.queue = w.queue[:len(w.queue)-1]
	w.mu.Unlock()
}

// ticket returns a ticket; the queue is locked.
func (w *worker) ticket() *ticket {
	if n := len(w.tickets); n > 0 {
		t := w.tickets[n-1]
		w.tickets = w.tickets[:n-1]
		return t
	}
	return &ticket{result: make(chan error, 1)}
}

// await waits for a ticket's command. It reports false where patience ended
// first; the ticket is then left to the thread.
func (w *worker) await(t *ticket) (err error, answered bool) {
	if w.patience <= 0 {
		err = <-t.result
	} else {
		if t.timer == nil {
			t.timer = time.NewTimer(w.patience)
		} else {
			t.timer.Reset(w.patience)
		}
		select {
		case err = <-t.result:
			t.timer.Stop()
		case <-t.timer.C:
			return nil, false
		}
	}
	w.mu.Lock()
	w.tickets = append(w.tickets, t)
	w.mu.Unlock()
	return err, true
}

// take returns the commands that were queued since, waiting for the first;
// nil: stopped, and all is done.
func (w *worker) take() []command {
	for {
		for began := time.Now(); w.queued.Load() == w.done.Load() && time.Since(began) < spin; {
		}
		w.mu.Lock()
		if len(w.queue) > 0 {
			w.queue, w.working = w.working[:0], w.queue
			w.room.Broadcast()
			w.mu.Unlock()
			return w.working
		}
		if w.stopped {
			w.mu.Unlock()
			return nil
		}
		w.sleeping = true
		w.mu.Unlock()
		<-w.wake
	}
}

// run carries out commands until the worker is stopped.
func (w *worker) run(execute func(*command) error) {
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	defer close(w.exited)
	for {
		batch := w.take()
		if batch == nil {
			return
		}
		for i := range batch {
			c := &batch[i]
			err := execute(c)
			w.done.Add(1)
			if c.done != nil {
				c.done.result <- err
			}
		}
	}
}

// stop lets the thread end once the queue is empty.
func (w *worker) stop() {
	w.mu.Lock()
	w.stopped = true
	sleeping := w.sleeping
	w.sleeping = false
	w.room.Broadcast()
	w.mu.Unlock()
	if sleeping {
		w.wake <- struct{}{}
	}
}

func closedError() error { return &Error{Call: "driver", Reason: ErrClosed} }
