package cpu

import (
	"encoding/json"
	"math"
	"os"
	"slices"
	"testing"

	"github.com/nstf/nstf/formats/graph"
	kernels "github.com/nstf/nstf/kernels/cpu"
)

// The engine as a whole is tested through runtime/exec, against a float64
// reference and against transformers. Here are the parts whose edge cases a
// model would hardly meet.

// Experts are chosen by probability, the lower index first among equals.
func TestRoute(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	log := func(p float64) float32 { return float32(math.Log(p)) }
	for _, c := range []struct {
		name   string
		m      graph.MoE
		bias   []float32
		logits []float32
		chosen []int32
		share  []float32
	}{
		{"ties", graph.MoE{Normalize: true}, nil, []float32{1, 2, 2, 1}, []int32{1, 2, 0}, []float32{0.42231879, 0.42231879, 0.15536241}},
		{"all equal", graph.MoE{}, nil, []float32{3, 3, 3, 3}, []int32{0, 1}, []float32{0.25, 0.25}},
		{"not divided", graph.MoE{}, nil, []float32{log(0.2), log(0.7), log(0.1)}, []int32{1, 0}, []float32{0.7, 0.2}},
		{"divided", graph.MoE{Normalize: true}, nil, []float32{log(0.2), log(0.7), log(0.1)}, []int32{1, 0}, []float32{7. / 9, 2. / 9}},
		{"not a number", graph.MoE{}, nil, []float32{1, nan, 2}, []int32{0, 1}, []float32{nan, nan}},
		{"certain", graph.MoE{Normalize: true}, nil, []float32{0, 1000, 0}, []int32{1, 0, 2}, []float32{1, 0, 0}},
		{"scaled", graph.MoE{Normalize: true, Scale: 2.5}, nil, []float32{log(0.2), log(0.7), log(0.1)}, []int32{1, 0}, []float32{17.5 / 9, 5. / 9}},
		{"sigmoid", graph.MoE{Score: graph.ScoreSigmoid}, nil, []float32{-inf, 0, inf}, []int32{2, 1, 0}, []float32{1, 0.5, 0}},
		{"sigmoid of no number", graph.MoE{Score: graph.ScoreSigmoid, Normalize: true}, nil, []float32{3, 1, nan}, []int32{0, 1}, []float32{nan, nan}},
		{"biased choice", graph.MoE{Score: graph.ScoreSigmoid}, []float32{0, 9, -9, -9}, []float32{1, 0, 5, 6}, []int32{1, 0}, []float32{0.5, 0.73105858}},
		{"bias that is no number", graph.MoE{Score: graph.ScoreSigmoid}, []float32{nan, 0, -inf}, []float32{9, 0, 9}, []int32{1, 0}, []float32{0.5, 0.99987661}},
		{"added", graph.MoE{Score: graph.ScoreSigmoid, Normalize: true, Epsilon: 1}, nil, []float32{0, 0}, []int32{0, 1}, []float32{0.25, 0.25}},
		{"nothing but what is added", graph.MoE{Score: graph.ScoreSigmoid, Normalize: true, Epsilon: 1e-20}, nil, []float32{-1e9, -1e9}, []int32{0, 1}, []float32{0, 0}},
		{"floor", graph.MoE{Score: graph.ScoreSigmoid, Normalize: true, Floor: 4}, nil, []float32{0, 0}, []int32{0, 1}, []float32{0.125, 0.125}},
		{"root", graph.MoE{Score: graph.ScoreRoot}, nil, []float32{0, 100, -100}, []int32{1, 0, 2}, []float32{10, 0.83255461, 1.9287499e-22}},
		{"root of infinity", graph.MoE{Score: graph.ScoreRoot}, nil, []float32{0, inf}, []int32{0}, []float32{nan}},
		{"selected", graph.MoE{Score: graph.ScoreSelected}, []float32{0, 0, -99, 0}, []float32{-1, -2, 5, -9}, []int32{0, 1}, []float32{0.73105858, 0.26894142}},
		{"selected of nothing", graph.MoE{Score: graph.ScoreSelected}, nil, []float32{-inf, -inf, -inf}, []int32{0, 1}, []float32{0, 0}},
		{"groups by two", graph.MoE{Score: graph.ScoreSigmoid, Groups: 2, TopGroups: 1}, nil, []float32{9, -9, 0, 0}, []int32{0, 1}, []float32{0.99987661, 0.00012339458}},
		{"groups by one, ties", graph.MoE{Score: graph.ScoreSigmoid, Groups: 3, TopGroups: 1, GroupBest: 1}, nil, []float32{0, -9, 0, 0, -8, 0}, []int32{0, 1}, []float32{0.5, 0.00012339458}},
		{"groups of one", graph.MoE{Groups: 3, TopGroups: 2, GroupBest: 1}, nil, []float32{log(0.2), log(0.7), log(0.1)}, []int32{1, 0}, []float32{0.7, 0.2}},
		{"masked by 0", graph.MoE{Score: graph.ScoreSigmoid, Groups: 2, TopGroups: 1, ZeroMasked: true}, []float32{-1, -1, -3, -3}, []float32{9, -9, 1, 1}, []int32{2, 3}, []float32{0.73105858, 0.73105858}},
	} {
		e := &Engine{set: kernels.Best()}
		e.s.router = slices.Clone(c.logits)
		e.s.choice = make([]float32, len(c.logits)+int(c.m.Groups))
		m := c.m
		m.Experts, m.TopK = int64(len(c.logits)), int64(len(c.chosen))
		e.pass.routes = routes{
			block:  &block{Block: &graph.Block{MoE: &m}, selectBias: c.bias},
			chosen: make([]int32, m.TopK), share: make([]float32, m.TopK),
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

// Rows get the experts and shares that the routers of transformers give them: see
// testdata/routers/make.py.
func TestRoutersOfTransformers(t *testing.T) {
	data, err := os.ReadFile("../../testdata/routers/routers.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Name   string
		MoE    graph.MoE
		Bias   []float32
		Logits [][]float32
		Chosen [][]int32
		Share  [][]float32
	}
	if err := json.Unmarshal(data, &cases); err != nil || len(cases) < 10 {
		t.Fatalf("%d cases: %v", len(cases), err)
	}
	for _, c := range cases {
		if len(c.Bias) == 0 {
			c.Bias = nil
		}
		for row, logits := range c.Logits {
			e := &Engine{set: kernels.Best()}
			e.s.router, e.s.choice = slices.Clone(logits), make([]float32, c.MoE.Experts+c.MoE.Groups)
			e.pass.routes = routes{block: &block{Block: &graph.Block{MoE: &c.MoE}, selectBias: c.Bias},
				chosen: make([]int32, c.MoE.TopK), share: make([]float32, c.MoE.TopK)}
			e.routeRow(0)
			want := map[int32]float32{}
			for i, x := range c.Chosen[row] {
				want[x] = c.Share[row][i]
			}
			for i, x := range e.pass.routes.chosen {
				w, ok := want[x]
				if share := e.pass.routes.share[i]; !ok || math.Abs(float64(share-w)) > 1e-6*math.Abs(float64(w)) {
					t.Errorf("%s row %d: expert %d has %v; transformers: %v", c.Name, row, x, share, want)
				}
				delete(want, x)
			}
		}
	}
}

func TestGather(t *testing.T) {
	r := routes{block: &block{Block: &graph.Block{MoE: &graph.MoE{TopK: 2}}}, chosen: []int32{1, 0, 2, 1, 0, 2}, share: []float32{.1, .2, .3, .4, .5, .6}}
	r.gather(1)
	if !slices.Equal(r.rows, []int32{0, 1}) || !slices.Equal(r.weight, []float32{.1, .4}) {
		t.Errorf("rows %v with %v", r.rows, r.weight)
	}
	r.gather(3)
	if len(r.rows) != 0 {
		t.Errorf("rows %v", r.rows)
	}
}

func TestWindow(t *testing.T) {
	p := &pass{positions: []int64{0, 4, 5, 100}}
	for row, want := range []kernels.Reach{{Lo: 0, Hi: 1}, {Lo: 0, Hi: 5}, {Lo: 1, Hi: 6}, {Lo: 96, Hi: 101}} {
		if got := p.reach(row, &attending{window: 5}); got != want {
			t.Errorf("row %d sees %v, want %v", row, got, want)
		}
	}
	for row, want := range []kernels.Reach{{Lo: 0, Hi: 1}, {Lo: 0, Hi: 5}, {Lo: 5, Hi: 6}, {Lo: 100, Hi: 101}} {
		if got := p.reach(row, &attending{chunk: 5}); got != want {
			t.Errorf("of runs of 5 row %d sees %v, want %v", row, got, want)
		}
	}
	if got := p.reach(3, &attending{}); got != (kernels.Reach{Lo: 0, Hi: 101}) {
		t.Errorf("without a window %v", got)
	}
}

// Parts of attention cover each row, head and position that is seen once,
// whatever the segments; what is cut has room of its own. Many rows are not cut.
func TestAttentionIsCutByLengths(t *testing.T) {
	for i, window := range []int64{0, 5, 700, 0, 700} {
		e, a := &Engine{pass: pass{many: i > 2}}, &attending{window: window}
		p := &e.pass
		for _, s := range []struct{ past, rows int }{{0, 1}, {511, 1}, {512, 1}, {2000, 3}, {100, 50}, {1500, 200}} {
			p.segments = append(p.segments, segment{first: len(p.positions), rows: s.rows})
			for r := range s.rows {
				p.positions = append(p.positions, int64(s.past+r))
			}
		}
		w := &p.attend
		w.heads, w.shape = 3, kernels.Attention{Dim: 20, Group: 5}
		e.tile(1, a)
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
				lo, hi := p.reach(row, a).Lo, int(pos)
				if p.many {
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
		for _, many := range []bool{false, true} {
			if p := m.partRows(many, &tiles); p < minPart || p%minPart != 0 {
				t.Errorf("[%d][%d], many rows: %v: parts of %d", m.n, m.k, many, p)
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
