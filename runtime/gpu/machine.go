package gpu

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/nstf/nstf/formats/tensor"
	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/runtime/gpu/driver"
	"github.com/nstf/nstf/runtime/gpu/kernelcache"
)

// A machine is an opened device with the stream that passes run on and the
// kernels that were made ready for it.
type machine struct {
	device     *driver.Device
	stream     *driver.Stream
	target     hip.Target
	cache      kernelcache.Cache
	used, most atomic.Int64   // bytes placed, now and at their largest
	numbers    *driver.Pinned // what numbers come down to
	keep       bool           // lanes, for the next stage
	mu         sync.Mutex     // of what follows
	modules    map[hip.Unit]*driver.Module
	functions  map[kernel]*driver.Function
	idle       []*lane
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
	lib, err := driver.Load(driver.Options{API: o.API, Paths: o.Libraries, Root: o.Root})
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
	m.mu.Lock()
	units = slices.DeleteFunc(slices.Clone(units), func(u hip.Unit) bool { return m.modules[u] != nil })
	m.mu.Unlock()
	if len(units) == 0 {
		return nil
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

// alloc returns a buffer of at least n bytes: of the device's memory, or where that
// is full and the device maps the host's, of that. The device's own comes first: newer
// kernels of Linux give what is mapped there too.
func (m *machine) alloc(n int64) (driver.Buffer, error) {
	n = max(n, align)
	b, err := m.device.Alloc(n)
	if errors.Is(err, driver.ErrMemory) {
		if free, _ := m.device.Shared(); free >= n {
			b, err = m.device.AllocShared(n)
		}
	}
	if err == nil {
		m.most.Store(max(m.most.Load(), m.used.Add(b.Size)))
	}
	return b, err
}

// free gives a buffer back.
func (m *machine) free(b driver.Buffer) error {
	m.used.Add(-b.Size)
	return m.device.Free(b)
}

// pinnedBytes is the largest piece of numbers that comes down at once.
const pinnedBytes = 64 << 20

// download waits for numbers of the device.
func (m *machine) download(dst []float32, from hip.Address) error {
	for len(dst) > 0 {
		n := min(len(dst), pinnedBytes/4)
		b, err := m.fetch(driver.Buffer{Address: from, Size: 4 * int64(n)})
		if err != nil {
			return err
		}
		numbers, ok := tensor.Float32s(b)
		if !ok {
			return errors.New("gpu: the machine's order of bytes is not the device's")
		}
		copy(dst, numbers)
		dst, from = dst[n:], from+hip.Address(4*n)
	}
	return nil
}

// fetch waits for bytes of the device, at most pinnedBytes, valid until the next fetch.
func (m *machine) fetch(from driver.Buffer) ([]byte, error) {
	if m.numbers == nil || int64(len(m.numbers.Bytes())) < from.Size {
		if m.numbers != nil {
			if err := m.numbers.Free(); err != nil {
				return nil, err
			}
		}
		var err error
		if m.numbers, err = m.device.Pinned(from.Size); err != nil {
			return nil, err
		}
	}
	b := m.numbers.Bytes()[:from.Size]
	if err := m.stream.Download(b, from); err != nil {
		return nil, err
	}
	return b, m.stream.Wait()
}
