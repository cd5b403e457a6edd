package exec

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/runtime/device"
	"github.com/nstf/nstf/runtime/device/devicetest"
)

// tinyPolicy chooses among few pages, and reads all every few steps.
func tinyPolicy() *device.Policy {
	return &device.Policy{Pages: 0.2, Mass: 1, Least: 64, Refresh: 10}
}

// followedGraphs are those that a policy is for, and whose steps do not compute others
// again. They read long texts: where time is short three of them, or those of a part.
func followedGraphs() (all []tiny) {
	for _, c := range byTurns(tinies()) {
		if tinyPolicy().Check(c.graph) == nil && c.graph.Embed.Positions == "" && !dependsOnLength(c.graph) {
			all = append(all, c)
		}
	}
	if testing.Short() && *partsFlag == 1 {
		all = all[:3]
	}
	return all
}

func newFollowed(t testing.TB, g *graph.Graph, p *device.Policy, o Options) *Executor {
	t.Helper()
	o.Policy, o.Context = p, max(o.Context, 700)
	source, _ := fillWeights(t, g, "f32", 7)
	o = onFlag(t, o)
	o.Device.Rows = 512 // prompts are one pass
	e, err := newExecutor("tiny", g, source, o)
	opened(t, err)
	t.Cleanup(func() { e.Close() })
	return e
}

func prefilled(t testing.TB, e *Executor, ids []int32) *Sequence {
	t.Helper()
	s := sequence(t, e)
	if err := s.Prefill(context.Background(), ids, nil); err != nil {
		t.Fatal(err)
	}
	return s
}

func wantSame(t testing.TB, what string, got, want [][]float32) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d rows, want %d", what, len(got), len(want))
	}
	for i := range want {
		if !slices.Equal(got[i], want[i]) {
			t.Errorf("%s: row %d of %d differs", what, i, len(want))
			return
		}
	}
}

// A policy reads fewer pages than there are, and what it leaves out changes logits; up to
// Least positions, and in prompts, nothing differs from dense attention, to the bit.
func TestPolicyBelowItsBudget(t *testing.T) {
	for _, c := range followedGraphs() {
		p := tinyPolicy()
		p.Least = 500
		ids := tinyIDs(520)
		dense := prefilled(t, newFollowed(t, c.graph, nil, Options{Threads: 2, Exact: true}), ids[:490])
		e := newFollowed(t, c.graph, p, Options{Threads: 2, Exact: true})
		s := prefilled(t, e, ids[:490])
		wantSame(t, c.name, stepLogits(t, s, ids[490:500]), stepLogits(t, dense, ids[490:500]))
		if read, held := e.PagesRead(); read != 0 || held != 0 {
			t.Errorf("%s: %d of %d pages counted", c.name, read, held)
		}
		want, got := stepLogits(t, dense, ids[500:]), stepLogits(t, s, ids[500:])
		if slices.Equal(got[8], want[8]) {
			t.Errorf("%s: nothing was left out", c.name)
		}
		if read, held := e.PagesRead(); read == 0 || read >= held {
			t.Errorf("%s: %d of %d pages read", c.name, read, held)
		}
		s.Reset()
		dense.Reset()
		wantSame(t, c.name+", a prompt", allLogits(t, s, ids), allLogits(t, dense, ids))
	}
}

// Where all pages may be read the policy is dense attention, summed up in another order.
func TestPolicyOfAllPages(t *testing.T) {
	for _, c := range followedGraphs() {
		if c.graph.Blocks[1].MoE != nil {
			continue // a router may choose another expert
		}
		for _, kv := range []string{"f32", "f16", "q8", "q5", "q4", "q3"} {
			p := tinyPolicy()
			p.Pages = 0.9999 // which is all of them, chosen
			ids := tinyIDs(300)
			o := Options{Threads: 2, Exact: true, KV: kv}
			dense := prefilled(t, newFollowed(t, c.graph, nil, o), ids[:280])
			s := prefilled(t, newFollowed(t, c.graph, p, o), ids[:280])
			tolerance := map[string]float64{"f32": tinyTolerance, "f16": 1e-4, "q8": 5e-3}[kv]
			if tolerance == 0 {
				tolerance = 0.15
			}
			checkLogits(t, c.name+" "+kv, stepLogits(t, s, ids[280:]), stepLogits(t, dense, ids[280:]), tolerance)
		}
	}
}

// A device reads the pages that the processor reads, and gives its logits; so does the
// processor at another level of SIMD. Keys that are nearly between two numbers of a format are
// rounded either way, and pages that weigh nearly the same then chosen either way.
func TestPolicyChoosesAlike(t *testing.T) {
	for i, c := range followedGraphs() {
		for _, kv := range []string{"f32", "f16", "q4"} {
			if gpuTested(t) && kv != "f32" && kv != []string{"f16", "q4"}[i%2] {
				continue
			}
			p := tinyPolicy()
			p.Mass = []float64{1, 0.7}[i%2]
			choosesAlike(t, &c, Options{KV: kv, Policy: p, Context: 700}, tinyIDs(380), 350, map[string]float64{"f32": 1e-5, "f16": 0.1, "q4": 0.3}[kv])
		}
	}
}

