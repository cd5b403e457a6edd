package schedule

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nstf/nstf/runtime/device"
	"github.com/nstf/nstf/runtime/exec"
	"github.com/nstf/nstf/runtime/sample"
)

// prompt is n tokens.
func prompt(seed, n int, vocab int64) []int32 {
	r := rand.New(rand.NewPCG(uint64(seed), 9))
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = r.Int32N(int32(vocab))
	}
	return ids
}

func submit(t testing.TB, s *Scheduler, ctx context.Context, r Request) *Stream {
	t.Helper()
	st, err := s.Submit(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// A choice that is stopped, a context that ends, and a stream that is closed end, and
// others go on.
func TestEndings(t *testing.T) {
	ex := executor(t, "llama-31", exec.Options{Sequences: 8})
	vocab := ex.Graph().Vocab
	s := New(ex, Options{})
	long := Choice{}
	ctx, cancel := context.WithCancel(context.Background())
	streams := []*Stream{
		submit(t, s, context.Background(), Request{Prompt: prompt(1, 20, vocab), Choices: []Choice{long, {MaxTokens: 40}}}),
		submit(t, s, ctx, Request{Prompt: prompt(2, 20, vocab), Choices: []Choice{long}}),
		submit(t, s, context.Background(), Request{Prompt: prompt(3, 20, vocab), Choices: []Choice{long, long}}),
		submit(t, s, context.Background(), Request{Prompt: prompt(4, 20, vocab), Choices: []Choice{long}}),
	}
	for _, st := range streams {
		if e, err := st.Next(context.Background()); err != nil || e.Token < 0 {
			t.Fatalf("%+v, %v", e, err)
		}
	}
	streams[0].Stop(0)
	cancel()
	streams[2].Close()
	want := [][]Reason{{ReasonCancel, ReasonLength}, {ReasonCancel}, {ReasonCancel, ReasonCancel}, {ReasonContext}}
	for i, st := range streams {
		for c, a := range collected(st, len(want[i])) {
			if a.reason != want[i][c] && !(a.reason == ReasonContext && want[i][c] == ReasonCancel) { // it may have been faster
				t.Errorf("request %d, choice %d ended by %s, %v", i, c, a.reason, a.err)
			}
		}
	}
	if u := streams[0].Usage(); u.PromptTokens != 20 || u.Tokens < 41 {
		t.Errorf("usage %+v", u)
	}
	stop := collected(submit(t, s, context.Background(), Request{Prompt: prompt(5, 20, vocab), Choices: []Choice{{MaxTokens: 9}}}), 1)[0].tokens[4]
	got := collected(submit(t, s, context.Background(), Request{Prompt: prompt(5, 20, vocab), Choices: []Choice{{MaxTokens: 9, Stops: []int32{stop}}}}), 1)[0]
	if got.reason != ReasonStop || got.tokens[len(got.tokens)-1] != stop || len(got.tokens) > 5 {
		t.Errorf("with the stop %d: %+v", stop, got)
	}
	if err := s.Drain(context.Background()); err != nil {
		t.Error(err)
	}
	if _, err := s.Submit(context.Background(), Request{Prompt: prompt(1, 3, vocab), Choices: []Choice{long}}); !errors.Is(err, ErrClosed) {
		t.Errorf("behind the end: %v", err)
	}
	closed(t, ex, s)
}

// What can never be served is refused at once.
func TestRefusals(t *testing.T) {
	ex := executor(t, "llama-31", exec.Options{Sequences: 1})
	s := newScheduler(ex, Options{Waiting: 2}) // nobody serves
	vocab := ex.Graph().Vocab
	ctx := context.Background()
	for _, r := range []Request{
		{Prompt: prompt(1, 257, vocab), Choices: []Choice{{}}},
		{Prompt: []int32{int32(vocab)}, Choices: []Choice{{}}},
		{Prompt: []int32{-1}, Choices: []Choice{{}}},
		{Prompt: []int32{1}, Choices: []Choice{{MaxTokens: -1}}},
		{Prompt: []int32{1}, Choices: []Choice{{Sampling: sample.Options{Temperature: -1}}}},
	} {
		if _, err := s.Submit(ctx, r); err == nil {
			t.Errorf("%d tokens from %d on, %+v: accepted", len(r.Prompt), r.Prompt[0], r.Choices)
		}
	}
	st := submit(t, s, ctx, Request{Prompt: []int32{1}, Choices: []Choice{{MaxTokens: 1}, {MaxTokens: 2}}})
	if _, err := s.Submit(ctx, Request{Prompt: []int32{1}, Choices: []Choice{{}}}); !errors.Is(err, ErrBusy) {
		t.Errorf("a queue of two takes three: %v", err)
	}
	go s.loop()
	if a := collected(st, 2); a[0].reason != ReasonLength || a[1].reason != ReasonLength {
		t.Errorf("%+v", a)
	}
	closed(t, ex, s)
}

// odd allows odd tokens and then a stop, and counts what it is told.
type odd struct {
	left  int
	stop  int32
	taken []int32
}

func (o *odd) Mask(bits []uint32) (bool, error) {
	for i := range bits {
		bits[i] = 0xaaaaaaaa
	}
	if o.left == 0 {
		clear(bits)
		bits[o.stop/32] = 1 << (o.stop % 32)
	}
	return o.left != 3, nil // then all may
}

func (o *odd) Accept(id int32) error {
	o.left--
	o.taken = append(o.taken, id)
	if o.left < -1 {
		return errors.New("behind the stop")
	}
	return nil
}

func (o *odd) Forced() []int32 { return nil }

// A constraint sees each token once and decides what may come next; also where the
// sequence has to yield.
func TestConstraint(t *testing.T) {
	wide := executor(t, "llama-31", exec.Options{Sequences: 8})
	tight := executor(t, "llama-31", exec.Options{Positions: 512, Places: 16})
	vocab := wide.Graph().Vocab
	var want [][]int32
	length, requests := 200, 6
	if emulated() { // which needs its time
		length, requests = 8, 3
	}
	for _, ex := range []*exec.Executor{wide, tight} {
		var all []Request
		var rules []*odd
		for i := range requests {
			o := &odd{left: length, stop: 4}
			rules = append(rules, o)
			all = append(all, Request{Prompt: prompt(i, 30, vocab), Choices: []Choice{{Constraint: o, Stops: []int32{4}, Sampling: sample.Options{Temperature: 2, Seed: uint64(i)}}}})
		}
		s, answers := queued(t, ex, all)
		for i, a := range answers {
			got := a[0].tokens
			if a[0].reason != ReasonStop || len(got) > length+1 || !slices.Equal(got, rules[i].taken) {
				t.Errorf("%+v; the constraint saw %v", a[0], rules[i].taken)
			}
			for k, id := range got[:len(got)-1] {
				if id%2 == 0 && k != length-3 {
					t.Errorf("token %d is %d", k, id)
				}
			}
			if ex == wide {
				want = append(want, got)
			} else if !slices.Equal(got, want[i]) {
				t.Errorf("in a small pool: %v, want %v", got, want[i])
			}
		}
		if m := s.Metrics(); ex == tight && m.Yields == 0 && !emulated() {
			t.Errorf("nobody yielded: %+v", m)
		}
		closed(t, ex, s)
	}
	s := New(wide, Options{})
	a := collected(submit(t, s, context.Background(), Request{Prompt: prompt(1, 9, vocab), Choices: []Choice{{Constraint: nothing{}}}}), 1)[0]
	if a.reason != ReasonError || a.err == nil || len(a.tokens) > 0 {
		t.Errorf("where no token is allowed: %+v", a)
	}
	closed(t, wide, s)
}

type nothing struct{}

func (nothing) Mask(bits []uint32) (bool, error) { clear(bits); return true, nil }
func (nothing) Accept(int32) error               { return nil }
func (nothing) Forced() []int32                  { return nil }

// rails leave a choice at every sixth token alone, and end with a stop.
type rails struct {
	at, length int
	stop       int32
	jump       bool // or masks of one token
}

func (r *rails) only() (int32, bool) {
	if r.at == r.length {
		return r.stop, true
	}
	return int32(7 + r.at%6), r.at%6 > 0
}

func (r *rails) Mask(bits []uint32) (bool, error) {
	id, one := r.only()
	if one {
		clear(bits)
		bits[id/32] = 1 << (id % 32)
	}
	return one, nil
}

func (r *rails) Accept(id int32) error {
	if only, one := r.only(); one && id != only {
		return errors.New("off the rails")
	}
	r.at++
	return nil
}

func (r *rails) Forced() (ids []int32) {
	for then := *r; r.jump && then.at < r.length; then.at++ {
		id, one := then.only()
		if !one {
			break
		}
		ids = append(ids, id)
	}
	return ids
}

// Tokens that have to come are those that masks of one token choose, with the same ones
// between them, in fewer passes; also where sequences yield, and where probabilities are
// asked for.
func TestForced(t *testing.T) {
	wide := executor(t, "llama-31", exec.Options{Sequences: 8})
	tight := executor(t, "llama-31", exec.Options{Positions: 512, Places: 16})
	vocab := wide.Graph().Vocab
	length, requests := 200, 6
	if emulated() { // which needs its time
		length, requests = 14, 2
	}
	ask := func(ex *exec.Executor, jump, logprobs bool) ([][]answer, Metrics) {
		var all []Request
		for i := range requests {
			c := Choice{Constraint: &rails{length: length, stop: 4, jump: jump}, Stops: []int32{4}, Sampling: sample.Options{Temperature: 2, Seed: uint64(i)}, Logprobs: logprobs}
			all = append(all, Request{Prompt: prompt(i, 30, vocab), Choices: []Choice{c}})
		}
		s, answers := queued(t, ex, all)
		m := s.Metrics()
		closed(t, ex, s)
		return answers, m
	}
	want, before := ask(wide, false, false)
	for _, c := range []struct {
		ex             *exec.Executor
		jump, logprobs bool
	}{{wide, true, false}, {tight, true, false}, {wide, true, true}, {wide, false, true}} {
		got, m := ask(c.ex, c.jump, c.logprobs)
		for i := range want {
			if a := got[i][0]; a.reason != ReasonStop || len(a.tokens) != length+1 || !slices.Equal(a.tokens, want[i][0].tokens) {
				t.Errorf("%v %v: request %d: %v, %v; want %v", c.jump, c.logprobs, i, a.tokens, a.err, want[i][0].tokens)
			}
		}
		fewer := c.jump && !c.logprobs
		if n := int64(requests * (length - (length+5)/6)); fewer && m.Forced != n || !fewer && m.Forced != 0 {
			t.Errorf("%v %v: %d forced of %d", c.jump, c.logprobs, m.Forced, n)
		}
		if c.ex == wide && fewer && m.Steps > before.Steps/3 || m.Tokens != before.Tokens {
			t.Errorf("%v %v: %d passes for %d tokens; without jumps %d for %d", c.jump, c.logprobs, m.Steps, m.Tokens, before.Steps, before.Tokens)
		}
		if c.ex == tight && m.Yields == 0 && !emulated() {
			t.Errorf("nobody yielded: %+v", m)
		}
	}
}

// Bias, penalties and logarithms of probabilities are what their names say.
func TestHostChoices(t *testing.T) {
	ex := executor(t, "llama-31", exec.Options{Sequences: 8})
	vocab := ex.Graph().Vocab
	s := New(ex, Options{})
	defer closed(t, ex, s)
	ids := prompt(1, 33, vocab)
	ask := func(c Choice) []Event {
		c.MaxTokens = 30
		st := submit(t, s, context.Background(), Request{Prompt: ids, Choices: []Choice{c}})
		var out []Event
		for {
			e, err := st.Next(context.Background())
			if err == io.EOF {
				return out
			}
			out = append(out, e)
		}
	}
	plain, told := ask(Choice{}), ask(Choice{Logprobs: true, Top: 4})
	for i, e := range told {
		sum := 0.0
		for k, l := range e.Top {
			sum += math.Exp(l.Logprob)
			if k > 0 && l.Logprob > e.Top[k-1].Logprob {
				t.Errorf("token %d: %v", i, e.Top)
			}
		}
		if e.Token != plain[i].Token || len(e.Top) != 4 || e.Top[0].Token != e.Token || e.Top[0].Logprob != e.Logprob || !(sum > 0 && sum <= 1+1e-9) {
			t.Errorf("token %d: %+v, without logprobs %d", i, e, plain[i].Token)
		}
	}
	first := plain[0].Token
	for _, e := range ask(Choice{Bias: map[int32]float32{first: float32(math.Inf(-1))}}) {
		if e.Token == first {
			t.Errorf("token %d is forbidden", first)
		}
	}
	seen := map[int32]bool{}
	for _, e := range ask(Choice{Presence: 1e6}) {
		if seen[e.Token] {
			t.Errorf("token %d comes again", e.Token)
		}
		seen[e.Token] = true
	}
}

// Recurrent sequences begin with what was kept at a few places alone.
func TestKeptStates(t *testing.T) {
	if emulated() {
		t.Skip("delta nets: the processor's only")
	}
	ex := executor(t, "qwen3_next", exec.Options{Sequences: 4, Places: 4})
	vocab := ex.Graph().Vocab
	s := New(ex, Options{})
	ids := prompt(1, 180, vocab)
	for i, c := range []struct{ prompt, cached int }{{150, 0}, {150, 133}, {180, 133}, {180, 163}, {120, 0}} {
		st := submit(t, s, context.Background(), Request{Prompt: ids[:c.prompt], Choices: []Choice{{MaxTokens: 5}}})
		collected(st, 1)
		if u := st.Usage(); u.CachedTokens != c.cached {
			t.Errorf("prompt %d of %d tokens: %d found, want %d", i, c.prompt, u.CachedTokens, c.cached)
		}
	}
	closed(t, ex, s)
}

// The next turn of a conversation, and the same prompt again, begin with what is kept.
func TestKept(t *testing.T) {
	ex := executor(t, "llama-31", exec.Options{Sequences: 8})
	vocab := ex.Graph().Vocab
	s := New(ex, Options{})
	ids := prompt(1, 180, vocab)
	for i, c := range []struct{ prompt, cached int }{{150, 0}, {150, 149}, {180, 150}, {100, 99}, {63, 0}, {181, 180}} {
		text := append(slices.Clone(ids[:min(c.prompt, 180)]), prompt(7, max(c.prompt-180, 0), vocab)...)
		st := submit(t, s, context.Background(), Request{Prompt: text, Choices: []Choice{{MaxTokens: 5}}})
		collected(st, 1)
		if u := st.Usage(); u.CachedTokens != c.cached {
			t.Errorf("prompt %d of %d tokens: %d found, want %d", i, c.prompt, u.CachedTokens, c.cached)
		}
	}
	st := submit(t, s, context.Background(), Request{Prompt: prompt(5, 100, vocab), Choices: []Choice{{MaxTokens: 5}, {MaxTokens: 5, Sampling: sample.Options{Temperature: 1}}}})
	collected(st, 2)
	if m := s.Metrics(); m.CachedTokens != 149+150+99+180+99 {
		t.Errorf("the second choice computed the prompt again: %+v", m)
	}
	closed(t, ex, s)
}

// Users of every kind: some read slowly, some vanish, of whom one before it is served.
// Nothing is left.
func TestEndurance(t *testing.T) {
	requests := 12
	if testing.Short() {
		requests = 4
	}
	ex := executor(t, "llama-31", exec.Options{Positions: 1024, Places: 12})
	before := runtime.NumGoroutine()
	s := New(ex, Options{Waiting: 16, Kept: 8})
	vocab := ex.Graph().Vocab
	for range 2 { // the second begins with what the first leaves
		collected(submit(t, s, context.Background(), Request{Prompt: prompt(0, 100, vocab), Choices: []Choice{{MaxTokens: 1}}}), 1)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	submit(t, s, ctx, Request{Prompt: prompt(0, 100, vocab), Choices: []Choice{{}}})
	var users sync.WaitGroup
	for u := range 24 {
		users.Add(1)
		go func() {
			defer users.Done()
			r := rand.New(rand.NewPCG(uint64(u), 3))
			for range requests {
				if err := live(s, r, u, vocab); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	users.Wait()
	if err := s.Drain(context.Background()); err != nil {
		t.Error(err)
	}
	m := s.Metrics()
	ended := int64(0)
	for _, n := range m.Ended {
		ended += n
	}
	if ended != m.Choices || m.Ended[ReasonCancel] == 0 || m.Ended[ReasonLength] == 0 || m.KeptHits == 0 || m.Ended[ReasonError] > 0 {
		t.Errorf("%+v", m)
	}
	closed(t, ex, s)
	for deadline := time.Now().Add(time.Minute); runtime.NumGoroutine() > before; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
	}
}

// live is one request of a user of some kind.
func live(s *Scheduler, r *rand.Rand, kind int, vocab int64) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	q := Request{Prompt: prompt(kind%5, 1+r.IntN(100), vocab), Choices: []Choice{{MaxTokens: 1 + r.IntN(200)}}}
	if kind%4 == 1 {
		q.Choices = append(q.Choices, Choice{MaxTokens: 30, Sampling: sample.Options{Temperature: 1, Seed: r.Uint64()}, Logprobs: true})
	}
	st, err := s.Submit(ctx, q)
	for errors.Is(err, ErrBusy) {
		time.Sleep(time.Millisecond)
		st, err = s.Submit(ctx, q)
	}
	if err != nil {
		return err
	}
	for {
		e, err := st.Next(ctx)
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		case e.Reason == ReasonError:
			return fmt.Errorf("choice %d: %w", e.Choice, e.Err)
		case kind%4 == 2 && r.IntN(20) == 0:
			return nil // vanishes: the context ends
		case kind%4 == 3:
			time.Sleep(time.Millisecond)
		}
	}
}

// Where blocks of a prompt's queries choose pages, a prompt takes whole pages of what is kept,
// to the answer that it has alone; also where keys and values in codes are kept at a few places.
func TestKeptOfPromptPolicy(t *testing.T) {
	if emulated() {
		t.Skip("prompts of more than a thousand tokens; runtime/exec has shorter ones by a policy")
	}
	type count struct{ prompt, cached int }
	for _, c := range []struct {
		kv     string
		counts []count
	}{
		{"f16", []count{{1250, 0}, {1250, 1216}, {1300, 1216}, {1150, 1088}}},
		{"q4", []count{{1250, 0}, {1250, 1216}, {1300, 1216}, {1300, 1280}, {1150, 1024}}},
	} {
		p := &device.Policy{Pages: 0.1, Mass: 1, Least: 64, Refresh: 10}
		ex := executor(t, "llama-31", exec.Options{Sequences: 4, Context: 1400, KV: c.kv, Policy: p})
		dense := ex.Arithmetic()
		for range ex.Graph().Blocks {
			p.Prompts = append(p.Prompts, make([]float64, ex.Graph().Blocks[0].Attn.KVHeads))
		}
		if ex.Arithmetic() == dense {
			t.Error("a disk would not tell prompts by a policy from dense ones")
		}
		ids := prompt(1, 1300, ex.Graph().Vocab)
		ask := func(s *Scheduler, n int) (answer, int) {
			st := submit(t, s, context.Background(), Request{Prompt: ids[:n], Choices: []Choice{{MaxTokens: 6, Logprobs: true}}})
			return collected(st, 1)[0], st.Usage().CachedTokens
		}
		s := New(ex, Options{})
		for _, n := range c.counts {
			got, found := ask(s, n.prompt)
			alone := New(ex, Options{Kept: -1})
			want, _ := ask(alone, n.prompt)
			alone.Close()
			if found != n.cached {
				t.Errorf("%s, %d tokens: %d found, want %d", c.kv, n.prompt, found, n.cached)
			}
			if !slices.Equal(got.tokens, want.tokens) || !slices.Equal(got.probs, want.probs) {
				t.Errorf("%s, %d tokens: %v, alone %v", c.kv, n.prompt, got, want)
			}
		}
		if read, held := ex.PagesRead(); read == 0 || read >= held {
			t.Errorf("%s: %d of %d pages read", c.kv, read, held)
		}
		closed(t, ex, s)
	}
}
