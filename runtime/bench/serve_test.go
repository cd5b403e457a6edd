package bench

import (
	"context"
	"testing"
)

func TestServe(t *testing.T) {
	m := open(t, "llama-k256")
	told := 0
	all, err := Serve(context.Background(), m, Options{Prompt: 70, Gen: 6, Repeat: 2, Threads: 2}, []int{1, 5}, func(Serving) { told++ })
	if err != nil || len(all) != 2 || told != 2 {
		t.Fatalf("%d results, %d told, %v", len(all), told, err)
	}
	for i, n := range []int{1, 5} {
		r := &all[i]
		if r.Concurrency != n || r.Prompt != 70 || r.Gen != 6 || !(r.PromptRate > 0) || !(r.DecodeRate > 0) || !(r.StepRate > 0) || !(r.ServeRate > 0) ||
			!(r.FirstToken.P50 > 0 && r.FirstToken.P50 <= r.FirstToken.P99) || !(r.TokenTime.P95 >= r.TokenTime.P50) {
			t.Errorf("%d at once: %+v", n, r)
		}
	}
}
