package bench_test

import (
	"context"
	"errors"
	"testing"

	"github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/runtime/bench"
)

func TestTune(t *testing.T) {
	start := cpu.TilesFor(0)
	trials := map[string]int{}
	reached := map[cpu.Tiles]float64{}
	o := bench.TuneOptions{Threads: 2, Repeat: 2, Prompt: bench.Shape{T: 32, N: 128, K: 512}, Token: bench.Shape{T: 1, N: 256, K: 512}}
	o.Done = func(x bench.Trial) {
		trials[x.What]++
		reached[x.Tiles] = x.Rate.Median
		if !x.Tiles.Sound() || !(x.Rate.Median > 0) {
			t.Errorf("%+v", x)
		}
	}
	best, err := bench.Tune(context.Background(), cpu.Best(), start, o)
	if err != nil {
		t.Fatal(err)
	}
	if _, timed := reached[best]; !timed || trials["prompt"] < 7 || trials["token"] < 5 {
		t.Errorf("%+v is the best of %v", best, trials)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := bench.Tune(ctx, cpu.Best(), start, o); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
}
