package gpu

import (
	"errors"
	"fmt"

	"github.com/nstf/nstf/formats/tensor"
	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/runtime/device"
	"github.com/nstf/nstf/runtime/gpu/driver"
)

// A pass is the batch whose hidden states the work space holds.
type pass struct {
	rows, from int
	state      *state
}

// A graphKey names a captured list of launches.
type graphKey struct {
	what   string
	rows   int
	lo, hi int
}

// Forward implements device.Backend.
func (e *Engine) Forward(b *device.Batch) error {
	rows := b.Rows()
	if rows == 0 || rows > e.plan.Rows {
		return fmt.Errorf("gpu: a batch of %d rows", rows)
	}
	for i := range b.Segments {
		s := &b.Segments[i]
		c, ok := s.Cache.(*kv)
		if !ok || c.e != e {
			return fmt.Errorf("gpu: the cache of segment %d is a %T", i, s.Cache)
		}
		if err := c.reserve(c.len + int64(len(s.Tokens))); err != nil {
			return err
		}
	}
	for i := range b.Segments { // growing may have moved what was sent
		c := b.Segments[i].Cache.(*kv)
		if err := errors.Join(c.send(), c.turn(b.Segments[i].Length)); err != nil {
			return err
		}
	}
	if err := e.begin(b, rows); err != nil {
		return err
	}
	key := graphKey{what: "forward", rows: rows, lo: b.From}
	err := e.run(key, rows <= fewRows, func(w *walk) {
		w.forward()
		w.flush(b.From)
	})
	if err != nil {
		return err
	}
	for i := range b.Segments {
		b.Segments[i].Cache.(*kv).len += int64(len(b.Segments[i].Tokens))
	}
	return nil
}

// begin tells the device which rows come.
func (e *Engine) begin(b *device.Batch, rows int) error {
	e.pass = pass{rows: rows, from: b.From, state: &e.s.many}
	if rows <= fewRows {
		e.pass.state = &e.s.few
	}
	n := e.pass.state.capacity
	words := make([]int32, 3*n)
	row := 0
	for i := range b.Segments {
		c := b.Segments[i].Cache.(*kv)
		for j, id := range b.Segments[i].Tokens {
			words[row], words[n+row], words[2*n+row] = id, int32(c.len)+int32(j), c.held.slot
			row++
		}
	}
	return upload(e, driver.Buffer{Address: e.pass.state.tokens, Size: e.pass.state.bytes()}, words)
}

// run launches what list puts into a walk over the pass; few rows by way of a
// graph, which is captured the first time.
func (e *Engine) run(key graphKey, captured bool, list func(w *walk)) error {
	if g := e.graphs[key]; g != nil {
		return e.m.stream.Replay(g)
	}
	w := &walk{e: e, t: e.pass.rows, from: e.pass.from, state: e.pass.state}
	list(w)
	if !captured {
		return e.m.launch(w.calls)
	}
	if err := e.m.prepare(w.calls); err != nil { // nothing may be loaded during the capture
		return err
	}
	g, err := e.m.stream.Capture(func() error { return e.m.launch(w.calls) })
	if err != nil {
		return err
	}
	e.graphs[key] = g
	return e.m.stream.Replay(g)
}

// Logits implements device.Backend.
func (e *Engine) Logits(lo, hi int, dst []float32) error {
	if lo < e.pass.from || hi > e.pass.rows || lo >= hi || len(dst) != (hi-lo)*e.shape.vocab {
		panic(fmt.Sprintf("gpu: logits of rows %d to %d into %d numbers", lo, hi, len(dst)))
	}
	for lo < hi {
		n := min(hi-lo, e.s.logitRows)
		if err := e.logits(lo, lo+n, dst[:n*e.shape.vocab]); err != nil {
			return err
		}
		lo, dst = lo+n, dst[n*e.shape.vocab:]
	}
	return nil
}

// logits is Logits of rows for which there is room at once.
func (e *Engine) logits(lo, hi int, dst []float32) error {
	key := graphKey{what: "logits", rows: e.pass.rows, lo: lo, hi: hi}
	err := e.run(key, e.pass.rows <= fewRows, func(w *walk) { w.head(lo, hi) })
	if err != nil {
		return err
	}
	size := 4 * int64(len(dst))
	if e.down == nil || int64(len(e.down.Bytes())) < size {
		if e.down != nil {
			if err := e.down.Free(); err != nil {
				return err
			}
		}
		if e.down, err = e.m.device.Pinned(size); err != nil {
			return err
		}
	}
	b := e.down.Bytes()[:size]
	if err := e.m.stream.Download(b, driver.Buffer{Address: e.s.logits, Size: size}); err != nil {
		return err
	}
	if err := e.m.stream.Wait(); err != nil {
		return err
	}
	numbers, ok := tensor.Float32s(b)
	if !ok {
		return errors.New("gpu: the machine's order of bytes is not the device's")
	}
	copy(dst, numbers)
	return nil
}

// through lists a pass through all blocks, of which the rows from one on are
// wanted. Operations are kept beside their launches if asked.
func (e *Engine) through(rows, from int, keep bool) *walk {
	w := &walk{e: e, t: rows, from: from, state: &e.s.few, keep: keep}
	if !few(rows) {
		w.state = &e.s.many
	}
	w.forward()
	return w
}

// units lists what has to be compiled for single tokens and for prompts, of
// which all logits are wanted, or the last, or none. Passes of a few rows find
// what they lack when they come.
func (e *Engine) units() []hip.Unit {
	seen := map[hip.Unit]bool{}
	var units []hip.Unit
	for _, p := range []pass{{rows: 1}, {rows: e.plan.Rows}, {rows: e.plan.Rows, from: e.plan.Rows - 1}, {rows: e.plan.Rows, from: e.plan.Rows}} {
		w := e.through(p.rows, p.from, false)
		w.flush(p.from)
		if n := min(p.rows-p.from, e.s.logitRows); n > 0 {
			w.head(p.from, p.from+n)
		}
		for i := range w.calls {
			if u := w.calls[i].Unit; !seen[u] {
				seen[u] = true
				units = append(units, u)
			}
		}
	}
	return units
}
