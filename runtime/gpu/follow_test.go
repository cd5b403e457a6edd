package gpu

import (
	"reflect"
	"testing"

	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/runtime/device"
)

// headed is a graph of blocks with so many key-value heads of 128 numbers.
func headed(kv ...int64) *graph.Graph {
	g := &graph.Graph{}
	for _, n := range kv {
		g.Blocks = append(g.Blocks, graph.Block{Attn: &graph.Attention{Heads: 4 * n, KVHeads: n, HeadDim: 128}})
	}
	return g
}

// leastFollowed is how many positions an engine of a span reads in any case.
func leastFollowed(t *testing.T, g *graph.Graph, span device.Span, p *device.Policy) int64 {
	t.Helper()
	f, err := followed(g, span, p)
	if err != nil || f.policy == nil {
		t.Fatal(f, err)
	}
	return f.policy.Least
}

// TestLeast wants as many positions read in any case as make 30 Mi numbers of keys and values in
// the block that has the most for each, and what the policy says where it says something. Stages
// and ranks have what one GPU has that has the whole model, whatever share of heads is theirs.
func TestLeast(t *testing.T) {
	g := headed(2, 8)
	for _, c := range []struct{ said, want int64 }{{0, 15360}, {1024, 1024}} { // 2048 numbers a position
		p := device.DefaultPolicy()
		p.Least = c.said
		for _, span := range []device.Span{device.Whole(g), {Lo: 0, Hi: 1}, {Lo: 1, Hi: 2}} {
			if got := leastFollowed(t, g, span, &p); got != c.want || p.Least != c.said {
				t.Errorf("blocks %d to %d: %d positions, want %d; the policy given says %d", span.Lo, span.Hi-1, got, c.want, p.Least)
			}
		}
		for _, cut := range [][]*graph.Graph{{headed(1, 4), headed(1, 4)}, {headed(2, 2), headed(2, 3), headed(2, 3)}} {
			for i, own := range cut {
				if got := leastFollowed(t, own, device.Whole(own), rankPolicy(&p, g, i, len(cut))); got != c.want {
					t.Errorf("rank %d of %d: %d positions, want %d", i, len(cut), got, c.want)
				}
			}
		}
	}
	p := device.DefaultPolicy()
	p.Heads = [][]float64{{0.1, 0.2}, {0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8}}
	p.Prompts = p.Heads
	own := headed(1, 4)
	for i := range 2 {
		if q := rankPolicy(&p, g, i, 2); q.Check(own) != nil || q.Heads[0][0] != p.Heads[0][i] || q.Prompts[0][0] != p.Heads[0][i] {
			t.Errorf("rank %d follows %+v", i, q)
		}
	}
	if p := rankPolicy(nil, g, 0, 2); p != nil {
		t.Errorf("dense attention follows %+v", p)
	}
}

// Each rank has the shares of its own key-value heads, and of fewer heads than ranks several
// have the same.
func TestRankPolicy(t *testing.T) {
	g, p := headed(2, 3), device.DefaultPolicy()
	p.Heads = [][]float64{{1, 2}, {3, 4, 5}}
	for ranks, want := range map[int][][][]float64{2: {{{1}, {3}}, {{2}, {4, 5}}}, 3: {{{1}, {3}}, {{1}, {4}}, {{2}, {5}}}} {
		for rank, heads := range want {
			if got := rankPolicy(&p, g, rank, ranks).Heads; !reflect.DeepEqual(got, heads) {
				t.Errorf("rank %d of %d: %v, not %v", rank, ranks, got, heads)
			}
		}
	}
}
