package exec

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
)

// Keys and values in fewer bits change the logits a little, by how much is
// stated here as a share of their range, and take less memory. Mixtures are
// left out: a router that chooses another expert changes them by any amount; and
// xIELU, which jumps at 0 where its eps is as large as in these graphs.
func TestCacheFormats(t *testing.T) {
	for i, c := range byTurns(tinies()) {
		if f := c.graph.Blocks[1].FFN; c.graph.Blocks[1].MoE != nil || f != nil && f.XIELU != nil {
			continue
		}
		if testing.Short() && i > 1 {
			break
		}
		var full [][]float32
		var bytes int64
		for _, f := range []struct {
			kv        string
			tolerance float64
		}{{"f32", toleranceOf(c.graph)}, {"f16", 2e-3}, {"q8", 2e-2}, {"q5", 0.5}, {"q4", 0.6}, {"q3", 0.9}} {
			e, ref := newTiny(t, c.graph, "f32", Options{Threads: 2, KV: f.kv})
			s := sequence(t, e)
			ids := tinyIDs(150)
			got := allLogits(t, s, ids)
			if c.graph.Blocks[1].Latent != nil && f.kv == "q8" {
				f.tolerance = 3e-2 // what is rounded is the key and the value of all heads
			}
			checkLogits(t, c.name+" "+f.kv, got, toFloat32(ref.logits(ids)), f.tolerance)
			some, others := mixers(c.graph)
			if full != nil && some > 0 && slices.Equal(got[149], full[149]) {
				t.Errorf("%s: %s gives the bits of f32", c.name, f.kv)
			}
			if full == nil {
				full, bytes = got, s.Bytes()
			}
			if n, err := e.StateBytes(150); err != nil || n != s.Bytes() {
				t.Errorf("%s: %d bytes, foretold %d (%v)", f.kv, s.Bytes(), n, err)
			}
			if others > 0 {
				// What delta nets remember is float32 always.
			} else if f.kv == "f16" && s.Bytes() != bytes/2 || f.kv == "q8" && s.Bytes() >= bytes/2 {
				t.Errorf("%s: %d bytes, f32 takes %d", f.kv, s.Bytes(), bytes)
			}
			if !dependsOnLength(c.graph) {
				s.Reset()
				checkLogits(t, c.name+" "+f.kv+" by steps", stepLogits(t, s, ids), got, f.tolerance)
			}
		}
	}
}

// Blocks keep keys and values each as a list says: sizes add up, and a list of one kind has
// the bits of the kind alone. A list of another length is refused.
func TestCacheFormatsByBlock(t *testing.T) {
	g := tinies()[0].graph
	ids := tinyIDs(70)
	run := func(kv string) ([][]float32, int64) {
		e, _ := newTiny(t, g, "f32", Options{Threads: 2, KV: kv})
		s := sequence(t, e)
		return allLogits(t, s, ids), s.Bytes()
	}
	n := len(g.Blocks)
	all, least := run("q8")
	same, size := run(fmt.Sprintf("q8*%d", n))
	for i := range all {
		if !slices.Equal(all[i], same[i]) {
			t.Fatalf("row %d of a list of one kind differs from the kind's", i)
		}
	}
	wide, most := run("f32")
	mixed, between := run(fmt.Sprintf("f32,q8*%d", n-1))
	if size != least || (between-least)*int64(n) != most-least {
		t.Errorf("%d, %d, %d and %d bytes", least, size, between, most)
	}
	if slices.Equal(mixed[69], all[69]) || slices.Equal(mixed[69], wide[69]) {
		t.Error("a list has the bits of one kind")
	}
	source, _ := fillWeights(t, g, "f32", 7)
	_, err := newExecutor("tiny", g, source, onFlag(t, Options{KV: fmt.Sprintf("q8*%d", n+1)}))
	var u *formats.UnsupportedError
	if !errors.As(err, &u) {
		t.Errorf("a list that is too long: %v", err)
	}
}

// mixers returns how many blocks attend, and how many mix otherwise.
func mixers(g *graph.Graph) (attentions, others int) {
	for i := range g.Blocks {
		if g.Blocks[i].Attn != nil {
			attentions++
		} else {
			others++
		}
	}
	return attentions, others
}

// The cache is float32 where arithmetic is to be exact, else half precision.
func TestCacheFormatDefault(t *testing.T) {
	processorOnly(t, "sizes of its cache")
	g := tinies()[0].graph
	source, _ := fillWeights(t, g, "f32", 7)
	size := func(o Options) int64 {
		e, err := newExecutor("tiny", g, source, o)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		n, err := e.StateBytes(64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if exact, usual := size(Options{Exact: true}), size(Options{}); exact != size(Options{KV: "f32"}) || usual != size(Options{KV: "f16"}) || exact != 2*usual {
		t.Errorf("%d bytes exactly, %d usually", exact, usual)
	}
	_, err := newExecutor("tiny", g, source, Options{KV: "q2"})
	var u *formats.UnsupportedError
	if !errors.As(err, &u) {
		t.Errorf("cache format q2: %v", err)
	}
}

// A long context is attended to in chunks; that changes nothing but rounding,
// and the number of threads not even that.
func TestLongContexts(t *testing.T) {
	for i, c := range byTurns(tinies()) {
		if c.graph.Embed.Positions != "" || dependsOnLength(c.graph) || c.graph.Blocks[1].MoE != nil || testing.Short() && i > 0 {
			continue
		}
		// Rounding may tip a stored number over to its neighbour.
		for kv, tolerance := range map[string]float64{"f32": tinyTolerance, "f16": 1e-4, "q8": 5e-3, "q4": 8e-2} {
			ids := tinyIDs(1030)
			var first [][]float32
			for _, threads := range []int{1, 2, 5} {
				e, _ := newTiny(t, c.graph, "f32", Options{Threads: threads, Context: 1100, KV: kv})
				s := sequence(t, e)
				if err := s.Prefill(context.Background(), ids[:1022], nil); err != nil {
					t.Fatal(err)
				}
				steps := stepLogits(t, s, ids[1022:])
				if first == nil {
					first = steps
					s.Reset()
					all := allLogits(t, s, ids)
					checkLogits(t, c.name+" "+kv, steps, all[1022:], tolerance)
				}
				for r := range steps {
					if !slices.Equal(steps[r], first[r]) {
						t.Fatalf("%s, %s: row %d differs between 1 and %d threads", c.name, kv, r, threads)
					}
				}
			}
		}
	}
}
