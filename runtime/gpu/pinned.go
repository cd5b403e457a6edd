package gpu

import (
	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/runtime/gpu/driver"
	"github.com/nstf/nstf/runtime/load"
)

// Of a block whose experts lie in the processor's memory some may lie on the device too, the most used ones. Rows that
// are few go to both: the device computes the slots whose experts it has, the processor the others, at once.

// pinnedExperts are those of a block, without matrices where there are none.
type pinnedExperts struct {
	layer
	some  []bool      // [Experts]: whether each is here
	place hip.Address // i32 [Experts]: where, -1 for not
}

// Pins reports whether some of the routed experts of a mixture can lie on a device while the others do not: those that
// read hidden states as they are, dense and in a scheme of blocks.
func Pins(m *graph.MoE, tensor func(name string) formats.Tensor) bool {
	return !m.WeighInput && m.LatentDown == nil && Streams(m, tensor)
}

// pin places experts of a mixture.
func (l *layout) pin(m *graph.MoE, some []int, tensor func(name string) formats.Tensor) (p pinnedExperts, err error) {
	if !Pins(m, tensor) {
		return p, formats.Unsupportedf("", m.Up.Weight, "some of these experts on a GPU, and the others on the processor")
	}
	p.act, p.gating, p.some = load.Activation(m.Act), load.Gating(m.Gating), make([]bool, m.Experts)
	for i, x := range some {
		if x < 0 || int64(x) >= m.Experts || i > 0 && x <= some[i-1] {
			return p, formats.Errorf("", m.Up.Weight, "experts %v are not some of %d, in order", some, m.Experts)
		}
		p.some[x] = true
	}
	for _, to := range []struct {
		from *graph.Linear
		to   **matrix
	}{{m.Gate, &p.gate}, {&m.Up, &p.up}, {&m.Down, &p.down}} {
		if to.from == nil {
			continue
		}
		t, err := picked(tensor(to.from.Weight), some)
		if err != nil {
			return p, err
		}
		w := l.dense(t)
		w.N, w.experts, w.input = int(to.from.Out), len(some), to.from.Input
		if to.from.Bias != "" {
			if t, err = picked(tensor(to.from.Bias), some); err != nil {
				return p, err
			}
			w.bias = l.numbers(t, 0, 1)
		}
		*to.to = w
	}
	p.place = l.arena.ints(int(m.Experts))
	return p, l.err
}

// picked are some of a stack of experts, or of their biases.
func picked(t formats.Tensor, some []int) (formats.Tensor, error) {
	rows, _ := t.Rows()
	each := rows / t.Shape[0]
	all := make([]formats.Tensor, len(some))
	for i, x := range some {
		var err error
		if all[i], err = scheme.Slice(t, int64(x)*each, each); err != nil {
			return t, err
		}
	}
	return scheme.Concat(t.Name, append([]int64{int64(len(some))}, t.Shape[1:]...), all...)
}

// sendPlaces fills the tables of where experts lie.
func (e *Engine) sendPlaces() error {
	for i := range e.blocks {
		b := &e.blocks[i].here
		if b.up == nil {
			continue
		}
		words, n := make([]int32, len(b.some)), int32(0)
		for x, here := range b.some {
			if words[x] = -1; here {
				words[x] = n
				n++
			}
		}
		if err := upload(e, driver.Buffer{Address: b.place, Size: 4 * int64(len(words))}, words); err != nil {
			return err
		}
	}
	return nil
}

// expertsHere computes what lies here of a mixture while the processor computes the rest: the shared layer, and the
// experts that rows chose of those here.
func (w *walk) expertsHere(b *block, n int, in source, to target) {
	s, topK := w.s, int(b.MoE.TopK)
	sum := &hip.Combine{T: n, D: w.e.shape.width, TopK: topK, Parts: s.parts, Chosen: s.here, Share: s.share, Out: to.y, Some: true}
	w.sharedLayer(b, n, &in, sum)
	w.do(&hip.Here{N: n * topK, Chosen: s.chosen, Place: b.here.place, Local: s.local, Order: s.here})
	w.list = slotList{chosen: s.local}
	w.roundOnce(&in, n, n, b.here.inner()...)
	w.stacks(&b.here.layer, n, n*topK, topK, in)
	w.do(sum)
}
