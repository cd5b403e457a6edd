package gpu

import (
	"testing"

	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/runtime/device"
)

// TestLeast wants as many positions read in any case as make 36 Mi numbers of keys and values in
// the block that has the most for each, and what the policy says where it says something.
func TestLeast(t *testing.T) {
	g := &graph.Graph{}
	for _, heads := range []int64{2, 8} {
		g.Blocks = append(g.Blocks, graph.Block{Attn: &graph.Attention{Heads: 32, KVHeads: heads, HeadDim: 128}})
	}
	for _, c := range []struct {
		kept       cpu.KVFormats
		said, want int64
	}{
		{cpu.KVFormats{cpu.KVF16}, 0, 18432}, // 2048 a position
		{cpu.KVFormats{cpu.KVF16, cpu.KVQ4}, 0, 18432},
		{cpu.KVFormats{cpu.KVF16}, 1024, 1024},
	} {
		p := device.DefaultPolicy()
		p.Least = c.said
		f := following{policy: &p, first: []int{0, 2}, heads: 10}
		f.keep(g, device.Whole(g), c.kept)
		if f.policy.Least != c.want || p.Least != c.said {
			t.Errorf("%v: %d positions, want %d; the policy given says %d", c.kept, f.policy.Least, c.want, p.Least)
		}
	}
}
