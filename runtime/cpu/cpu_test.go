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

// A reach cut by pages covers each of its positions once.
func TestReachWithinPages(t *testing.T) {
	for _, r := range []reach{{0, 1}, {0, 64}, {0, 65}, {63, 64}, {64, 128}, {60, 300}, {129, 130}} {
		var seen []int64
		for page := int64(0); page < 6; page++ {
			lo, hi := r.within(page)
			for i := lo; i < hi; i++ {
				seen = append(seen, page*64+int64(i))
			}
		}
		for i, pos := range seen {
			if pos != r.lo+int64(i) {
				t.Fatalf("%v: positions %v", r, seen)
			}
		}
		if int64(len(seen)) != r.hi-r.lo {
			t.Errorf("%v: %d positions", r, len(seen))
		}
	}
}

func TestWindow(t *testing.T) {
	p := &pass{positions: []int64{0, 4, 5, 100}}
	for row, want := range []reach{{0, 1}, {0, 5}, {1, 6}, {96, 101}} {
		if got := p.reach(row, 5); got != want {
			t.Errorf("row %d sees %v, want %v", row, got, want)
		}
	}
	if got := p.reach(3, 0); got != (reach{0, 101}) {
		t.Errorf("without a window %v", got)
	}
}

// Work is cut by shape alone: parts cover a matrix once, however many threads.
func TestPartRows(t *testing.T) {
	for _, m := range []matrix{{n: 1, k: 1}, {n: 100, k: 1 << 20}, {n: 50000, k: 64}} {
		for _, rows := range []int{1, fewRows, fewRows + 1, 512} {
			if p := m.partRows(rows); p < minPart || p%minPart != 0 {
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
