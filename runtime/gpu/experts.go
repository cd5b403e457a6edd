package gpu

import (
	"encoding/binary"
	"errors"

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
	down, up                 int // calls of the walk in front of each
}

// A stretch is what a pass does between two that the host takes part in: the sum of a hand
// comes up, calls, and rows of a hand go down. Where they were captured they are a graph.
type stretch struct {
	up, down *hand // nil: none
	calls    []hip.Call
	graph    *driver.Graph
}

// makeHanded takes the host memory of rows whose experts lie apart.
func (e *Engine) makeHanded() (err error) {
	if e.experts == nil {
		return nil
	}
	row, choice := 4*e.plan.Rows*e.shape.handed, 4*e.plan.Rows*e.shape.routed
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
	s := &w.e.s
	w.hands = append(w.hands, hand{block: w.e.span.Lo + b.index, rows: n, width: int(b.MoE.Latent(w.e.g.Width)), topK: int(b.MoE.TopK),
		x: x, chosen: s.chosen, share: s.share, y: y, down: len(w.calls)})
}

// handUp waits for the sum.
func (w *walk) handUp() { w.hands[len(w.hands)-1].up = len(w.calls) }

// stretches cuts the calls where the host takes part.
func (w *walk) stretches() (list []stretch) {
	from, up := 0, (*hand)(nil)
	for i := range w.hands {
		h := &w.hands[i]
		list = append(list, stretch{up: up, calls: w.calls[from:h.down], down: h})
		if h.down < h.up {
			list = append(list, stretch{calls: w.calls[h.down:h.up]})
		}
		from, up = h.up, h
	}
	return append(list, stretch{up: up, calls: w.calls[from:]})
}

// capture makes a graph of each stretch.
func (e *Engine) capture(list []stretch) (err error) {
	for i := range list {
		if list[i].graph, err = e.m.stream.Capture(func() error { return e.queue(&list[i]) }); err != nil {
			for _, s := range list[:i] {
				err = errors.Join(err, s.graph.Free())
			}
			return err
		}
	}
	return nil
}

// play carries out a list of stretches, and computes experts between them.
func (e *Engine) play(list []stretch) error {
	for i := range list {
		s := &list[i]
		if s.up != nil {
			if err := e.computeHand(s.up); err != nil {
				return err
			}
		}
		var err error
		if s.graph != nil {
			err = e.m.stream.Replay(s.graph)
		} else {
			err = e.queue(s)
		}
		if err == nil && s.down != nil {
			err = e.m.stream.Record(e.handed.down)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// queue queues a stretch.
func (e *Engine) queue(s *stretch) error {
	if h := s.up; h != nil {
		n := 4 * h.rows * h.width
		if err := e.m.stream.Upload(driver.Buffer{Address: h.y, Size: int64(n)}, e.handed.y[:n]); err != nil {
			return err
		}
	}
	if err := e.m.launch(s.calls); err != nil || s.down == nil {
		return err
	}
	h := s.down
	down := func(to []byte, from hip.Address, n int) error {
		return e.m.stream.Download(to[:4*n], driver.Buffer{Address: from, Size: int64(4 * n)})
	}
	return errors.Join(down(e.handed.x, h.x, h.rows*h.width), down(e.handed.chosen, h.chosen, h.rows*h.topK), down(e.handed.share, h.share, h.rows*h.topK))
}

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
	return e.experts.Sum(h.block, &device.Routed{Prompt: e.pass.many, X: x, Chosen: d.ids, Share: share, Sum: y})
}
