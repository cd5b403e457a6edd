package gpu

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/runtime/gpu/driver"
	"github.com/nstf/nstf/runtime/gpu/kernelcache"
)

// A machine is an opened device with the stream that passes run on and the
// kernels that were made ready for it.
type machine struct {
	device    *driver.Device
	stream    *driver.Stream
	target    hip.Target
	cache     kernelcache.Cache
	mu        sync.Mutex // of what follows
	modules   map[hip.Unit]*driver.Module
	functions map[kernel]*driver.Function
}

// A kernel is a function of a unit.
type kernel struct {
	unit   hip.Unit
	symbol string
}

// An operation of kernels/hip: it knows the launches that carry it out.
type operation interface {
	Calls(t hip.Target) []hip.Call
}

// openMachine finds the device that is asked for.
func openMachine(o *Options) (*machine, error) {
	lib, err := driver.Load(driver.Options{API: o.API, Paths: o.Libraries})
	if missing(err) {
		return nil, &MissingError{err}
	}
	if err != nil {
		return nil, err
	}
	n, err := lib.Count()
	if missing(err) {
		return nil, &MissingError{err}
	}
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, &MissingError{fmt.Errorf("%s sees no device", o.API)}
	}
	device, err := lib.Open(o.Ordinal)
	if err != nil {
		return nil, err
	}
	m := &machine{device: device, target: device.Properties().Target, modules: map[hip.Unit]*driver.Module{}, functions: map[kernel]*driver.Function{}}
	if m.cache.Dir = o.Kernels; o.Kernels != "" {
		m.cache.Ahead = []string{o.Kernels} // where the user puts what doctor --build-kernels made
	}
	if c := lib.Compiler(); c != nil {
		m.cache.Compiler = c
	}
	if m.stream, err = device.Stream(); err != nil {
		device.Close()
		return nil, err
	}
	return m, nil
}

// missing reports whether an error says that there is no library or, where there
// is one, that it sees no device: both number that 100, and HIP 101 too.
func missing(err error) bool {
	var e *driver.Error
	return errors.Is(err, driver.ErrMissing) || errors.As(err, &e) && (e.Code == 100 || e.Code == 101)
}

// close gives everything back that belongs to the device.
func (m *machine) close() error { return m.device.Close() }

// compile makes units ready: from the folder of compiled kernels, or now.
func (m *machine) compile(units []hip.Unit, o *Options) error {
	step := func(done, total int64) {
		if o.Progress != nil {
			o.Progress("compiling kernels", done, total)
		}
	}
	r, err := m.cache.Get(context.Background(), m.target, units, step)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for u, code := range r.Code {
		if m.modules[u] != nil {
			continue
		}
		if m.modules[u], err = m.device.Load(code); err != nil {
			return err
		}
	}
	return nil
}

// function returns the kernel of a call, which is compiled now where it was
// not before.
func (m *machine) function(c *hip.Call) (*driver.Function, error) {
	k := kernel{c.Unit, c.Symbol}
	m.mu.Lock()
	f, module := m.functions[k], m.modules[c.Unit]
	m.mu.Unlock()
	if f != nil {
		return f, nil
	}
	if module == nil {
		if err := m.compile([]hip.Unit{c.Unit}, &Options{}); err != nil {
			return nil, err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	f, err := m.modules[c.Unit].Function(c.Symbol)
	if err == nil {
		m.functions[k] = f
	}
	return f, err
}

// prepare finds the kernels of calls.
func (m *machine) prepare(calls []hip.Call) error {
	for i := range calls {
		if _, err := m.function(&calls[i]); err != nil {
			return err
		}
	}
	return nil
}

// launch queues calls in order.
func (m *machine) launch(calls []hip.Call) error { return m.launchOn(m.stream, calls) }

func (m *machine) launchOn(s *driver.Stream, calls []hip.Call) error {
	for i := range calls {
		f, err := m.function(&calls[i])
		if err != nil {
			return err
		}
		if err := s.Launch(f, calls[i]); err != nil {
			return err
		}
	}
	return nil
}

// alloc returns a buffer of at least n bytes.
func (m *machine) alloc(n int64) (driver.Buffer, error) { return m.device.Alloc(max(n, align)) }
