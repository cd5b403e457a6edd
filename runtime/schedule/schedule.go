package schedule

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/runtime/exec"
	"github.com/nstf/nstf/runtime/sample"
)

// Options are the limits of a [Scheduler].
type Options struct {
	// Running is how many sequences go on at once; 0: as many as the device has
	// places for, 256 at most.
	Running int
	// Waiting is how many choices may wait; 0: 1024. More are refused with [ErrBusy].
	Waiting int
	// PromptRows is how many rows of prompts a step takes beside tokens that are
	// decoded; 0: 256, or 1024 on a GPU (docs/perf/serve.md).
	PromptRows int
	// Kept is how many prompts are kept to begin others with; 0: 1024, less than 0:
	// none.
	Kept int
	// Disk keeps prompts beyond the memory and the process, where the executor's device
	// can ([exec.Executor.Storable]); nil: none does. It stays the caller's to close,
	// afterwards. Identity says which model it is: another one, or another file of it,
	// has another.
	Disk     *Disk
	Identity string
}

func (o Options) filled(ex *exec.Executor) Options {
	if o.Running <= 0 {
		o.Running = 256
	}
	if places := ex.Room().Places; places > 0 {
		o.Running = min(o.Running, places)
	}
	if o.Waiting <= 0 {
		o.Waiting = 1024
	}
	if o.PromptRows <= 0 {
		if o.PromptRows = 256; ex.Meter() != nil {
			o.PromptRows = 1024
		}
	}
	if o.Kept == 0 {
		o.Kept = 1024
	}
	return o
}

// A Request is a prompt and the choices that continue it, each by itself.
type Request struct {
	Prompt  []int32 // one token at least; not changed while the request lives
	Choices []Choice
	// Scored asks for the logarithm of the probability of each of the prompt's tokens behind
	// the first, and Top for those of so many of the most probable ones there:
	// [Stream.Scores]. All of the prompt is computed then.
	Scored bool
	Top    int
}

// A Choice says how one continuation of a prompt is chosen and where it ends.
type Choice struct {
	Sampling sample.Options
	// MaxTokens ends it; 0: the context does.
	MaxTokens int
	// Stops are tokens that end it; they are given out as its last.
	Stops []int32

	// Constraint says which tokens may come next; nil: all.
	Constraint Constraint

	// What follows has the host choose: logits come down for every token.

	// Bias is added to logits, by token; -Inf forbids one.
	Bias map[int32]float32
	// Presence is subtracted from the logit of each token that was chosen before, and
	// Frequency as often as it was.
	Presence, Frequency float32
	// Logprobs asks for the logarithm of each token's probability, and Top for those
	// of so many of the most probable ones, by the model's logits as they are.
	Logprobs bool
	Top      int
}

// onHost reports whether the host has to choose.
func (c *Choice) onHost() bool {
	return len(c.Bias) > 0 || c.Presence != 0 || c.Frequency != 0 || c.Logprobs
}

// A Constraint is what a grammar allows. It belongs to one choice, whose scheduler
// calls it from one goroutine: for each token Mask, once more where a step found no
// room, then Accept and Forced.
type Constraint interface {
	// Mask is an exec.Masker.
	Mask(bits []uint32) (bool, error)
	// Accept takes the token that was chosen, one of Stops included. An error ends the
	// choice.
	Accept(token int32) error
	// Forced returns tokens that come next without being chosen, each of which Mask
	// would allow behind those before; none is always right. Accept takes them.
	Forced() []int32
}

// A Reason says why a choice ended.
type Reason string

// The reasons.
const (
	ReasonStop    Reason = "stop"    // a token of Choice.Stops
	ReasonLength  Reason = "length"  // Choice.MaxTokens
	ReasonContext Reason = "context" // no position is left
	ReasonCancel  Reason = "cancel"  // its reader stopped it, or its context ended
	ReasonError   Reason = "error"
)

// An Event is one token of a choice, its end, or both.
type Event struct {
	Choice int
	Token  int32 // -1: none
	// Logprob is of the token, Top the most probable ones in falling order, where
	// asked for.
	Logprob float64
	Top     []Logprob
	// Reason says that the choice has ended, "" that it has not.
	Reason Reason
	Err    error // with ReasonError and ReasonCancel
}

// A Logprob is the logarithm of a token's probability.
type Logprob struct {
	Token   int32
	Logprob float64
}

var (
	// ErrBusy says that too many requests wait.
	ErrBusy = errors.New("too many requests wait")
	// ErrClosed says that the scheduler takes no more requests.
	ErrClosed = errors.New("the server takes no more requests")
)

// A Scheduler serves requests on one executor.
type Scheduler struct {
	ex   *exec.Executor
	o    Options
	page int

	mu         sync.Mutex
	changed    *sync.Cond
	waiting    []*job       // by arrival
	embeddings []*embedding // by arrival; the loop reads the first
	arrivals   uint64
	draining   bool
	closed     bool
	broken     error // of the device
	metrics    Metrics

	done chan struct{} // closed when the loop has ended

	// The loop's own.
	running []*job // by arrival
	kept    kept
	turns   []exec.Turn
}

