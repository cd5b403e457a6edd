package gpu

import (
	"github.com/nstf/nstf/runtime/device"
	"github.com/nstf/nstf/runtime/gpu/driver"
)

var _ device.Meter = (*Engine)(nil)

// Name implements device.Meter.
func (e *Engine) Name() string { return e.plan.Device }

// copyBytes is how much CopyRate copies: many times any cache.
const copyBytes = 1 << 30

// CopyRate implements device.Meter.
func (e *Engine) CopyRate() (rate float64, err error) {
	free, _, err := e.m.device.Memory()
	if err != nil {
		return 0, err
	}
	n := min(copyBytes, free/4)
	from, err := e.m.alloc(n)
	if err != nil {
		return 0, err
	}
	defer e.m.free(from)
	to, err := e.m.alloc(n)
	if err != nil {
		return 0, err
	}
	defer e.m.free(to)
	copies := func(times int) error {
		for range times {
			if err := e.m.stream.Copy(to, from, n); err != nil {
				return err
			}
		}
		return nil
	}
	if err := copies(2); err != nil { // what was just allocated is slower at first
		return 0, err
	}
	const times = 10
	ms, err := e.timed(func() error { return copies(times) })
	return float64(2*times*n) / (ms / 1e3), err
}

// timed returns the milliseconds that work takes on the device.
func (e *Engine) timed(queue func() error) (float64, error) {
	var at [2]*driver.Event
	for i := range at {
		var err error
		if at[i], err = e.m.device.Event(); err != nil {
			return 0, err
		}
		defer at[i].Free()
		if i == 1 {
			if err := queue(); err != nil {
				return 0, err
			}
		}
		if err := e.m.stream.Record(at[i]); err != nil {
			return 0, err
		}
	}
	return at[1].Since(at[0])
}
