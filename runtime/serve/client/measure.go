package client

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A Load is what a server is held to.
type Load struct {
	Model    string
	Requests int // of all
	// Concurrency is how many are under way at once: the next one begins when one ends.
	// With Rate, it bounds them; 0: nothing does.
	Concurrency int
	// Ramp is over how long those at once arrive, evenly; what begins before its end is left
	// out of the times. Not with Rate.
	Ramp time.Duration
	// Rate is how many arrive in a second, whatever the server makes of them, at times
	// that follow a Poisson process of Seed; 0: see Concurrency.
	Rate float64
	Seed uint64
	// Prompt returns the tokens of the i-th request, Gen is how many each is answered with.
	Prompt func(i int) []int32
	Gen    int
}

// Figures are what came of a load. Times are in milliseconds.
type Figures struct {
	Concurrency int     `json:"concurrency,omitempty"`
	Rate        float64 `json:"rate_per_s,omitempty"`
	Ramp        float64 `json:"ramp_s,omitempty"`
	Requests    int     `json:"requests"`
	Ramped      int     `json:"ramped,omitempty"` // began before the ramp's end: not in the times
	Failed      int     `json:"failed"`
	Error       string  `json:"error,omitempty"` // of the first that failed
	Seconds     float64 `json:"seconds"`
	// Tokens of prompts and of answers.
	PromptTokens int `json:"prompt_tokens"`
	CachedTokens int `json:"cached_tokens"`
	Tokens       int `json:"tokens"`
	// TokenRate is tokens of answers over all the time, RequestRate requests.
	TokenRate   float64 `json:"tokens_per_s"`
	RequestRate float64 `json:"requests_per_s"`
	// FirstToken is the time to the first token, from when a request should have been
	// sent; TokenTime the mean time of a request's tokens behind the first; Whole until
	// its end.
	FirstToken Quantiles `json:"first_token_ms"`
	TokenTime  Quantiles `json:"token_ms"`
	Whole      Quantiles `json:"request_ms"`
}

// Quantiles of times, in milliseconds.
type Quantiles struct {
	P50 float64 `json:"p50"`
	P95 float64 `json:"p95"`
	P99 float64 `json:"p99"`
}

// QuantilesOf returns those of some times, which it sorts.
func QuantilesOf(times []time.Duration) Quantiles {
	slices.Sort(times)
	at := func(q float64) float64 {
		if len(times) == 0 {
			return 0
		}
		return float64(times[min(int(q*float64(len(times))), len(times)-1)].Microseconds()) / 1000
	}
	return Quantiles{at(0.5), at(0.95), at(0.99)}
}

// Measure holds the server to a load. Requests that fail are counted; the error is that
// of ctx. done is told after each one that has ended; nil: nobody is.
func (c *Client) Measure(ctx context.Context, l Load, done func()) (Figures, error) {
	f := Figures{Concurrency: l.Concurrency, Rate: l.Rate, Ramp: l.Ramp.Seconds(), Requests: l.Requests}
	began := time.Now()
	var mu sync.Mutex
	var first, each, whole []time.Duration
	one := func(i int, due time.Time) {
		late := time.Since(due)
		r, err := c.Answer(ctx, Request{Model: l.Model, Prompt: l.Prompt(i), MaxTokens: l.Gen, IgnoreEOS: true}, func(Delta) error { return nil })
		mu.Lock()
		defer mu.Unlock()
		if done != nil {
			done()
		}
		f.PromptTokens, f.CachedTokens, f.Tokens = f.PromptTokens+r.PromptTokens, f.CachedTokens+r.CachedTokens, f.Tokens+r.Tokens
		if err != nil {
			if f.Failed++; f.Error == "" {
				f.Error = err.Error()
			}
			return
		}
		if due.Sub(began) < l.Ramp {
			f.Ramped++
			return
		}
		whole = append(whole, late+r.All)
		if r.First > 0 { // tokens may be no text
			first = append(first, late+r.First)
			if n := len(r.Pieces); r.Tokens > 1 && n > 1 {
				each = append(each, (r.Pieces[n-1]-r.First)/time.Duration(r.Tokens-1))
			}
		}
	}
	if l.Rate > 0 {
		l.arrive(ctx, one)
	} else {
		l.follow(ctx, began, one)
	}
	f.Seconds = time.Since(began).Seconds()
	f.TokenRate, f.RequestRate = float64(f.Tokens)/f.Seconds, float64(l.Requests-f.Failed)/f.Seconds
	f.FirstToken, f.TokenTime, f.Whole = QuantilesOf(first), QuantilesOf(each), QuantilesOf(whole)
	return f, ctx.Err()
}

// follow has so many requests under way at once, each followed by the next.
func (l *Load) follow(ctx context.Context, began time.Time, one func(i int, due time.Time)) {
	var wg sync.WaitGroup
	var next atomic.Int64
	users := max(l.Concurrency, 1)
	for u := range users {
		wg.Go(func() {
			wait(ctx, time.Until(began.Add(l.Ramp*time.Duration(u)/time.Duration(users))))
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= l.Requests {
					return
				}
				one(i, time.Now())
			}
		})
	}
	wg.Wait()
}

// arrive has requests come at their times, those over Concurrency when there is a place.
func (l *Load) arrive(ctx context.Context, one func(i int, due time.Time)) {
	var wg sync.WaitGroup
	defer wg.Wait()
	places := make(chan struct{}, max(l.Concurrency, 1))
	random := rand.New(rand.NewPCG(l.Seed, 1))
	due := time.Now()
	for i := range l.Requests {
		due = due.Add(time.Duration(random.ExpFloat64() / l.Rate * float64(time.Second)))
		wait(ctx, time.Until(due))
		if l.Concurrency > 0 {
			select {
			case places <- struct{}{}:
			case <-ctx.Done():
			}
		}
		if ctx.Err() != nil {
			return
		}
		at := due
		wg.Go(func() {
			one(i, at)
			if l.Concurrency > 0 {
				<-places
			}
		})
	}
}

// wait waits for a time, or for the end of ctx.
func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
