package compare_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/formats/compare"
	"github.com/nstf/nstf/formats/model"
)

func open(t testing.TB, name string) *model.Model {
	t.Helper()
	m, err := checkpoint.Open("../../testdata/micro/" + name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// TestThreads gives one figure at any number of threads.
func TestThreads(t *testing.T) {
	a, b := open(t, "mistral"), open(t, "mistral-window")
	var first *compare.Report
	for _, threads := range []int{1, 3} {
		r, err := compare.Run(context.Background(), a, b, compare.Options{Weights: true, Threads: threads})
		if err != nil {
			t.Fatal(err)
		}
		for i := range r.Tensors {
			if d := *r.Tensors[i].Difference; first != nil && d != *first.Tensors[i].Difference {
				t.Errorf("%s: %g, then %g", r.Tensors[i].Name, *first.Tensors[i].Difference, d)
			}
		}
		first = r
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := compare.Run(ctx, a, b, compare.Options{Weights: true}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

func Example() {
	m, _ := checkpoint.Open("../../testdata/micro/llama-tied")
	defer m.Close()
	r, err := compare.Run(context.Background(), m, m, compare.Options{Weights: true})
	fmt.Println(err, *r.Tensors[0].Difference, r.Tensors[0].Changed())
	// Output: <nil> 0 false
}
