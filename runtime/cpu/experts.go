package cpu

import (
	"fmt"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/runtime/device"
	"github.com/nstf/nstf/runtime/load"
)

// An expertsEngine computes the routed experts of blocks for stages of other devices: the part
// of an [Engine] that does so, with the same arithmetic.
type expertsEngine struct {
	*Engine
	of map[int]*block
}

var _ device.Experts = (*expertsEngine)(nil)

// NewExperts opens the routed experts of blocks of a checked graph, and no other tensor, with room
// for so many rows at once. Of the options, Threads, Level, Exact, Pin and Tiles count. Errors name
// the tensor.
func NewExperts(g *graph.Graph, of device.Blocks, tensor func(name string) formats.Tensor, rows int, o Options) (device.Experts, error) {
	e, err := newEngine(g, device.Span{}, &o)
	if err != nil {
		return nil, err
	}
	w, err := load.Experts(g, of, tensor, e.loader(o.Exact))
	if err != nil {
		return nil, err
	}
	x := &expertsEngine{e, map[int]*block{}}
	for i := range g.Blocks {
		if of[i] && g.Blocks[i].MoE != nil {
			b := &block{}
			b.openExperts(w, &g.Blocks[i])
			x.of[i] = b
		}
	}
	if err := e.start(&o); err != nil {
		return nil, err
	}
	e.s.fitExperts(expertWidths(g, of), rows)
	return x, nil
}

// expertWidths returns the most numbers of a row that experts of blocks read, and that lie between
// their matrices.
func expertWidths(g *graph.Graph, of device.Blocks) (w [2]int) {
	for i := range g.Blocks {
		if m := g.Blocks[i].MoE; of[i] && m != nil {
			w[0], w[1] = max(w[0], int(m.Latent(g.Width))), max(w[1], int(m.Up.Out))
		}
	}
	return w
}

// ExpertRoom returns the bytes that NewExperts takes for so many rows. Beside them, rows of one
// expert are rounded to bytes, in a quarter of what they take here.
func ExpertRoom(g *graph.Graph, of device.Blocks, rows int) int64 {
	w := expertWidths(g, of)
	return 4 * 2 * int64(rows) * int64(w[0]+w[1])
}

// Sum implements device.Experts.
func (x *expertsEngine) Sum(index int, r *device.Routed) error {
	b := x.of[index]
	if b == nil {
		return fmt.Errorf("cpu: no experts of block %d", index)
	}
	e, topK := x.Engine, int(b.MoE.TopK)
	t := len(r.Chosen) / topK
	for _, c := range r.Chosen {
		if c < 0 || int(c) >= len(b.experts) {
			return fmt.Errorf("cpu: expert %d of block %d, which has %d", c, index, len(b.experts))
		}
	}
	e.pass.rows, e.pass.many = t, r.Prompt || t > x.FewRows()
	e.s.fitExperts([2]int{int(b.MoE.Latent(e.g.Width)), int(b.MoE.Up.Out)}, t)
	if r.Elsewhere != nil && len(r.Elsewhere) != len(b.experts) {
		return fmt.Errorf("cpu: of %d experts of block %d some are elsewhere, which has %d", len(r.Elsewhere), index, len(b.experts))
	}
	e.pass.routes.block, e.pass.routes.chosen, e.pass.routes.share, e.pass.routes.elsewhere = b, r.Chosen, r.Share, r.Elsewhere
	clear(r.Sum)
	e.experts(b, r.X, r.Sum)
	e.pass.routes.chosen, e.pass.routes.share, e.pass.routes.elsewhere = nil, nil, nil // they are the caller's
	return nil
}

// ExpertBytes returns the bytes of the routed experts of blocks.
func ExpertBytes(g *graph.Graph, of device.Blocks, tensor func(name string) formats.Tensor) (n int64) {
	for i := range g.Blocks {
		if !of[i] {
			continue
		}
		_, experts := load.Parts(g, i, true)
		for _, p := range experts {
			for _, name := range []string{p.Linear.Weight, p.Linear.Bias} {
				if name != "" {
					t := tensor(name)
					n += t.Size()
				}
			}
		}
	}
	return n
}
