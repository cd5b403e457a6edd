package gpu

import (
	"encoding/binary"
	"errors"
	"math"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/runtime/device"
	"github.com/nstf/nstf/runtime/gpu/driver"
)

var _ device.Gatherer = (*Engine)(nil)

// A gathering sums up what linears read, on the device. An input that several matrices
// share counts once, as the first of them reads it.
type gathering struct {
	buffer driver.Buffer
	inputs []gathered
}

// A gathered is the sums of one input.
type gathered struct {
	device.Input
	all, experts gathers
	rows         int64       // of all, that were queued
	counts       hip.Address // i64 [Experts]
}

// gathers is where sums lie, of one or of several one behind the other.
type gathers struct {
	n              int
	sums, top, odd hip.Address
}

// place lays out n sums of k features.
func (g *gathers) place(n, k int, a *arena) {
	*g = gathers{n, a.take(8 * int64(n) * hip.GramSums(k)), a.floats(n * k), a.ints(n)}
}

// Gather implements device.Gatherer.
func (e *Engine) Gather(inputs []device.Input) error {
	if !e.exact {
		return errors.New("gpu: sums are gathered of float32")
	}
	if err := e.forget(); err != nil {
		return err
	}
	lay := func(g *gathering, a *arena) {
		g.inputs = make([]gathered, len(inputs))
		for i, in := range inputs {
			o := &g.inputs[i]
			o.Input = in
			o.all.place(1, in.K, a)
			if in.Experts > 0 {
				o.experts.place(in.Experts, in.K, a)
				o.counts = a.take(8 * int64(in.Experts))
			}
		}
	}
	var g gathering
	var size arena
	lay(&g, &size)
	if size.used == 0 {
		e.gathering = &g
		return nil
	}
	var err error
	if g.buffer, err = e.m.alloc(size.used); err != nil {
		return err
	}
	lay(&g, &arena{base: g.buffer.Address})
	e.gathering = &g
	return e.m.stream.Fill(g.buffer, 0)
}

// GatherBytes returns what Gather places for inputs.
func GatherBytes(inputs []device.Input) (n int64) {
	for i := range inputs {
		n += inputs[i].Bytes() + int64(8+inputs[i].Experts)*align
	}
	return n
}

// forget ends a gathering.
func (e *Engine) forget() error {
	if e.gathering == nil || e.gathering.buffer.Size == 0 {
		e.gathering = nil
		return nil
	}
	b := e.gathering.buffer
	e.gathering = nil
	return e.m.free(b)
}

// Sums implements device.Gatherer.
func (e *Engine) Sums(f func(*device.Sums) error) error {
	for i := range e.gathering.inputs {
		if err := e.sumsOf(&e.gathering.inputs[i], f); err != nil {
			return errors.Join(err, e.forget())
		}
	}
	return e.forget()
}

func (e *Engine) sumsOf(in *gathered, f func(*device.Sums) error) error {
	give := func(g *gathers, at, expert int, tokens int64) error {
		s := &device.Sums{Input: in.Name, Expert: expert, Tokens: tokens, Squares: make([]float64, hip.GramSums(in.K)), AbsMax: make([]float32, in.K)}
		if err := e.doubles(s.Squares, g.sums+hip.Address(8*int64(at)*hip.GramSums(in.K))); err != nil {
			return err
		}
		if err := e.download(s.AbsMax, g.top+hip.Address(4*at*in.K)); err != nil {
			return err
		}
		odd, err := e.m.fetch(driver.Buffer{Address: g.odd + hip.Address(4*at), Size: 4})
		if err != nil {
			return err
		}
		s.Odd = binary.LittleEndian.Uint32(odd) != 0
		return f(s)
	}
	if err := give(&in.all, 0, -1, in.rows); err != nil || in.Experts == 0 {
		return err
	}
	raw, err := e.m.fetch(driver.Buffer{Address: in.counts, Size: 8 * int64(in.Experts)})
	if err != nil {
		return err
	}
	counts := make([]int64, in.Experts)
	if _, err := binary.Decode(raw, binary.LittleEndian, counts); err != nil {
		return err
	}
	for i, n := range counts {
		if n == 0 {
			continue
		}
		if err := give(&in.experts, i, i, n); err != nil {
			return err
		}
	}
	return nil
}

