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

// What a link says of a block it says of a module's own block, not of the graph's block of
// that number.
func TestLinksOfModules(t *testing.T) {
	block := func(heads int64) graph.Block {
		return graph.Block{Attn: &graph.Attention{KVHeads: heads}, Latent: &graph.Latent{Heads: heads}}
	}
	g := &graph.Graph{Blocks: []graph.Block{block(1), block(2)}, MTP: []graph.MTP{{Block: block(3)}, {Block: block(4)}}}
	rows := func(g *graph.Graph, i int) []int64 { return []int64{g.Blocks[i].Attn.KVHeads} }
	link := Link{Foreign: "layers.#.x", Parts: []string{"blocks.#.x"}, Order: rows, Columns: rows, Shape: rows,
		Written: func(g *graph.Graph, i int) func(float32) float32 {
			return func(x float32) float32 { return x * float32(g.Blocks[i].Attn.KVHeads) }
		}}
	for what, links := range map[string][]Link{"behind": behindLinks(nil, []Link{link}), "beside": besideLinks(nil, []Link{link}, "layers.#.", "mtp.#.")} {
		l := links[0]
		for i := range g.MTP {
			want := int64(3 + i)
			if l.Order(g, i)[0] != want || l.Columns(g, i)[0] != want || l.Shape(g, i)[0] != want || l.Written(g, i)(1) != float32(want) || l.LatentOf(g, i).Heads != want {
				t.Errorf("%s, module %d: rows of %v, columns %v, shape %v, values %v, latent %+v", what, i, l.Order(g, i), l.Columns(g, i), l.Shape(g, i), l.Written(g, i)(1), l.LatentOf(g, i))
			}
		}
	}
}
