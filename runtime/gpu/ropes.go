package gpu

import (
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/runtime/gpu/driver"
)

// A rope is a rotary embedding's frequencies on the device. Where they depend
// on the length of the sequence, each slot has its own.
type rope struct {
	*graph.Rope
	pairs     int
	byLength  bool
	frequency hip.Address // [pairs], or [slots][pairs]
	factor    hip.Address // [1], or [slots]
}

// placeRopes gives the ropes their places, those that depend on the length one for
// each slot.
func (e *Engine) placeRopes(a *arena, slots int) {
	e.ropes = make([]rope, len(e.g.Ropes))
	for i := range e.g.Ropes {
		r := &e.g.Ropes[i]
		e.ropes[i] = rope{Rope: r, pairs: int(r.Dim / 2), byLength: r.Scaling.Kind == graph.ScaleDynamic || r.Scaling.Kind == graph.ScaleLongRope}
		n := 1
		if e.ropes[i].byLength {
			n = slots
		}
		e.ropes[i].frequency, e.ropes[i].factor = a.floats(n*e.ropes[i].pairs), a.floats(n)
	}
}

// sendRopes copies the frequencies that stand still.
func (e *Engine) sendRopes() error {
	for i := range e.ropes {
		if r := &e.ropes[i]; !r.byLength {
			if err := e.sendFrequencies(r, 0, 0); err != nil {
				return err
			}
		}
	}
	return nil
}

// sendFrequencies copies those of one row, for a sequence's length.
func (e *Engine) sendFrequencies(r *rope, slot int, length int64) error {
	freq, factor := r.Frequencies(length)
	if err := upload(e, driver.Buffer{Address: at(r.frequency, slot, r.pairs), Size: 4 * int64(r.pairs)}, freq); err != nil {
		return err
	}
	return upload(e, driver.Buffer{Address: at(r.factor, slot, 1), Size: 4}, []float32{factor})
}

// setFrequencies brings a sequence's frequencies up to date with its length.
func (s *state) setFrequencies(length int64) error {
	for i := range s.e.ropes {
		r := &s.e.ropes[i]
		if !r.byLength {
			continue
		}
		if now := r.Regime(length); s.regimes[i] != now {
			if err := s.e.sendFrequencies(r, int(s.slot), length); err != nil {
				return err
			}
			s.regimes[i] = now
		}
	}
	return nil
}

// upload copies numbers to the device. They may change when it returns.
func upload[T float32 | int32](e *Engine, dst driver.Buffer, numbers []T) error {
	e.words = bytesOf(e.words[:0], numbers)
	return e.m.stream.Upload(dst, e.words)
}
