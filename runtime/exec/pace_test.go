package exec

import (
	"context"
	"math"
	"testing"
	"time"

	cpukernels "github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/runtime/place"
	"github.com/nstf/nstf/runtime/sample"
)

// A run is held to what its layout expected, and the next layout expects what it took.
func TestRunsAreLearned(t *testing.T) {
	g := tinies()[0].graph
	source, _ := fillWeights(t, g, "f32", 7)
	dir, processor := t.TempDir(), place.Request{Kind: place.CPU}
	// The bandwidth is measured once, or two layouts differ by its noise.
	rate := place.Rate{Median: 10, P10: 10, P90: 10}
	m := place.Discover(cpukernels.Best())
	profile := &place.Profile{Version: 1, Key: m.Key(), Machine: m, Threads: 1, ReadOne: rate, ReadAll: rate, Peaks: []place.Peak{{Kind: "f32", One: rate, All: rate}}}
	if err := profile.Save(dir); err != nil {
		t.Fatal(err)
	}
	o := Options{Threads: 1, Exact: true, Context: 200, Device: Device{Request: processor, Memory: map[place.Request]int64{processor: 1 << 30}, Measured: dir}}
	var took float64 // seconds of a step
	run := func(steps int) *place.Layout {
		t.Helper()
		e, err := newExecutor("tiny", g, source, o)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		d, err := sequence(t, e).Decode(context.Background(), tinyIDs(3), newSampler(t, sample.Options{}), nil)
		if err != nil {
			t.Fatal(err)
		}
		var each []float64 // a stall of one step says nothing
		for range steps {
			start := time.Now()
			if _, err := d.Next(); err != nil {
				t.Fatal(err)
			}
			each = append(each, time.Since(start).Seconds())
		}
		took = place.NewRate(each).Median
		return e.Layout()
	}
	first := run(leastSteps) // too few: the last step is followed by none
	if again := run(100); again.Seconds != first.Seconds || again.Learned() != "" {
		t.Fatalf("%g s, %q behind a run of few steps, %g s before", again.Seconds, again.Learned(), first.Seconds)
	}
	third := run(100)
	r := &third.Ranges[0]
	if r.Runs != 1 || math.Abs(third.Seconds-r.Pace*first.Seconds) > 1e-9*third.Seconds {
		t.Errorf("%+v behind a run, %g s before", r, first.Seconds)
	}
	if r.Pace == 1 || r.Pace < 8 && (third.Seconds > 10*took || third.Seconds < took/10) {
		t.Errorf("%g s are expected, %g were taken", third.Seconds, took)
	}
	if fourth := run(2); fourth.Ranges[0].Runs != 2 {
		t.Errorf("%d runs behind two", fourth.Ranges[0].Runs)
	}
}
