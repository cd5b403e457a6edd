package main

import (
	"context"
	"fmt"

	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/runtime/bench"
	"github.com/nstf/nstf/runtime/serve/client"
)

// benchServing measures requests that are served at once.
func (a *app) benchServing(ctx context.Context, path string, f *benchFlags) error {
	m, err := checkpoint.Open(path)
	if err != nil {
		return err
	}
	defer m.Close()
	f.Device = a.device(&f.device)
	step, end := a.progress("measuring", "numbers of requests")
	defer end()
	served := int64(0)
	all, err := bench.Serve(ctx, m, f.Options, f.concurrency, func(bench.Serving) {
		served++
		step(served, int64(len(f.concurrency)))
	})
	end()
	if err != nil {
		return err
	}
	if f.json {
		return printJSON(a.out, all)
	}
	fmt.Fprintf(a.out, "requests of %d tokens with answers of %d: tokens/s, and ms as p50, p95, p99; medians of %d rounds\n", f.Prompt, f.Gen, f.Repeat)
	t := newTable(0, "at once", "prompts", "decoding", "both", "first token", "next tokens, both")
	for i := range all {
		r := &all[i]
		t.AppendRow([]any{r.Concurrency, figure(r.PromptRate), figure(r.DecodeRate), figure(r.ServeRate), milliseconds(&r.FirstToken), milliseconds(&r.TokenTime)})
	}
	printTable(a.out, t)
	return nil
}

func milliseconds(q *client.Quantiles) string {
	return fmt.Sprintf("%s, %s, %s", figure(q.P50), figure(q.P95), figure(q.P99))
}
