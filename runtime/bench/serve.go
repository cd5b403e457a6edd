package bench

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/runtime/exec"
	"github.com/nstf/nstf/runtime/schedule"
	"github.com/nstf/nstf/runtime/serve/client"
)

// A Serving is how fast requests are served that come at once, medians of rounds. Each
// has a prompt of its own, and takes as many tokens.
type Serving struct {
	Concurrency int `json:"concurrency"`
	Prompt      int `json:"prompt"` // tokens of each
	Gen         int `json:"gen"`
	// PromptRate is the tokens of all prompts, over the time until each has its first
	// token. FirstToken is how long that takes, in milliseconds.
	PromptRate float64          `json:"prompt_tokens_per_s"`
	FirstToken client.Quantiles `json:"first_token_ms"`
	// DecodeRate is the tokens of all, where the prompts are kept from before. StepRate
	// is those behind the last one of the first tokens, over the time from then on.
	DecodeRate float64 `json:"decode_tokens_per_s"`
	StepRate   float64 `json:"step_tokens_per_s"`
	// ServeRate is the tokens of all, prompts that nobody has seen included;
	// TokenTime is the time between a request's tokens then, in milliseconds.
	ServeRate float64          `json:"serve_tokens_per_s"`
	TokenTime client.Quantiles `json:"token_ms"`
}

// Serve measures a scheduler in this process, for each number of requests at once; done
// is called behind each, nil: nobody is. Of the options it takes Prompt and Gen, both at
// least 1, Repeat, and how the model is executed. Errors are those of the executor.
func Serve(ctx context.Context, m *model.Model, o Options, concurrency []int, done func(Serving)) ([]Serving, error) {
	most := int64(slices.Max(concurrency))
	positions := int64(o.Prompt + o.Gen + 1)
	const page, more = 64, 2 // a page to part from what is kept, and one for the prompt that is next
	o.Device.Warm = true
	ex, err := exec.New(m, exec.Options{Threads: o.Threads, Context: positions, Level: o.Level, Exact: o.Exact, KV: o.KV, Pin: o.Pin, Device: o.Device,
		Positions: most * ((positions+page-1)/page + more) * page, Places: int(most) + 2})
	if err != nil {
		return nil, err
	}
	defer ex.Close()
	var all []Serving
	if err := warm(ctx, ex, o); err != nil {
		return nil, err
	}
	for _, n := range concurrency {
		var rounds []Serving
		for range o.Repeat {
			r, err := serveRound(ctx, ex, o, n)
			if err != nil {
				return nil, err
			}
			rounds = append(rounds, r)
		}
		slices.SortFunc(rounds, func(a, b Serving) int { return int(1000 * (a.DecodeRate - b.DecodeRate)) })
		all = append(all, rounds[len(rounds)/2])
		if done != nil {
			done(all[len(all)-1])
		}
	}
	return all, nil
}

// warm reads the weights.
func warm(ctx context.Context, ex *exec.Executor, o Options) error {
	_, err := serveRound(ctx, ex, Options{Prompt: min(o.Prompt, 64), Gen: min(o.Gen, 4)}, 1)
	return err
}

// serveRound serves n requests: their first token, all of their tokens with the prompts
// kept, and both together with nothing kept.
func serveRound(ctx context.Context, ex *exec.Executor, o Options, n int) (Serving, error) {
	r := Serving{Concurrency: n, Prompt: o.Prompt, Gen: o.Gen}
	kept := schedule.New(ex, schedule.Options{Running: n})
	first, _, took, _, err := together(ctx, ex, kept, o.Prompt, 1, n)
	if err == nil {
		r.PromptRate, r.FirstToken = float64(n*o.Prompt)/took.Seconds(), client.QuantilesOf(first)
		_, _, took, r.StepRate, err = together(ctx, ex, kept, o.Prompt, o.Gen, n)
		r.DecodeRate = float64(n*o.Gen) / took.Seconds()
	}
	if err := errors.Join(err, kept.Close()); err != nil {
		return r, err
	}
	fresh := schedule.New(ex, schedule.Options{Running: n, Kept: -1})
	_, between, took, _, err := together(ctx, ex, fresh, o.Prompt, o.Gen, n)
	r.ServeRate, r.TokenTime = float64(n*o.Gen)/took.Seconds(), client.QuantilesOf(between)
	return r, errors.Join(err, fresh.Close())
}

// together has n requests served at once, and returns when each had its first token, the
// times between the others, how long it took, and the rate of the tokens behind the last
// one of the first.
func together(ctx context.Context, ex *exec.Executor, s *schedule.Scheduler, prompt, gen, n int) (first, between []time.Duration, took time.Duration, steps float64, err error) {
	start := time.Now()
	var came []time.Duration // of all tokens, from the start on
	var mu sync.Mutex
	var users sync.WaitGroup
	for i := range n {
		ids := make([]int32, prompt)
		for j := range ids {
			ids[j] = int32((int64(i+1)*104729 + int64(j)*7919 + 13) % ex.Graph().Vocab)
		}
		st, submitted := s.Submit(ctx, schedule.Request{Prompt: ids, Choices: []schedule.Choice{{MaxTokens: gen}}})
		if submitted != nil {
			err = submitted
			break
		}
		users.Add(1)
		go func() {
			defer users.Done()
			last, failed := start, error(nil)
			var times, since []time.Duration
			for {
				e, nerr := st.Next(ctx)
				if nerr == io.EOF {
					break
				}
				if nerr == nil {
					nerr = e.Err
				}
				if nerr != nil {
					failed = nerr
					break
				}
				now := time.Now()
				times, since, last = append(times, now.Sub(last)), append(since, now.Sub(start)), now
			}
			mu.Lock()
			defer mu.Unlock()
			if err = errors.Join(err, failed); len(times) > 0 {
				first, between, came = append(first, times[0]), append(between, times[1:]...), append(came, since...)
			}
		}()
	}
	users.Wait()
	took = time.Since(start)
	if len(first) > 0 {
		from, count := slices.Max(first), 0
		for _, at := range came {
			if at > from {
				count++
			}
		}
		if took := slices.Max(came) - from; took > 0 {
			steps = float64(count) / took.Seconds()
		}
	}
	return first, between, took, steps, err
}
