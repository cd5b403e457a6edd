package cpu

import (
	"math"
	"slices"
	"testing"

	"github.com/nstf/nstf/formats/model"
	kernels "github.com/nstf/nstf/kernels/cpu"
)

// The engine as a whole is tested through runtime/exec, against a float64
// reference and against transformers. Here are the parts whose edge cases a
// model would hardly meet.

// Experts are chosen by probability, the lower index first among equals.
func TestRoute(t *testing.T) {
	nan := float32(math.NaN())
	log := func(p float64) float32 { return float32(math.Log(p)) }
	for _, c := range []struct {
		name      string
		logits    []float32
		topK      int
		normalize bool
		chosen    []int32
		share     []float32
	}{
		{"ties", []float32{1, 2, 2, 1}, 3, true, []int32{1, 2, 0}, []float32{0.42231879, 0.42231879, 0.15536241}},
		{"all equal", []float32{3, 3, 3, 3}, 2, false, []int32{0, 1}, []float32{0.25, 0.25}},
		{"not divided", []float32{log(0.2), log(0.7), log(0.1)}, 2, false, []int32{1, 0}, []float32{0.7, 0.2}},
		{"divided", []float32{log(0.2), log(0.7), log(0.1)}, 2, true, []int32{1, 0}, []float32{7. / 9, 2. / 9}},
		{"not a number", []float32{1, nan, 2}, 2, false, []int32{0, 1}, []float32{nan, nan}},
		{"certain", []float32{0, 1000, 0}, 3, true, []int32{1, 0, 2}, []float32{1, 0, 0}},
	} {
		e := &Engine{set: kernels.Best()}
		e.s.router = slices.Clone(c.logits)
		e.pass.routes = routes{
			experts: len(c.logits), topK: c.topK, normalize: c.normalize,
			chosen: make([]int32, c.topK), share: make([]float32, c.topK),
		}
		e.routeRow(0)
		r := &e.pass.routes
		if !slices.Equal(r.chosen, c.chosen) {
			t.Errorf("%s: experts %v, want %v", c.name, r.chosen, c.chosen)
		}
		for i, w := range c.share {
			if d := math.Abs(float64(r.share[i] - w)); d > 1e-6 || (w != w) != (r.share[i] != r.share[i]) {
				t.Errorf("%s: shares %v, want %v", c.name, r.share, c.share)
			}
		}
	}
}

func TestGather(t *testing.T) {
	r := routes{topK: 2, chosen: []int32{1, 0, 2, 1, 0, 2}, share: []float32{.1, .2, .3, .4, .5, .6}}
	r.gather(1, 3)
	if !slices.Equal(r.rows, []int32{0, 1}) || !slices.Equal(r.weight, []float32{.1, .4}) {
		t.Errorf("rows %v with %v", r.rows, r.weight)
	}
	r.gather(3, 3)
	if len(r.rows) != 0 {
		t.Errorf("rows %v", r.rows)
	}
}

func TestWindow(t *testing.T) {
	p := &pass{positions: []int64{0, 4, 5, 100}}
	for row, want := range []kernels.Reach{{Lo: 0, Hi: 1}, {Lo: 0, Hi: 5}, {Lo: 1, Hi: 6}, {Lo: 96, Hi: 101}} {
		if got := p.reach(row, 5); got != want {
			t.Errorf("row %d sees %v, want %v", row, got, want)
		}
	}
	if got := p.reach(3, 0); got != (kernels.Reach{Lo: 0, Hi: 101}) {
		t.Errorf("without a window %v", got)
	}
}

// Parts of attention cover each row, head and position that is seen once,
// whatever the segments; what is cut has room of its own.
func TestAttentionIsCutByLengths(t *testing.T) {
	for _, window := range []int64{0, 5, 700} {
		p := &pass{}
		for _, s := range []struct{ past, rows int }{{0, 1}, {511, 1}, {512, 1}, {2000, 3}, {100, 50}, {1500, 200}} {
			p.segments = append(p.segments, segment{first: len(p.positions), rows: s.rows})
			for r := range s.rows {
				p.positions = append(p.positions, int64(s.past+r))
			}
		}
		w := &p.attend
		w.heads, w.shape = 3, kernels.Attention{Dim: 20, Group: 5}
		p.tile(1, window)
		w.divide()
		type place struct{ row, head, chunk int }
		seen := map[place]int{}
		for _, it := range w.parts {
			tl := &w.tiles[it.tile]
			if n := tl.rows * w.shape.Group; n > attendQueries {
				t.Errorf("%d queries in a tile", n)
			}
			for r := range tl.rows {
				seen[place{tl.first + r, it.head, it.chunk}]++
			}
			if tl.cut >= 0 {
				parts := w.cut[tl.cut+it.head]
				if len(parts) != tl.lastChunk-tl.firstChunk+1 || int(w.left[tl.cut+it.head].Load()) != len(parts) {
					t.Errorf("%d partials of chunks %d to %d", len(parts), tl.firstChunk, tl.lastChunk)
				}
				parts[it.chunk-tl.firstChunk].Acc[0]++ // no other part's
			}
		}
		for row, pos := range p.positions {
			if row == 0 {
				continue
			}
			for head := range 3 {
				lo, hi := p.reach(row, window).Lo, int(pos)
				if row > 6 { // the long segments
					lo, hi = 0, 0
				}
				for c := lo / splitLength; c <= hi/splitLength; c++ {
					if n := seen[place{row, head, c}]; n != 1 {
						t.Errorf("window %d: row %d, head %d, chunk %d occurs %d times", window, row, head, c, n)
					}
				}
			}
		}
		for _, parts := range w.cut {
			for _, x := range parts {
				if x.Acc[0] != 1 {
					t.Errorf("a partial is shared: %v", x.Acc[0])
				}
			}
		}
	}
}

// Work is cut by shape alone: parts cover a matrix once, however many threads.
func TestPartRows(t *testing.T) {
	tiles := kernels.TilesFor(0)
	for _, m := range []matrix{{n: 1, k: 1}, {n: 100, k: 1 << 20}, {n: 50000, k: 64}} {
		for _, rows := range []int{1, fewRows, fewRows + 1, 512} {
			if p := m.partRows(rows, &tiles); p < minPart || p%minPart != 0 {
				t.Errorf("[%d][%d] with %d rows: parts of %d", m.n, m.k, rows, p)
			}
		}
	}
}

func TestFitGrowsByDoubling(t *testing.T) {
	var b []float32
	grown := 0
	for n := 1; n <= 1000; n++ {
		before := cap(b)
		b = fit(b, n)
		if len(b) != n {
			t.Fatalf("length %d instead of %d", len(b), n)
		}
		if cap(b) != before {
			grown++
		}
	}
	if grown > 11 {
		t.Errorf("grew %d times on the way to 1000", grown)
	}
}

func TestUnknownActivation(t *testing.T) {
	l := &loader{}
	l.activation(model.Activation("swosh"))
	if l.err == nil {
		t.Error("accepted")
	}
}
