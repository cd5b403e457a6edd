package gpu

import (
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/runtime/gpu/driver"
)

// A rope is a rotary embedding's frequencies on the device. Where they depend
// on the length of the sequence, each row of the table of pages has its own.
type rope struct {
	*model.Rope
	pairs     int
	byLength  bool
	frequency hip.Address // [pairs], or [slots][pairs]
	factor    hip.Address // [1], or [slots]
}

// placeRopes gives the ropes that do not depend on the length their places.
func (e *Engine) placeRopes(a *arena) {
	e.ropes = make([]rope, len(e.g.Ropes))
	for i := range e.g.Ropes {
		r := &e.g.Ropes[i]
		e.ropes[i] = rope{Rope: r, pairs: int(r.Dim / 2), byLength: r.Scaling.Kind == model.ScaleDynamic || r.Scaling.Kind == model.ScaleLongRope}
		if !e.ropes[i].byLength {
			e.ropes[i].frequency, e.ropes[i].factor = a.floats(e.ropes[i].pairs), a.floats(1)
		}
	}
}

// placeLengths gives the others theirs, for so many rows of the table.
func (e *Engine) placeLengths(a *arena, slots int) {
	for i := range e.ropes {
		if r := &e.ropes[i]; r.byLength {
			r.frequency, r.factor = a.floats(slots*r.pairs), a.floats(slots)
		}
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

// turn brings a sequence's frequencies up to date with its length.
func (c *kv) turn(length int64) error {
	for i := range c.e.ropes {
		r := &c.e.ropes[i]
		if !r.byLength {
			continue
		}
		if now := r.Regime(length); c.regimes[i] != now {
			if err := c.e.sendFrequencies(r, int(c.held.slot), length); err != nil {
				return err
			}
			c.regimes[i] = now
		}
	}
	return nil
}

// upload copies numbers to the device. They may change when it returns.
func upload[T float32 | int32](e *Engine, dst driver.Buffer, numbers []T) error {
	e.words = bytesOf(e.words[:0], numbers)
	return e.m.stream.Upload(dst, e.words)
}
