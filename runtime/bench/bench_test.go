package bench

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"path/filepath"
	goruntime "runtime"
	"testing"
	"time"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/runtime/place"
)

func open(t testing.TB, name string) *model.Model {
	t.Helper()
	m, err := checkpoint.Open(filepath.Join("../../testdata/micro", name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-9*math.Abs(want) {
		t.Errorf("%s: %.1f, want %.1f", what, got, want)
	}
}

func positive(t *testing.T, what string, r place.Rate) {
	t.Helper()
	if !(r.P10 > 0 && r.P10 <= r.Median && r.Median <= r.P90) {
		t.Errorf("%s is %+v", what, r)
	}
}

func TestRun(t *testing.T) {
	if testing.Short() {
		t.Skip("reads gigabytes where the cache is large")
	}
	m := open(t, "llama-k256")
	rounds, starts := int64(0), 0
	o := Options{Prompt: 20, Gen: 5, Depth: 3, Repeat: 2, Threads: 2, KV: "f32",
		FirstToken: func(context.Context) (time.Duration, error) { starts++; return time.Second, nil },
		Progress:   func(done, total int64) { rounds = done*10 + total }}
	r, err := Run(context.Background(), m, o)
	if err != nil {
		t.Fatal(err)
	}
	if rounds != 22 || starts != 2 || r.FirstToken.Median != 1 {
		t.Errorf("progress %d, %d starts, first token %+v", rounds, starts, r.FirstToken)
	}
	if r.Prompt.Tokens != 20 || r.Decode.Tokens != 5 || r.Decode.Depth != 3 || r.Threads != 2 || r.Params != m.Graph.Params() {
		t.Errorf("%+v", r)
	}
	for what, x := range map[string]place.Rate{"prompt": r.Prompt.Rate, "operations": r.Prompt.Gops, "peak": r.Prompt.Peak,
		"decode": r.Decode.Rate, "bytes": r.Decode.GBs, "memory": r.Decode.Memory} {
		positive(t, what, x)
	}
	numbers := int64(0)
	for i := range m.Graph.Blocks {
		numbers += m.Graph.Blocks[i].Remembered()
	}
	c := place.NewCost(m.Graph, m.Tensor, 4*numbers, 1) // a float32 cache, as asked for
	near(t, "operations", r.Prompt.Gops.Median, c.Operations(20)/20*r.Prompt.Rate.Median/1e9)
	weights, _ := c.Bytes(1)
	near(t, "weights", float64(r.Decode.WeightBytes), weights)
	_, cache := c.Bytes(6) // behind 3, tokens attend to 4, 5, ... 8 positions
	near(t, "cache", float64(r.Decode.CacheBytes), cache)
	near(t, "bytes", r.Decode.GBs.Median, float64(r.Decode.WeightBytes+r.Decode.CacheBytes)*r.Decode.Rate.Median/1e9)
	near(t, "share of a round's own limit", (&run{decodes: []float64{1, 4, 9}}).share(10, []float64{10, 10, 45}), 2)
	if r.Decode.Share <= 0 || r.Decode.InPlaceShare <= 0 {
		t.Errorf("shares %g and %g", r.Decode.Share, r.Decode.InPlaceShare)
	}
	near(t, "peak's share", r.Prompt.Share, r.Prompt.Gops.Median/r.Prompt.Peak.Median)
	if goruntime.GOOS == "linux" && (r.PeakRSS < 1<<20 || r.PeakRSS > 1<<40) {
		t.Errorf("peak RSS %d", r.PeakRSS)
	}
	if _, err := json.Marshal(r); err != nil {
		t.Error(err)
	}
}

// What is not asked for is not there.
func TestPhasesAlone(t *testing.T) {
	m := open(t, "llama-3")
	r, err := Run(context.Background(), m, Options{Prompt: 3, Repeat: 1, Threads: 1})
	if err != nil || r.Decode != nil || r.Prompt == nil || r.FirstToken != nil {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestRunErrors(t *testing.T) {
	m := open(t, "llama-3")
	var unsupported *formats.UnsupportedError
	for _, o := range []Options{{Prompt: 1, Repeat: 1, Level: "nosuch"}, {Prompt: 1, Repeat: 1, KV: "nosuch"}} {
		if _, err := Run(context.Background(), m, o); !errors.As(err, &unsupported) {
			t.Errorf("%+v gives %v", o, err)
		}
	}
	boom := errors.New("boom")
	o := Options{Prompt: 1, Repeat: 1, FirstToken: func(context.Context) (time.Duration, error) { return 0, boom }}
	if _, err := Run(context.Background(), m, o); !errors.Is(err, boom) {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, o := range []Options{{Prompt: 1, Repeat: 1}, {Gen: 1, Repeat: 1}} {
		if _, err := Run(ctx, m, o); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("nothing to measure is measured")
			}
		}()
		Run(context.Background(), m, Options{Repeat: 1})
	}()
}

// Reading in place reads what decoding reads, give or take a row of the embedding.
func TestMappedWeights(t *testing.T) {
	m := open(t, "llama-k256")
	runs, ok := mapped(m)
	var n float64
	for _, p := range runs {
		n += float64(len(p))
	}
	weights, _ := place.NewCost(m.Graph, m.Tensor, 0, 1).Bytes(1)
	if !ok || n < 0.99*weights || n > weights {
		t.Errorf("%v: %g of %g bytes", ok, n, weights)
	}
	if cpu.Best().ReadWords(runs[0]) == 0 && cpu.Best().ReadWords(runs[1]) == 0 {
		t.Error("the weights are zeros")
	}
}
