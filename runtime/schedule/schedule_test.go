package schedule

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/runtime/exec"
	"github.com/nstf/nstf/runtime/gpu"
	"github.com/nstf/nstf/runtime/place"
	"github.com/nstf/nstf/runtime/sample"
)

var (
	onDevice = flag.String("device", "cpu", "device that the tests' models run on")
	kernels  = flag.String("kernels", "", "folder that keeps kernels which a GPU needs; default: each test compiles its own")
)

// executor opens a micro checkpoint with a pool of so many positions.
func executor(t testing.TB, name string, o exec.Options) *exec.Executor {
	t.Helper()
	m, err := checkpoint.Open(filepath.Join("../../testdata/micro", name))
	if err != nil {
		t.Fatal(err)
	}
	if o.Device.Request, err = place.ParseRequest(*onDevice); err != nil {
		t.Fatal(err)
	}
	if o.Device.Kernels = *kernels; *kernels == "" {
		o.Device.Kernels = filepath.Join(t.TempDir(), "kernels")
	}
	o.Device.Rows, o.Device.Warm, o.Threads = 64, true, 2
	if o.Context == 0 {
		o.Context = 256
	}
	ex, err := exec.New(m, o)
	var missing *gpu.MissingError
	if errors.As(err, &missing) {
		t.Skipf("no device %s: %v", *onDevice, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ex.Close(); m.Close() })
	return ex
}

// emulated reports whether a GPU runs the tests, which may be an emulated one.
func emulated() bool { return *onDevice != "cpu" }

// requests are texts of many lengths, some of which begin alike, with greedy and
// seeded choices.
func requests(n int, vocab int64) []Request {
	r := rand.New(rand.NewPCG(1, uint64(n)))
	prefix := make([]int32, 150)
	for i := range prefix {
		prefix[i] = r.Int32N(int32(vocab))
	}
	var all []Request
	for i := range n {
		var prompt []int32
		if i%3 == 0 {
			prompt = append(prompt, prefix[:50+r.IntN(100)]...)
		}
		for range 1 + r.IntN(40) {
			prompt = append(prompt, r.Int32N(int32(vocab)))
		}
		c := Choice{MaxTokens: 1 + r.IntN(20)}
		switch i % 4 {
		case 1:
			c.Sampling = sample.Options{Temperature: 1.5, Seed: uint64(i)}
		case 2:
			c.Sampling = sample.Options{Temperature: 1, TopK: 20, TopP: 0.9, RepetitionPenalty: 1.2, Seed: uint64(i)}
		}
		q := Request{Prompt: prompt, Choices: []Choice{c}}
		switch i % 10 {
		case 5:
			c.Sampling.Seed++
			q.Choices = append(q.Choices, c)
		case 6:
			q.Choices[0].Bias = map[int32]float32{3: 2, 5: -4}
			q.Choices[0].Presence, q.Choices[0].Frequency = 0.5, 0.25
		case 7:
			q.Choices[0].Logprobs, q.Choices[0].Top = true, 3
		case 2, 9: // the second one's beginning is kept
			q.Scored, q.Top = true, 2
		}
		all = append(all, q)
	}
	return all
}

// An answer is the tokens of a choice, the logarithms of their probabilities, which
// tell bits of logits apart, and why it ended.
type answer struct {
	tokens []int32
	probs  []float64
	reason Reason
	err    error
	scores []Score // of the prompt
}

// collected reads a stream to its end.
func collected(st *Stream, choices int) []answer {
	out := make([]answer, choices)
	for {
		e, err := st.Next(context.Background())
		if err == io.EOF {
			out[0].scores = st.Scores()
			return out
		}
		if err != nil {
			panic(err)
		}
		a := &out[e.Choice]
		if e.Token >= 0 {
			a.tokens, a.probs = append(a.tokens, e.Token), append(a.probs, e.Logprob)
		}
		if e.Reason != "" {
			a.reason, a.err = e.Reason, e.Err
		}
	}
}

// serve answers requests, so many at once.
func serve(t testing.TB, s *Scheduler, all []Request, atOnce int) [][]answer {
	t.Helper()
	out := make([][]answer, len(all))
	next := make(chan int)
	var users sync.WaitGroup
	for range atOnce {
		users.Add(1)
		go func() {
			defer users.Done()
			for i := range next {
				st, err := s.Submit(context.Background(), all[i])
				if err != nil {
					t.Error(err)
					continue
				}
				out[i] = collected(st, len(all[i].Choices))
			}
		}()
	}
	for i := range all {
		next <- i
	}
	close(next)
	users.Wait()
	return out
}

// queued answers requests that all wait before the first step, so that what happens
// does not depend on who comes when.
func queued(t testing.TB, ex *exec.Executor, all []Request) (*Scheduler, [][]answer) {
	t.Helper()
	s := newScheduler(ex, Options{})
	var streams []*Stream
	for i := range all {
		streams = append(streams, submit(t, s, context.Background(), all[i]))
	}
	go s.loop()
	var out [][]answer
	for i, st := range streams {
		out = append(out, collected(st, len(all[i].Choices)))
	}
	return s, out
}

// closed ends a scheduler and wants every page back.
func closed(t testing.TB, ex *exec.Executor, s *Scheduler) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if r := ex.Room(); r.Free != r.Pages || r.Idle != r.Places {
		t.Errorf("%d of %d pages and %d of %d places came back", r.Free, r.Pages, r.Idle, r.Places)
	}
	if m := s.Metrics(); m.Waiting+m.Running+m.Kept > 0 {
		t.Errorf("left: %+v", m)
	}
}

