package exec

import (
	"context"
	"testing"

	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/runtime/sample"
)

// A conversation that goes on otherwise than its last prompt ended begins where the
// states were kept, and not from the start; what follows is that of a fresh sequence.
func TestRecurrentSequencesGoBackToWhatWasKept(t *testing.T) {
	s := shape{d: 24, heads: 4, kv: 2, dim: 10, inner: 33, norm: graph.RMSNorm}
	g := s.graph(func(g *graph.Graph) {
		s.delta(g, 0, graph.Delta{Heads: 4, KeyHeads: 2, KeyDim: 8, ValueDim: 8, Kernel: 4, DecayLog: true})
		s.gate(g, 1)
	})
	e, ref := newTiny(t, g, "f32", Options{Threads: 1})
	ids, more := tinyIDs(60), []int32{3, 1, 4, 1, 5}
	seq := sequence(t, e)
	d, err := seq.Decode(context.Background(), ids, newSampler(t, sample.Options{}), nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if _, err := d.Next(); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Stop(); err != nil {
		t.Fatal(err)
	}
	kept := len(ids) - 17
	for _, c := range []struct{ to, held int }{{58, kept}, {50, kept}, {kept, kept}, {20, 0}} {
		seq.Truncate(c.to)
		if n := seq.states[0].Len(); n != int64(c.held) || seq.Len() != c.to {
			t.Errorf("cut to %d, the states hold %d positions of %d, want %d", c.to, n, seq.Len(), c.held)
		}
		got, err := seq.PrefillLast(context.Background(), more)
		if err != nil {
			t.Fatal(err)
		}
		text := append(append([]int32(nil), ids[:c.to]...), more...)
		want := toFloat32(ref.logits(text))
		checkLogits(t, "gone on", [][]float32{got}, want[len(text)-1:], toleranceOf(g))
	}
	seq.Truncate(0)
	if n := seq.Bytes(); n != 0 || seq.kept.len != 0 {
		t.Errorf("an empty sequence holds %d bytes, and keeps %d positions", n, seq.kept.len)
	}
}
