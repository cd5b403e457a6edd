package main

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/runtime/serve/client"
)

// A tokens id that is made up lies here: most vocabularies hold words there.
const madeUpLo, madeUpHi = 1000, 3000

// benchServer measures a server, over its network.
func (a *app) benchServer(ctx context.Context, f *benchFlags) error {
	c, m, err := a.client(ctx, &f.serverFlags)
	if err != nil {
		return err
	}
	lengths := f.prompts
	if len(lengths) == 0 {
		lengths = []int{f.Prompt}
	}
	run := rand.Uint64() // a server that was measured before knows the prompts of then
	var loads []client.Load
	for _, n := range f.concurrency {
		loads = append(loads, client.Load{Concurrency: n, Ramp: f.ramp, Requests: max(4*n, 8)})
	}
	for _, rate := range f.rates {
		loads = append(loads, client.Load{Rate: rate, Requests: min(max(int(30*rate), 8), 10_000)})
	}
	total := int64(0)
	for i := range loads {
		l := &loads[i]
		if f.requests > 0 {
			l.Requests = f.requests
		}
		total += int64(l.Requests)
		l.Model, l.Gen, l.Seed = m.Name, f.Gen, uint64(i+1)
		l.Prompt = func(k int) []int32 { return madeUp(run+uint64(i), uint64(k), lengths[k%len(lengths)]) }
	}
	warm := client.Load{Model: m.Name, Requests: 1, Concurrency: 1, Gen: 2, Prompt: func(int) []int32 { return madeUp(run-1, 0, min(lengths[0], 16)) }}
	if w, err := c.Measure(ctx, warm, nil); err != nil || w.Failed > 0 {
		if err == nil {
			err = fmt.Errorf("%s", w.Error)
		}
		return err
	}
	step, end := a.progress("measuring", "requests")
	defer end()
	done := int64(0)
	var all []client.Figures
	for _, l := range loads {
		r, err := c.Measure(ctx, l, func() { done++; step(done, total) })
		if err != nil {
			return err
		}
		all = append(all, r)
	}
	end()
	if f.json {
		return printJSON(a.out, all)
	}
	fmt.Fprintf(a.out, "%s, model %s: prompts of %v tokens, answers of %d; ms as p50, p95, p99\n", formats.Printable(c.Base), formats.Printable(m.Name), lengths, f.Gen)
	t := newTable(0, "load", "requests", "tokens/s", "requests/s", "first token", "next tokens, each", "whole")
	for i := range all {
		r := &all[i]
		load := fmt.Sprintf("%d at once", r.Concurrency)
		if r.Rate > 0 {
			load = fmt.Sprintf("%g a second", r.Rate)
		}
		if r.Ramp > 0 {
			load += fmt.Sprintf(", over %g s", r.Ramp)
		}
		requests := fmt.Sprint(r.Requests)
		if r.Ramp > 0 {
			requests += fmt.Sprintf(", %d in the ramp", r.Ramped)
		}
		if r.Failed > 0 {
			requests += fmt.Sprintf(", %d failed", r.Failed)
		}
		t.AppendRow([]any{load, requests, figure(r.TokenRate), figure(r.RequestRate), milliseconds(&r.FirstToken), milliseconds(&r.TokenTime), milliseconds(&r.Whole)})
	}
	printTable(a.out, t)
	for i := range all {
		if all[i].Failed > 0 {
			return fmt.Errorf("requests failed: %s", formats.Printable(all[i].Error))
		}
	}
	return nil
}

// madeUp returns the tokens of a prompt that no other begins like.
func madeUp(seed, i uint64, n int) []int32 {
	r := rand.New(rand.NewPCG(seed, i))
	ids := make([]int32, n)
	for k := range ids {
		ids[k] = madeUpLo + r.Int32N(madeUpHi-madeUpLo)
	}
	return ids
}