// New returns a scheduler that runs until it is closed. The executor stays the
// caller's to close, afterwards, and has no other user meanwhile.
func New(ex *exec.Executor, o Options) *Scheduler {
	s := newScheduler(ex, o)
	go s.loop()
	return s
}

func newScheduler(ex *exec.Executor, o Options) *Scheduler {
	s := &Scheduler{ex: ex, o: o.filled(ex), page: ex.Room().PageSize, done: make(chan struct{})}
	s.changed = sync.NewCond(&s.mu)
	s.kept = newKept(ex, s.page, &s.o)
	return s
}

// Submit queues a request. The end of ctx ends it. Errors are those of a sampler's
// options, of unknown tokens, exec.ErrContextFull of prompts that never fit, [ErrBusy]
// and [ErrClosed].
func (s *Scheduler) Submit(ctx context.Context, r Request) (*Stream, error) {
	if len(r.Prompt) == 0 || len(r.Choices) == 0 {
		panic("schedule: a request without a prompt or without choices")
	}
	if err := s.check(&r); err != nil {
		return nil, err
	}
	st := &Stream{s: s, ctx: ctx, more: make(chan struct{}, 1), left: len(r.Choices), stopped: make([]bool, len(r.Choices))}
	st.usage.PromptTokens = len(r.Prompt)
	var jobs []*job
	for i := range r.Choices {
		j, err := newJob(st, r.Prompt, i, &r.Choices[i])
		if err != nil {
			return nil, err
		}
		if i > 0 {
			j.leader = jobs[0]
		} else if r.Scored {
			j.score = &score{prompt: r.Prompt, top: r.Top, vocab: int(s.ex.Graph().Vocab), st: st}
		}
		jobs = append(jobs, j)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.refuses(len(jobs)); err != nil {
		return nil, err
	}
	for _, j := range jobs {
		s.arrivals++
		j.arrival = s.arrivals
	}
	s.waiting = append(s.waiting, jobs...)
	s.metrics.Requests++
	s.metrics.Choices += int64(len(jobs))
	s.metrics.PromptTokens += int64(len(r.Prompt))
	s.changed.Signal()
	return st, nil
}

// refuses says why no more may come, nil where so many may. The lock is held.
func (s *Scheduler) refuses(more int) error {
	switch {
	case s.broken != nil:
		return s.broken
	case s.closed || s.draining:
		return ErrClosed
	case len(s.waiting)+len(s.embeddings)+more > s.o.Waiting:
		return ErrBusy
	}
	return nil
}

// check refuses what can never be served.
func (s *Scheduler) check(r *Request) error {
	if n, most := int64(len(r.Prompt)), s.ex.Context(); n > most {
		return &exec.ContextFullError{New: n, Capacity: most}
	}
	vocab := s.ex.Graph().Vocab
	for i, id := range r.Prompt {
		if id < 0 || int64(id) >= vocab {
			return formats.Errorf("", "", "token %d at index %d is not one of the model's %d", id, i, vocab)
		}
	}
	if room := s.ex.Room(); s.pages(len(r.Prompt)) > room.Pages {
		return &exec.ContextFullError{New: int64(len(r.Prompt)), Capacity: room.Pages * int64(room.PageSize)}
	}
	if r.Top < 0 || int64(r.Top) > vocab {
		return fmt.Errorf("schedule: %d of the most probable tokens are asked for", r.Top)
	}
	for i := range r.Choices {
		if c := &r.Choices[i]; c.MaxTokens < 0 || c.Top < 0 || int64(c.Top) > vocab {
			return fmt.Errorf("schedule: choice %d asks for %d tokens and %d logprobs", i, c.MaxTokens, c.Top)
		}
	}
	return nil
}

// pages returns the pages of so many positions.
func (s *Scheduler) pages(positions int) int64 {
	return (int64(positions) + int64(s.page) - 1) / int64(s.page)
}

// Drain takes no more requests, and waits for those that it has, or for the end of
// ctx, whose error it returns.
func (s *Scheduler) Drain(ctx context.Context) error {
	s.mu.Lock()
	s.draining = true
	s.changed.Broadcast()
	s.mu.Unlock()
	select {
	case <-s.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close ends all requests and gives all memory back. A second time it does nothing.
func (s *Scheduler) Close() error {
	s.mu.Lock()
	s.closed = true
	s.changed.Broadcast()
	s.mu.Unlock()
	<-s.done
	return nil
}

// Err returns the device's error that ended the scheduler, nil while it works.
func (s *Scheduler) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.broken
}

// insert puts a job back among those that wait, by arrival. The lock is held.
func (s *Scheduler) insert(j *job) {
	at, _ := slices.BinarySearchFunc(s.waiting, j, byArrival)
	s.waiting = slices.Insert(s.waiting, at, j)
}