// alone answers one request after the other, with nothing kept.
func alone(t testing.TB, ex *exec.Executor, all []Request) [][]answer {
	t.Helper()
	s := New(ex, Options{Running: 1, Kept: -1})
	defer closed(t, ex, s)
	return serve(t, s, all, 1)
}

func sameScore(a, b Score) bool { return a.Logprob == b.Logprob && slices.Equal(a.Top, b.Top) }

func same(t testing.TB, what string, got, want [][]answer) {
	t.Helper()
	for i := range want {
		for c := range want[i] {
			g, w := got[i][c], want[i][c]
			if !slices.Equal(g.tokens, w.tokens) || !slices.Equal(g.probs, w.probs) || g.reason != w.reason || !slices.EqualFunc(g.scores, w.scores, sameScore) {
				t.Errorf("%s: request %d, choice %d: %v (%s, %v), alone %v (%s, %v)", what, i, c, g.tokens, g.reason, g.err, w.tokens, w.reason, w.err)
				return
			}
		}
	}
}

// Answers are the same tokens however many are served at once, whatever a step takes,
// and with prompts that are kept or not.
func TestAnswersDoNotDependOnTheLoad(t *testing.T) {
	names := []string{"llama-31", "gemma2", "mixtral", "phi3-longrope", "llama-dynamic", "quant-gptq-int4", "qwen3_next", "llama-31 q4"}
	if emulated() { // which needs its time
		names = names[:1]
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			n := 60
			if name == "llama-31" && !testing.Short() {
				n = 200
			}
			if emulated() {
				n = 8
			}
			name, kv, _ := strings.Cut(name, " ")
			ex := executor(t, name, exec.Options{Sequences: 40, Places: 40, KV: kv})
			all := requests(n, ex.Graph().Vocab)
			ready := compiled(ex)
			if emulated() && ready == 0 {
				t.Error("no kernel is counted")
			}
			want := alone(t, ex, all)
			for _, c := range []struct {
				atOnce int
				o      Options
			}{{1, Options{}}, {8, Options{PromptRows: 7}}, {32, Options{}}, {32, Options{Kept: -1, PromptRows: 33}}, {128, Options{Kept: 5}}} {
				s := New(ex, c.o)
				same(t, fmt.Sprintf("%d at once, %+v", c.atOnce, c.o), serve(t, s, all, min(c.atOnce, n)), want)
				// Who comes one after the other finds what was kept; of those that come together nothing is certain.
				if m := s.Metrics(); m.Yields > 0 || c.atOnce == 1 && m.KeptHits == 0 {
					t.Errorf("%d at once, %+v: %+v", c.atOnce, c.o, m)
				}
				closed(t, ex, s)
			}
			if n := compiled(ex); n != ready {
				t.Errorf("%d kernels were made ready while requests were served, %d before", n-ready, ready)
			}
		})
	}
}

// compiled is how many kernels of a GPU were made ready.
func compiled(ex *exec.Executor) int {
	if m, ok := ex.Meter().(interface{ Kernels() int }); ok {
		return m.Kernels()
	}
	return 0
}

// What a request gets is what a decoding of exec chooses.
func TestAnswersAreThoseOfADecoding(t *testing.T) {
	ex := executor(t, "llama-31", exec.Options{Sequences: 4})
	var all []Request
	for _, r := range requests(40, ex.Graph().Vocab) {
		if len(r.Prompt) > 16 && len(r.Choices) == 1 && !r.Choices[0].onHost() && (len(all) < 3 || !emulated()) {
			all = append(all, r)
		}
	}
	s := New(ex, Options{})
	got := serve(t, s, all, 4)
	closed(t, ex, s)
	for i, r := range all {
		seq, err := ex.NewSequence()
		if err != nil {
			t.Fatal(err)
		}
		sampler, err := sample.New(r.Choices[0].Sampling)
		if err != nil {
			t.Fatal(err)
		}
		d, err := seq.Decode(context.Background(), r.Prompt, sampler, nil)
		if err != nil {
			t.Fatal(err)
		}
		for k, id := range got[i][0].tokens {
			if want, err := d.Next(); err != nil || id != want {
				t.Errorf("request %d, token %d: %d, a decoding chooses %d, %v", i, k, id, want, err)
				break
			}
		}
		d.Stop()
		seq.Close()
	}
}

// The same where sequences have to yield their memory.
func TestYielding(t *testing.T) {
	for _, name := range []string{"llama-31", "phi3-longrope"} {
		wide := executor(t, name, exec.Options{Sequences: 4})
		all := requests(24, wide.Graph().Vocab)
		for i := range all {
			for c := range all[i].Choices {
				all[i].Choices[c].MaxTokens = 180
			}
		}
		if emulated() {
			all = all[:4]
		}
		want := alone(t, wide, all)
		ex := executor(t, name, exec.Options{Positions: 512, Places: 40})
		s, got := queued(t, ex, all)
		same(t, name+" in a small pool", got, want)
		if m := s.Metrics(); m.Yields == 0 {
			t.Errorf("%s: nobody yielded: %+v", name, m)
		}
		closed(t, ex, s)
	}
}
