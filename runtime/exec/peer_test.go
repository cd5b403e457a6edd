package exec

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/runtime/cpu"
)

// Activations as llama.cpp has them: none rounded for weights in float32, some
// for others, and the same at any number of threads.
func TestPeerActivations(t *testing.T) {
	processorOnly(t, "activations as another program rounds them")
	ids := tinyIDs(40)
	for _, c := range byTurns(tinies()) {
		if c.graph.Blocks[1].MoE != nil {
			continue // rounding may choose another expert
		}
		most := 0.05
		switch {
		case slices.ContainsFunc(c.graph.Blocks, func(b graph.Block) bool { return !b.Mixes() || !b.Feeds() }):
			most = 0.2 // layers of one branch square what is rounded, and no mixer averages it
		case c.graph.Recurrent(): // what is remembered of random weights carries errors on
			most = 0.25
		case c.graph.PerLayer != nil: // whose gates read hidden states as they are
			most = 0.1
		}
		for scheme, rounded := range map[string]bool{"f32": false, "bf16": true, "f16": true} {
			e, _ := newTiny(t, c.graph, scheme, Options{Threads: 1, KV: "f32", Exact: true})
			exact := allLogits(t, sequence(t, e), ids)
			var first [][]float32
			for _, threads := range []int{1, 3} {
				e, _ = newTiny(t, c.graph, scheme, Options{Threads: threads, KV: "f32", Activations: cpu.ActivationsLlamaCPP})
				if e.Activations() != cpu.ActivationsLlamaCPP {
					t.Errorf("activations %q", e.Activations())
				}
				got := allLogits(t, sequence(t, e), ids)
				if first == nil {
					first = got
				}
				for r := range got {
					if !slices.Equal(got[r], first[r]) {
						t.Fatalf("%s, %s: row %d differs between 1 and %d threads", c.name, scheme, r, threads)
					}
					if off := relativeError(got[r], exact[r]); off > most || !rounded && off != 0 {
						t.Errorf("%s, %s: row %d is off by %.4f of its size", c.name, scheme, r, off)
					}
				}
				if rounded && slices.Equal(got[len(ids)-1], exact[len(ids)-1]) {
					t.Errorf("%s, %s: nothing was rounded", c.name, scheme)
				}
			}
		}
	}
	if _, err := newExecutor("", tinies()[0].graph, nil, Options{Activations: "x"}); err == nil {
		t.Error("activations x were accepted")
	}
}

func TestSharedPeerActivations(t *testing.T) {
	dir := shared(t)
	path := filepath.Join(dir, "tiny-llama-Q4_K_M.gguf")
	ids := readIDs(t, filepath.Join(dir, "tiny-llama/reference/logits_ids.json"))
	exact := allLogits(t, sequence(t, open(t, path, Options{Exact: true})), ids)
	got := allLogits(t, sequence(t, open(t, path, Options{Activations: cpu.ActivationsLlamaCPP})), ids)
	for r := range got {
		if off := relativeError(got[r], exact[r]); off > 0.1 || off < 0.002 {
			t.Errorf("row %d is off by %.4f of its size", r, off)
		}
	}
}