// choosesAlike holds steps behind so many of the tokens, and the pages that they and those read, to the processor's
// in plain Go.
func choosesAlike(t *testing.T, c *tiny, o Options, ids []int32, at int, tolerance float64) {
	t.Helper()
	o.Threads, o.Exact = 2, true
	source, _ := fillWeights(t, c.graph, "f32", 7)
	plain := o
	if !gpuTested(t) {
		plain.Level = "generic"
	}
	reference, err := newExecutor("tiny", c.graph, source, plain)
	if err != nil {
		t.Fatal(err)
	}
	defer reference.Close()
	e := newFollowed(t, c.graph, o.Policy, o)
	want, got := prefilled(t, reference, ids[:at]), prefilled(t, e, ids[:at])
	checkLogits(t, c.name+" "+o.KV, stepLogits(t, got, ids[at:]), stepLogits(t, want, ids[at:]), tolerance)
	read, held := e.PagesRead()
	if r, h := reference.PagesRead(); read != r || held != h || read >= held {
		t.Errorf("%s %s: %d of %d pages, want %d of %d", c.name, o.KV, read, held, r, h)
	}
}

// A row's bits do not depend on its company, nor on threads.
func TestPolicyWidth(t *testing.T) {
	for i, c := range followedGraphs() {
		kv := []string{"f32", "f16", "q8", "q4"}[i%4]
		t.Run(c.name+" "+kv, func(t *testing.T) {
			o := Options{Threads: 2, Exact: true, KV: kv, Sequences: 24, Policy: tinyPolicy()}
			source, _ := fillWeights(t, c.graph, "f32", 7)
			for _, recurrent := range []bool{true, c.graph.Recurrent()} {
				w := widths(t, c.graph)
				w.Prompts, w.Recurrent = []int{330, 70, 17}, recurrent
				testWidth(t, c.graph, source, o, w)
			}
			ids := tinyIDs(400)
			var first [][]float32
			for _, threads := range []int{1, 3} {
				o.Threads = threads
				steps := stepLogits(t, prefilled(t, newFollowed(t, c.graph, tinyPolicy(), o), ids[:380]), ids[380:])
				if first == nil {
					first = steps
				}
				wantSame(t, fmt.Sprintf("%d threads", threads), steps, first)
			}
		})
	}
}

// What is kept of a sequence, and what forks from it, goes on as it does; a sequence that
// goes back goes on as behind a prompt.
func TestPolicyStates(t *testing.T) {
	for _, c := range followedGraphs() {
		e := newFollowed(t, c.graph, tinyPolicy(), Options{Threads: 2, Exact: true, Sequences: 8})
		stage, ids := e.last(), tinyIDs(420)
		state := devicetest.State(t, stage, 700)
		run := func(s device.State, ids []int32) (rows [][]float32) {
			for at := range ids {
				rows = append(rows, devicetest.Run(t, stage, s, ids[at:at+1], int64(len(ids)), 1, c.graph.Vocab))
			}
			return rows
		}
		devicetest.Run(t, stage, state, ids[:390], 390, 0, c.graph.Vocab)
		prompt, err := state.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		begun := run(state, ids[390:398])
		kept, err := state.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		fork, err := state.Fork()
		if err != nil {
			t.Fatal(err)
		}
		rest := run(state, ids[398:])
		wantSame(t, c.name+", a fork", run(fork, ids[398:]), rest)
		for range 2 {
			if err := state.Restore(kept); err != nil {
				t.Fatal(err)
			}
			wantSame(t, c.name+", kept", run(state, ids[398:]), rest)
		}
		if bytes, err := stage.StateBytes(state.Len()); err != nil || bytes != state.Bytes() {
			t.Errorf("%s: %d bytes, foretold %d (%v)", c.name, state.Bytes(), bytes, err)
		}
		if err := state.Restore(prompt); err != nil {
			t.Fatal(err)
		}
		wantSame(t, c.name+", from the prompt", run(state, ids[390:398]), begun)
		if c.graph.Recurrent() {
			continue
		}
		if n := fork.Rewind(390); n != 390 {
			t.Errorf("%s: back to %d", c.name, n)
		}
		wantSame(t, c.name+", back", run(fork, ids[390:]), append(begun, rest...))
		fork.Rewind(398)
		for step, all := range []bool{true, false} { // the first has no history, and reads all
			before, there := e.PagesRead()
			run(fork, ids[398+step:399+step])
			read, held := e.PagesRead()
			if got := read-before == held-there; got != all {
				t.Errorf("%s: step %d behind one that went back read %d of %d pages", c.name, step, read-before, held-there)
			}
		}
	}
}

// A model over latents, one that attends to all positions nowhere, and policies that make
// no sense are refused.
func TestPolicyRefusals(t *testing.T) {
	var latent, windowed *graph.Graph
	for _, c := range tinies() {
		if c.graph.Blocks[1].Latent != nil {
			latent = c.graph
		}
	}
	windowed = shape{d: 20, heads: 5, kv: 1, dim: 6, inner: 17, norm: graph.RMSNorm}.graph(func(g *graph.Graph) {
		g.Blocks[0].Attn.Window, g.Blocks[1].Attn.Window = 1, 70
	})
	for name, g := range map[string]*graph.Graph{"latents": latent, "windows": windowed} {
		source, _ := fillWeights(t, g, "f32", 7)
		_, err := newExecutor("tiny", g, source, Options{Policy: tinyPolicy()})
		if u := (*formats.UnsupportedError)(nil); !errors.As(err, &u) || u.Hint == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	g := tinies()[0].graph
	for _, change := range []func(p *device.Policy){
		func(p *device.Policy) { p.Pages = 0 }, func(p *device.Policy) { p.Mass = 1.5 }, func(p *device.Policy) { p.Least = 3 },
		func(p *device.Policy) { p.Refresh = 1 }, func(p *device.Policy) { p.Heads = [][]float64{{1, 1}} },
		func(p *device.Policy) { p.Heads = [][]float64{{1, 1}, {1, 2}} }, func(p *device.Policy) { p.Heads = [][]float64{{1, 1}, {1}} },
	} {
		p := tinyPolicy()
		change(p)
		if err := p.Check(g); err == nil {
			t.Errorf("%+v is let through", p)
		}
	}
}
