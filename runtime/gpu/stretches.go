package gpu

import (
	"errors"

	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/runtime/gpu/driver"
)

// A cut is a place in the list of launches where the host takes part: rows of a hand go down in
// front of it, or behind it the sum of one comes up, or a piece of experts has come, or its slot
// of the staging buffer is free again, or how many slots each expert of a stack has is known.
type cut struct {
	at       int // calls of the walk in front of it
	up, down *hand
	bring    *piece
	turn     int
	leave    bool
	known    int // experts
}

func (w *walk) cut(c cut) {
	c.at = len(w.calls)
	w.cuts = append(w.cuts, c)
}

// A stretch is what a pass does between two cuts: the sum of a hand comes up or a piece is waited
// for, calls, and rows of a hand go down, or the piece leaves, or it is said which experts rows chose. Where they were captured they are a
// graph.
type stretch struct {
	up, down *hand // nil: none
	bring    *piece
	turn     int
	leave    bool
	known    int
	calls    []hip.Call
	graph    *driver.Graph
}

// ready finds the kernels of calls. Ranks of a team go on when all have theirs; the first
// looks before the others, which then find what it had compiled.
func (e *Engine) ready(calls []hip.Call) error {
	if e.team == nil {
		return e.m.prepare(calls)
	}
	for _, first := range []bool{true, false} {
		var err error
		if e.first() == first {
			err = e.m.prepare(calls)
		}
		if err := e.team.meeting.wait(err); err != nil {
			return err
		}
	}
	e.team.meeting.send()
	return nil
}

// stretches cuts the calls where the host takes part.
func (w *walk) stretches() (list []stretch) {
	var s stretch
	from := 0
	for i := range w.cuts {
		c := &w.cuts[i]
		s.calls, s.down, s.leave, s.known, from = w.calls[from:c.at], c.down, c.leave, c.known, c.at
		if s.up != nil || s.bring != nil || s.down != nil || len(s.calls) > 0 {
			list = append(list, s)
		}
		s = stretch{up: c.up, bring: c.bring, turn: c.turn}
	}
	s.calls = w.calls[from:]
	return append(list, s)
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

// play carries out a list of stretches, and computes or brings experts between them.
func (e *Engine) play(list []stretch) error {
	f := e.feed(list)
	for i := range list {
		if err := e.playOne(&list[i], f); err != nil {
			return f.end(err)
		}
	}
	return f.end(nil)
}

func (e *Engine) playOne(s *stretch, f *feed) (err error) {
	switch {
	case s.up != nil:
		err = e.computeHand(s.up)
	case s.bring != nil:
		err = f.wait()
	}
	switch {
	case err != nil:
	case s.graph != nil:
		err = e.m.stream.Replay(s.graph)
	default:
		err = e.queue(s)
	}
	switch {
	case err != nil:
	case s.down != nil:
		err = e.m.stream.Record(e.handed.down)
	case s.leave:
		err = f.leave(s.turn)
	case s.known > 0:
		err = f.know()
	}
	return err
}

// queue queues a stretch.
func (e *Engine) queue(s *stretch) error {
	if h := s.up; h != nil {
		n := 4 * h.rows * h.width
		if err := e.m.stream.Upload(driver.Buffer{Address: h.y, Size: int64(n)}, e.handed.y[:n]); err != nil {
			return err
		}
	}
	if err := e.m.launch(s.calls); err != nil {
		return err
	}
	if n := int64(4 * (s.known + 1)); s.known > 0 {
		return e.m.stream.Download(e.staging.first.Bytes()[:n], driver.Buffer{Address: e.s.first, Size: n})
	}
	h := s.down
	if h == nil {
		return nil
	}
	down := func(to []byte, from hip.Address, n int) error {
		return e.m.stream.Download(to[:4*n], driver.Buffer{Address: from, Size: int64(4 * n)})
	}
	return errors.Join(down(e.handed.x, h.x, h.rows*h.width), down(e.handed.chosen, h.chosen, h.rows*h.topK), down(e.handed.share, h.share, h.rows*h.topK))
}
