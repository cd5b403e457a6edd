package gpu

import (
	"encoding/binary"
	"errors"

	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/tensor"
	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/runtime/device"
	"github.com/nstf/nstf/runtime/gpu/driver"
)

// handed is host memory that rows, their experts, and what those give travel through.
type handed struct {
	pinned              *driver.Pinned
	x, chosen, share, y []byte        // of the most rows
	down                *driver.Event // behind what came down
	ids                 []int32
}

// A hand is rows of a block whose experts the processor computes: x, chosen and share go down
// to it, and the sum comes up to y.
type hand struct {
	block, rows, width, topK int
	x, chosen, share, y      hip.Address
}

// makeHanded takes the host memory of rows whose experts lie apart.
func (e *Engine) makeHanded() (err error) {
	if e.experts == nil {
		return nil
	}
	row, choice := handedSizes(e.plan.Rows, e.shape.handed, e.shape.routed)
	if e.handed.pinned, err = e.m.device.Pinned(int64(2*row + 2*choice)); err != nil {
		return err
	}
	rest := e.handed.pinned.Bytes()
	take := func(n int) (b []byte) {
		b, rest = rest[:n:n], rest[n:]
		return b
	}
	e.handed.x, e.handed.y, e.handed.chosen, e.handed.share = take(row), take(row), take(choice), take(choice)
	e.handed.down, err = e.m.device.Event()
	return err
}

// handedSizes are the bytes of rows that an expert reads so many numbers of, and of their choices.
func handedSizes(rows, width, topK int) (row, choice int) { return 4 * rows * width, 4 * rows * topK }

// HandedBytes returns the pinned memory that an engine takes which hands so many rows to the
// experts of blocks.
func HandedBytes(g *graph.Graph, of device.Blocks, rows int) int64 {
	s := shapeOf(g, device.Whole(g), &Options{Apart: of})
	row, choice := handedSizes(rows, s.handed, s.routed)
	return 2 * int64(row+choice)
}

// Handed returns the pinned memory of rows whose experts the processor computes.
func (e *Engine) Handed() int64 {
	if e.handed.pinned == nil {
		return 0
	}
	return int64(len(e.handed.pinned.Bytes()))
}

func (h *handed) free() error {
	var errs []error
	if h.down != nil {
		errs = append(errs, h.down.Free())
	}
	if h.pinned != nil {
		errs = append(errs, h.pinned.Free())
	}
	*h = handed{}
	return errors.Join(errs...)
}

// handDown has the processor compute the chosen experts of n rows of x, whose sum comes up to
// y. What is listed before handUp runs meanwhile.
func (w *walk) handDown(b *block, n int, x, y hip.Address) {
	s := w.s
	w.hand = &hand{block: w.e.span.Lo + b.index, rows: n, width: int(b.MoE.Latent(w.e.g.Width)), topK: int(b.MoE.TopK),
		x: x, chosen: s.chosen, share: s.share, y: y}
	w.cut(cut{down: w.hand})
}

// handUp waits for the sum.
func (w *walk) handUp() { w.cut(cut{up: w.hand}) }

// computeHand has the processor compute the experts of a hand that is on its way down.
func (e *Engine) computeHand(h *hand) error {
	if err := e.handed.down.Wait(); err != nil {
		return err
	}
	d := &e.handed
	x, ok := tensor.Float32s(d.x[:4*h.rows*h.width])
	share, _ := tensor.Float32s(d.share[:4*h.rows*h.topK])
	y, _ := tensor.Float32s(d.y[:4*h.rows*h.width])
	if !ok {
		return errors.New("gpu: the machine's order of bytes is not the device's")
	}
	d.ids = sized(d.ids, h.rows*h.topK)
	for i := range d.ids {
		d.ids[i] = int32(binary.LittleEndian.Uint32(d.chosen[4*i:]))
	}
	r := &device.Routed{Prompt: e.pass.many, X: x, Chosen: d.ids, Share: share, Sum: y}
	if !r.Prompt {
		r.Elsewhere = e.blocks[h.block-e.span.Lo].here.some
	}
	return e.experts.Sum(h.block, r)
}
