package arch

import (
	"slices"
	"testing"

	"github.com/nstf/nstf/formats/graph"
)

// Rows of one head of four, worked by hand: llama.cpp stores rows 0 2 1 3.
func TestRotaryOrderByHand(t *testing.T) {
	g := &graph.Graph{Blocks: []graph.Block{{Attn: &graph.Attention{Heads: 2, KVHeads: 1, HeadDim: 4}}}}
	if got := rotaryOrder(queryHeads)(g, 0); !slices.Equal(got, []int64{0, 2, 1, 3, 4, 6, 5, 7}) {
		t.Errorf("query rows %v", got)
	}
	if got := rotaryOrder(keyHeads)(g, 0); !slices.Equal(got, []int64{0, 2, 1, 3}) {
		t.Errorf("key rows %v", got)
	}
	// Two heads of two: q0 k0 v0 q1 k1 v1, from q (rows 0-3), k (4-7), v (8-11).
	g.Blocks[0].Attn = &graph.Attention{Heads: 2, KVHeads: 2, HeadDim: 2}
	if got := perHeadOrder(g, 0); !slices.Equal(got, []int64{0, 1, 4, 5, 8, 9, 2, 3, 6, 7, 10, 11}) {
		t.Errorf("fused rows %v", got)
	}
}
