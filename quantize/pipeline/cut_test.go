package pipeline

import (
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/plan"
	"github.com/nstf/nstf/quantize/fit"
)

// TestCuts wants pieces that are all of a tensor, in order and neither few nor many.
func TestCuts(t *testing.T) {
	tcq := plan.Dense(plan.MustCode("tcq3"))
	for _, c := range []struct {
		shape       []int64
		least, most int
	}{
		{[]int64{128, 2048}, 0, 0},         // all of which is one piece
		{[]int64{256, 2048}, 2, 2},         // keys of a 1.1 B model
		{[]int64{2048, 5632}, 8, 16},       // its last matrix
		{[]int64{32000, 2048}, 32, 64},     // its table
		{[]int64{8192, 28672}, 32, 64},     // of 70 B
		{[]int64{262144, 4096}, 64, 72},    // a table that one process fits in runs
		{[]int64{1040, 1024}, 5, 5},        // rows that are no multiple of 128
		{[]int64{128, 768, 2048}, 32, 128}, // experts
		{[]int64{4, 14336, 4096}, 4, 4},    // large ones
		{[]int64{32, 64, 128}, 0, 0},       // of all of which one piece is made
	} {
		x := formats.Tensor{Name: "w", Shape: c.shape, Scheme: "f32"}
		n, _ := x.Rows()
		all := cut(&x, tcq, max(pieceWeights, x.Elements()/mostPieces))
		if len(all) < c.least || len(all) > c.most {
			t.Errorf("%v: %d pieces", c.shape, len(all))
		}
		var at int64
		for _, p := range all {
			if p.rows == 0 {
				for _, u := range p.units {
					if u.first != at {
						t.Errorf("%v: an expert's rows from %d on where %d are there", c.shape, u.first, at)
					}
					at += u.rows
				}
				continue
			}
			if u := p.units[0]; u.first+p.first != at || p.first%fit.CutStep != 0 || p.first+p.rows > u.rows {
				t.Errorf("%v: rows from %d of %d on where %d are there", c.shape, p.first, u.first, at)
			}
			at += p.rows
		}
		if len(all) > 0 && at != n {
			t.Errorf("%v: %d rows in pieces", c.shape, at)
		}
	}
}

// TestWants wants a process to take what keeps its threads busy, of one matrix alone, and a
// GPU all that is left of that.
func TestWants(t *testing.T) {
	x := formats.Tensor{Name: "w", Shape: []int64{2048, 5632}, Scheme: "f32"}
	tcq := plan.Dense(plan.MustCode("tcq3"))
	pieces := cut(&x, tcq, pieceWeights)
	for threads, want := range map[int]int{1: 1, 4: 1, 5: 2, 16: 4, 256: 15} {
		r := &run{o: Options{Threads: threads}}
		if got := r.wants(portion{graph.Weight{Name: "w"}, pieces, 1}, tcq); got != want {
			t.Errorf("%d threads take %d pieces", threads, got)
		}
		r.o.Searcher = finder(true)
		if got := r.wants(portion{graph.Weight{Name: "w"}, pieces, 1}, tcq); got != 15 {
			t.Errorf("a GPU takes %d pieces", got)
		}
	}
}

// TestWantsLess wants a process to take the less the less is left of a matrix.
func TestWantsLess(t *testing.T) {
	x := formats.Tensor{Name: "w", Shape: []int64{5632, 2048}, Scheme: "f32"}
	tcq := plan.Dense(plan.MustCode("tcq3"))
	pieces := cut(&x, tcq, pieceWeights)
	r := &run{o: Options{Threads: 4}}
	for at, want := range map[int]int{0: len(pieces) / shareOf, len(pieces) / 2: len(pieces) / 2 / shareOf, len(pieces) - 1: 1} {
		if got := r.wants(portion{graph.Weight{Name: "w"}, pieces, at}, tcq); got != want {
			t.Errorf("%d of %d pieces are taken at %d, not %d", got, len(pieces), at, want)
		}
	}
}
