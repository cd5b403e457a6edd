package exec

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/kernels/cpu"
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

// Of keys and values in codes the first positions and the newest are in half precision: as
// long as nothing else is seen, all codes give the same bits, and none further on. What a
// sequence gives does not depend on where it went back to, on what it was kept and restored
// as, or on a disk.
func TestNewestPositions(t *testing.T) {
	processorOnly(t, "what is written to a disk")
	const all = (cpu.KVFirst + cpu.KVNewest + 1) * cpu.KVPositions // positions of halves
	g := tinies()[0].graph
	ids := tinyIDs(all + 180)
	part := 90
	if testing.Short() {
		part = 450
	}
	var first [][]float32
	for _, kv := range []string{"q5", "q4", "q3"} {
		e, _ := newTiny(t, g, "f32", Options{Threads: 2, KV: kv, Context: int64(len(ids) + 64)})
		s := sequence(t, e)
		whole := allLogits(t, s, ids)
		if first == nil {
			first = whole
		} else {
			for r := range whole {
				if slices.Equal(whole[r], first[r]) != (r < all) {
					t.Fatalf("%s: row %d, of %d that see halves alone", kv, r, all)
				}
			}
		}
		if n, err := e.StateBytes(int64(len(ids))); err != nil || n != s.Bytes() {
			t.Errorf("%s: %d bytes, foretold %d (%v)", kv, s.Bytes(), n, err)
		}
		if !e.Recurrent() {
			t.Errorf("%s: sequences go back to anywhere", kv)
		}
		for _, to := range []int{len(ids) - 30, 200, 100} {
			s.Truncate(to)
			sameRows(t, fmt.Sprintf("%s back to %d", kv, to), goesOn(t, s, ids[to:]), whole[to:])
		}
		s.Truncate(0)
		for cut := 0; cut < len(ids); cut += part { // kept, and gone on with by another
			n := min(part, len(ids)-cut)
			sameRows(t, kv+" in parts", goesOn(t, s, ids[cut:cut+n]), whole[cut:cut+n])
			kept, err := s.Snapshot()
			if err != nil {
				t.Fatal(err)
			}
			other := sequence(t, e)
			if left, err := other.Restore(kept, kept.Len()); err != nil || left != kept.Len() {
				t.Fatalf("%s: %d of %d positions restored (%v)", kv, left, kept.Len(), err)
			}
			sameRows(t, kv+" restored", goesOn(t, other, ids[cut+n:]), whole[cut+n:])
			var pages [][]byte
			for i := range (kept.Len() + 63) / 64 {
				pages = append(pages, kept.AppendPage(nil, i))
			}
			loaded := sequence(t, e)
			if err := loaded.Load(ids[:cut+n], int64(len(ids)), pages, kept.AppendRest(nil)); err != nil {
				t.Fatal(err)
			}
			sameRows(t, kv+" from a disk", goesOn(t, loaded, ids[cut+n:]), whole[cut+n:])
			kept.Release()
			other.Close()
			loaded.Close()
		}
	}
}

// A device has the same positions in halves and in codes as the processor, behind prompts and
// steps, gone back and forked: rounding may tip a number over to the next code.
func TestNewestPositionsOfDevices(t *testing.T) {
	g := tinies()[0].graph
	ids := tinyIDs(400)
	source, _ := fillWeights(t, g, "f32", 7)
	run := func(kv string, on func(Options) Options) (out [][]float32) {
		e, err := newExecutor("tiny", g, source, on(Options{Threads: 2, KV: kv, Exact: true, Context: 512, Sequences: 2}))
		opened(t, err)
		defer e.Close()
		s := sequence(t, e)
		defer s.Close()
		if err := s.Prefill(context.Background(), ids[:380], nil); err != nil {
			t.Fatal(err)
		}
		out = append(out, stepLogits(t, s, ids[380:388])...)
		f, err := s.Fork()
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		out = append(out, stepLogits(t, f, ids[388:391])...)
		s.Truncate(384)
		out = append(out, stepLogits(t, s, ids[390:394])...)
		s.Truncate(140)
		return append(out, stepLogits(t, s, ids[394:396])...)
	}
	got, want := run("q4", func(o Options) Options { return onFlag(t, o) }), run("q4", func(o Options) Options { return o })
	checkLogits(t, "q4", got, want, 2e-2)
	if near, _ := difference(got, run("f32", func(o Options) Options { return o })); near < 1e-3 {
		t.Errorf("no codes were read: %g of the range from f32", near)
	}
}

// goesOn returns the logits of a prompt that a sequence goes on with.
func goesOn(t *testing.T, s *Sequence, ids []int32) [][]float32 {
	t.Helper()
	if len(ids) == 0 {
		return nil
	}
	return allLogits(t, s, ids)
}

func sameRows(t *testing.T, what string, got, want [][]float32) {
	t.Helper()
	for r := range want {
		if !slices.Equal(got[r], want[r]) {
			t.Fatalf("%s: row %d differs", what, r)
		}
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