// doubles downloads numbers in float64.
func (e *Engine) doubles(dst []float64, from hip.Address) error {
	for len(dst) > 0 {
		n := min(len(dst), pinnedBytes/8)
		raw, err := e.m.fetch(driver.Buffer{Address: from, Size: 8 * int64(n)})
		if err != nil {
			return err
		}
		for i := range n {
			dst[i] = math.Float64frombits(binary.LittleEndian.Uint64(raw[8*i:]))
		}
		dst, from = dst[n:], from+hip.Address(8*n)
	}
	return nil
}

// gathers reports whether what matrices read is to be seen: nothing is normalised,
// rounded or turned on the way then.
func (w *walk) gathers() bool { return w.e.gathering != nil }

// gather sums up t rows that matrices read.
func (w *walk) gather(t int, in source, ms ...*matrix) {
	for _, m := range ms {
		if g := w.gathered(m, false); g != nil {
			w.readable(in, m)
			g.rows += int64(t)
			w.do(&hip.Gram{T: t, K: g.K, X: in.x, Sums: g.all.sums, Top: g.all.top, Odd: g.all.odd})
		}
	}
}

// gatherSlots is gather for a stack of experts, of which so many slots share a row.
func (w *walk) gatherSlots(slots, share int, in source, m *matrix) {
	if g := w.gathered(m, false); g != nil {
		w.readable(in, m)
		g.rows += int64(slots)
		for range share { // each slot counts
			w.do(&hip.Gram{T: slots / share, K: g.K, X: in.x, Sums: g.all.sums, Top: g.all.top, Odd: g.all.odd})
		}
	}
	if g := w.gathered(m, true); g != nil {
		w.readable(in, m)
		w.do(&hip.Gram{T: slots, K: g.K, X: in.x, Sums: g.experts.sums, Top: g.experts.top, Odd: g.experts.odd,
			First: w.list.first, Slots: w.list.slots, Stack: g.experts.n, Share: share, Counts: g.counts})
	}
}

// gatherHead sums up what the head reads of wanted rows, which follow one another.
func (w *walk) gatherHead(wanted []int) {
	if !w.gathers() || len(wanted) == 0 {
		return
	}
	e, lo, rows := w.e, wanted[0], w.t
	if w.t = wanted[len(wanted)-1] + 1; w.t-lo != len(wanted) {
		w.err = errors.New("gpu: sums of what the head reads are of rows that follow one another")
		return
	}
	in := w.input(lo, e.norm, e.head)
	w.gather(w.t-lo, in, e.head)
	w.t = rows
}

// gathered returns the sums that a matrix's input goes to, nil where there are none or
// another matrix of the pass was first. Experts have their own.
func (w *walk) gathered(m *matrix, experts bool) *gathered {
	if w.e.gathering == nil || m == nil || m.input == "" {
		return nil
	}
	for i := range w.e.gathering.inputs {
		g := &w.e.gathering.inputs[i]
		key := seen{m.input, experts}
		if g.Name != m.input || experts && g.Experts == 0 || w.seen[key] {
			continue
		}
		if w.seen == nil {
			w.seen = map[seen]bool{}
		}
		w.seen[key] = true
		return g
	}
	return nil
}

// A seen is an input that a walk has gathered.
type seen struct {
	input   string
	experts bool
}

// readable notes where what a matrix reads is not there as it is.
func (w *walk) readable(in source, m *matrix) {
	if in.x == 0 || in.norm.Weight != 0 {
		w.err = formats.Unsupportedf("", m.tensor.Name, "summing up on a GPU what is not brought to memory there")
	}
}
