package exec

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/stats"
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

// What a package says of its experts is what they are laid out by where nothing was learned; what is no such file names it.
func TestUsesOfPackage(t *testing.T) {
	m := &model.Model{Path: "x.nstf", Files: []model.File{{Name: "config.json"}, {Name: "nstf/experts.json", Data: (&stats.Uses{Blocks: []stats.Use{{Block: 2, Chosen: []int64{60, 0, 36, 0}}}}).Encode()}}}
	var o Options
	if err := o.findUses(m); err != nil {
		t.Fatal(err)
	}
	var nothing *learned
	if got := nothing.use(2, o.uses.Of(2, 4), 4); !slices.Equal(got, []float64{0.61, 0.01, 0.37, 0.01}) {
		t.Errorf("shares %v", got)
	}
	if got := nothing.use(1, o.uses.Of(1, 4), 4); got != nil {
		t.Errorf("shares %v of a block that nobody counted", got)
	}
	m.Files[1].Data = []byte("{}")
	var wrong *formats.FormatError
	if _, err := Layout(&model.Model{Path: m.Path, Files: m.Files, Graph: tinies()[0].graph}, Options{}); !errors.As(err, &wrong) || wrong.File != "x.nstf: nstf/experts.json" {
		t.Errorf("%v", err)
	}
}
