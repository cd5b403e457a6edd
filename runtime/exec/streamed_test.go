package exec

import (
	"strings"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/runtime/gpu"
	"github.com/nstf/nstf/runtime/place"
)

// A layout says of no experts that their weights come for prompts where they cannot: it counts the
// blocks of those that can, and where there are none says that, even if it is told otherwise by hand.
func TestPromptsOfLayout(t *testing.T) {
	s := shape{d: 64, heads: 4, kv: 2, dim: 16, inner: 96, norm: graph.RMSNorm}
	g := s.graph(func(g *graph.Graph) { s.moe(g, 0, 8, 2, true); s.moe(g, 1, 8, 2, true) })
	whole, _ := fillWeights(t, g, "f32", 7)
	card := place.Request{Kind: place.HIP}
	for _, c := range []struct {
		formed  []int // blocks whose experts are of a form
		stream  float64
		blocks  int
		streams bool
		says    string
	}{
		{nil, 1e15, 2, true, "for prompts their weights come to hip:0: "},
		{[]int{1}, 1e15, 1, true, "for prompts the weights of 1 of them come to hip:0: "},
		{nil, 1e-3, 2, false, "and longer for no rows"},
		{[]int{0, 1}, 1e15, 0, false, "for prompts the processor multiplies too: their weights cannot come to hip:0"},
	} {
		formed := map[string]bool{}
		for _, b := range c.formed {
			formed[g.Blocks[b].MoE.Down.Weight] = true
		}
		source := func(name string) formats.Tensor {
			x := whole(name)
			if formed[name] {
				x.Form = "pieced"
			}
			return x
		}
		for _, byHand := range []bool{false, true} {
			sites := &sites{all: []place.Site{{Device: card, Speed: place.Speed{Stream: c.stream}}, {Device: place.Request{Kind: place.CPU}, Speed: place.Speed{Read: 1e10}}}, opened: []*gpu.Device{nil, nil}}
			l := &place.Layout{Rows: 64, Ranges: []place.Range{{Device: card, Hi: len(g.Blocks), HostExperts: []int{0, 1}, Streams: byHand}}}
			o := Options{Threads: 1}
			if byHand {
				o.Device.Ranges = l.Ranges
			}
			if err := sites.prompts(g, source, &o, l); err != nil {
				t.Fatal(err)
			}
			r := &l.Ranges[0]
			if got := sites.streams(g, source); got != (c.blocks > 0) {
				t.Errorf("%v of a form: some may come: %t", c.formed, got)
			}
			if (r.Prompts == nil) != (c.blocks == 0) || r.Prompts != nil && r.Prompts.Blocks != c.blocks {
				t.Errorf("%v of a form: %+v, want %d blocks", c.formed, r.Prompts, c.blocks)
			}
			if want := c.streams || byHand && c.blocks > 0; r.Streams != want || !strings.Contains(r.PromptWay(), c.says) {
				t.Errorf("%v of a form, by hand %t: streams %t, %s", c.formed, byHand, r.Streams, r.PromptWay())
			}
		}
	}
}
