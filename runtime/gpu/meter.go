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
func (e *Engine) CopyRate() (rate float64, err error) { return e.m.copyRate() }

// copyRate copies memory, less of it where that is slow, and returns the bytes read and
// written in a second.
func (m *machine) copyRate() (rate float64, err error) {
	free, _, err := m.device.Memory()
	if err != nil {
		return 0, err
	}
	n := min(copyBytes, free/4)
	from, err := m.alloc(n)
	if err != nil {
		return 0, err
	}
	defer m.free(from)
	to, err := m.alloc(n)
	if err != nil {
		return 0, err
	}
	defer m.free(to)
	copies := func(n int64, times int) (float64, error) {
		ms, err := m.timed(func() error {
			for range times {
				if err := m.stream.Copy(to, from, n); err != nil {
					return err
				}
			}
			return nil
		})
		return float64(2*int64(times)*n) / (ms / 1e3), err
	}
	const few, slow = 16 << 20, 20e9                  // bytes, and bytes in a second of what is no GPU's memory
	if _, err := copies(min(n, few), 1); err != nil { // the first of all is slower
		return 0, err
	}
	if rate, err = copies(min(n, few), 1); err != nil || rate < slow {
		return rate, err
	}
	if _, err := copies(n, 2); err != nil { // what was just allocated is slower at first
		return 0, err
	}
	return copies(n, 10)
}

// timed returns the milliseconds that work takes on the device.
func (m *machine) timed(queue func() error) (float64, error) {
	var at [2]*driver.Event
	for i := range at {
		var err error
		if at[i], err = m.device.Event(); err != nil {
			return 0, err
		}
		defer at[i].Free()
		if i == 1 {
			if err := queue(); err != nil {
				return 0, err
			}
		}
		if err := m.stream.Record(at[i]); err != nil {
			return 0, err
		}
	}
	return at[1].Since(at[0])
}
