package exec

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/runtime/gpu"
	"github.com/nstf/nstf/runtime/place"
	"github.com/nstf/nstf/runtime/sample"
)

// laidOut opens a model with its blocks cut in two before block at: on each device one part.
func laidOut(t *testing.T, g *graph.Graph, source func(string) formats.Tensor, o Options, at int, on ...place.Request) *Executor {
	t.Helper()
	o.Device.Ranges = []place.Range{{Device: on[0], Hi: at}, {Device: on[1], Lo: at, Hi: len(g.Blocks)}}
	e, err := newExecutor("tiny", g, source, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	if l := e.Layout(); len(l.Ranges) != 2 || l.Ranges[0].Hi != at || !(l.Seconds > 0) {
		t.Fatalf("laid out as %+v", l)
	}
	return e
}

// twoGPUs returns two devices of the kind that -device says, or skips.
func twoGPUs(t *testing.T) (a, b place.Request) {
	t.Helper()
	a = request(t)
	if !a.GPU() {
		t.Skip("no -device")
	}
	if n := devices(t); n < 2 {
		t.Skipf("%d devices", n)
	}
	return place.Request{Kind: a.Kind}, place.Request{Kind: a.Kind, Ordinal: 1}
}

// devices counts those of the flag's kind.
func devices(t *testing.T) int {
	t.Helper()
	o := onFlag(t, Options{})
	n, err := gpu.Count(o.Device.gpu(apis[slices.Index([]place.Kind{place.HIP, place.CUDA}, request(t).Kind)]))
	if err != nil {
		t.Log(err)
		return 0
	}
	return n
}

// severalTinies are graphs with keys and values, with a mixture and with recurrent states.
func severalTinies() (some []tiny) {
	all := tinies()
	mixture := slices.IndexFunc(all, func(c tiny) bool { return c.graph.Blocks[0].MoE != nil })
	recurrent := slices.IndexFunc(all, func(c tiny) bool { return c.graph.Recurrent() })
	return []tiny{all[0], all[mixture], all[recurrent]}
}

// A model over two devices of one kind has the bits of one: logits of prompts and of steps,
// what is chosen, and what states give back, in company and alone.
func TestTwoDevicesAreOne(t *testing.T) {
	a, b := twoGPUs(t)
	for _, c := range byTurns(severalTinies()) {
		t.Run(c.name, func(t *testing.T) {
			source, _ := fillWeights(t, c.graph, "f32", 7)
			o := onFlag(t, Options{Threads: 1, Exact: true, Context: 200})
			whole, err := newExecutor("tiny", c.graph, source, o)
			opened(t, err)
			defer whole.Close()
			e := laidOut(t, c.graph, source, o, 1, a, b)
			ids := tinyIDs(90) // two passes
			want, got := allLogits(t, sequence(t, whole), ids), allLogits(t, sequence(t, e), ids)
			for i := range want {
				if !slices.Equal(got[i], want[i]) {
					t.Fatalf("logits %d of a prompt differ", i)
				}
			}
			for _, how := range []sample.Options{{}, {Temperature: 1, Seed: 2, RepetitionPenalty: 1.3}} {
				if got, want := decoded(t, sequence(t, e), newSampler(t, how), ids[:30], 9), decoded(t, sequence(t, whole), newSampler(t, how), ids[:30], 9); !slices.Equal(got, want) {
					t.Errorf("%+v: tokens %v, want %v", how, got, want)
				}
			}
			// Five sequences: forked behind a prompt, of which one goes back and all go on.
			run := func(e *Executor) (all [][]float32) {
				first := sequence(t, e)
				if err := first.Prefill(context.Background(), ids[:21], nil); err != nil {
					t.Fatal(err)
				}
				kept, err := first.Snapshot()
				if err != nil {
					t.Fatal(err)
				}
				seqs := []*Sequence{first}
				for range 4 {
					f, err := first.Fork()
					if err != nil {
						t.Fatal(err)
					}
					seqs = append(seqs, f)
				}
				for i := range 3 {
					rows, err := e.stepBatch(seqs, []int32{3, 1, 4, 1, int32(i)})
					if err != nil {
						t.Fatal(err)
					}
					for _, r := range rows {
						all = append(all, slices.Clone(r))
					}
				}
				seqs[2].Truncate(11)
				if n, err := seqs[3].Restore(kept, 21); err != nil || n != 21 {
					t.Fatalf("%d tokens are restored, %v", n, err)
				}
				kept.Release()
				for _, s := range seqs {
					all = append(all, stepLogits(t, s, []int32{5, 2})...)
					s.Close()
				}
				return all
			}
			before := e.Room()
			wanted, given := run(whole), run(e)
			for i := range wanted {
				if !slices.Equal(given[i], wanted[i]) {
					t.Fatalf("row %d of sequences that share differs", i)
				}
			}
			if after := e.Room(); after != before {
				t.Errorf("there is room for %+v, before %+v", after, before)
			}
		})
	}
}

// A GPU and the processor share a model, in either order, within what they differ by.
func TestGPUAndProcessor(t *testing.T) {
	on, cpu := request(t), place.Request{Kind: place.CPU}
	if !on.GPU() {
		t.Skip("no -device")
	}
	c := tinies()[0]
	source, _ := fillWeights(t, c.graph, "f32", 7)
	o := onFlag(t, Options{Threads: 1, Exact: true, Context: 200})
	whole, err := newExecutor("tiny", c.graph, source, o)
	opened(t, err)
	defer whole.Close()
	ids := tinyIDs(40)
	want := allLogits(t, sequence(t, whole), ids)
	greedy := decoded(t, sequence(t, whole), newSampler(t, sample.Options{}), ids, 9)
	for _, order := range [][]place.Request{{on, cpu}, {cpu, on}} {
		e := laidOut(t, c.graph, source, o, 1, order...)
		checkLogits(t, fmt.Sprint(order, " by prefill"), allLogits(t, sequence(t, e), ids), want, logitTolerance)
		checkLogits(t, fmt.Sprint(order, " by steps"), stepLogits(t, sequence(t, e), ids), want, logitTolerance)
		if got := decoded(t, sequence(t, e), newSampler(t, sample.Options{}), ids, 9); !slices.Equal(got, greedy) {
			t.Errorf("%v: tokens %v, want %v", order, got, greedy)
		}
	}
}

// What has no room on any device says how much is missing; with room the layout is told
// before anything is placed, and the model computes what it does elsewhere.
func TestLaidOutWithinLimits(t *testing.T) {
	on := request(t)
	g := tinies()[0].graph
	source, _ := fillWeights(t, g, "f32", 7)
	whole, err := newExecutor("tiny", g, source, onFlag(t, Options{Threads: 1, Exact: true}))
	opened(t, err)
	defer whole.Close()
	o := onFlag(t, Options{Threads: 1, Exact: true, Sequences: 1})
	var told []string
	o.Device.Notice = func(line string) { told = append(told, line) }
	o.Device.Memory = map[place.Request]int64{on: 100}
	_, err = newExecutor("tiny", g, source, o)
	var unsupported *formats.UnsupportedError
	if !errors.As(err, &unsupported) || !strings.Contains(err.Error(), "missing beside 100 B on "+on.String()) || len(told) > 0 {
		t.Fatalf("%v, told %q", err, told)
	}
	o.Device.Memory[on] = 1 << 30
	e, err := newExecutor("tiny", g, source, o)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	l := e.Layout()
	if len(l.Ranges) != 1 || l.Ranges[0].Limit > 1<<30 || l.Ranges[0].Memory < 1000 || l.Context != g.Context || len(told) != 2 || !strings.Contains(told[0], "blocks 0 to 1 of 2") {
		t.Errorf("%+v, told %q", l, told)
	}
	if got, want := stepLogits(t, sequence(t, e), tinyIDs(5)), stepLogits(t, sequence(t, whole), tinyIDs(5)); !slices.EqualFunc(got, want, slices.Equal[[]float32]) {
		t.Error("other logits than without a limit")
	}
	o.Device.Ranges = []place.Range{{Device: on, Hi: 1}}
	if _, err := newExecutor("tiny", g, source, o); err == nil {
		t.Error("one block of two was enough")
	}
}
