package driver

import (
	"fmt"
	goruntime "runtime"
	"unsafe"
)

// A caller holds what C reads and purego passes on: on the heap, which does
// not move, and in place, so that a call allocates nothing. It belongs to a
// device's thread.
type caller struct {
	args     [12]uintptr
	values   [maxArgs]uint64  // a kernel's arguments
	pointers [maxArgs]uintptr // their addresses
	config   launchConfig
	early    launchAttribute
}

// A launchConfig is CUlaunchConfig, a launchAttribute CUlaunchAttribute.
type launchConfig struct {
	grid, block [3]uint32
	lds         uint32
	stream      uintptr
	attributes  uintptr
	count       uint32
}

type launchAttribute struct {
	id    uint32
	value [8]uint64
}

// earlyAttribute is CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION.
const earlyAttribute = 6

func newCaller() *caller {
	c := &caller{}
	for i := range c.values {
		c.pointers[i] = uintptr(unsafe.Pointer(&c.values[i]))
	}
	return c
}

// call runs a C function that returns a code. Its arguments are no addresses
// of Go's, but for those of the caller itself.
func (c *caller) call(p *proc, args ...uintptr) int32 {
	n := copy(c.args[:], args)
	return int32(foreign(p.addr, c.args[:n]...))
}

// execute carries out a command on the device's thread. Work of a stream that
// has failed is left out until somebody has been told.
func (d *Device) execute(c *command) error {
	if e := d.lost.Load(); e != nil && !c.always {
		return e
	}
	if c.kind == kindDo {
		return c.do()
	}
	s := c.stream
	if c.kind == kindBarrier {
		return nil
	}
	if c.kind == kindAfter && s.failed.Load() == nil {
		s.failed.Store(c.event.failed.Load())
	}
	first := s.failed.Load()
	if c.kind == kindRecord {
		c.event.failed.Store(first)
	}
	if first != nil {
		return nil
	}
	if err := d.perform(c); err != nil {
		first := err // not err: that would be on the heap for each success, too
		s.failed.Store(&first)
		if c.kind == kindRecord {
			c.event.failed.Store(&first)
		}
	}
	return nil
}

// perform carries out queued work of a stream.
func (d *Device) perform(c *command) error {
	p, stream := &d.lib.procs, c.stream.handle
	switch c.kind {
	case kindLaunch:
		return d.launch(c)
	case kindCopy:
		return d.check(&p.copy, "", d.calls.call(&p.copy, uintptr(c.dst), uintptr(c.src), uintptr(c.len), stream))
	case kindFill:
		return d.check(&p.fill, "", d.calls.call(&p.fill, uintptr(c.dst), uintptr(c.src), uintptr(c.len), stream))
	case kindUpload:
		return d.check(&p.upload, "", d.calls.call(&p.upload, uintptr(c.dst), uintptr(c.src), uintptr(c.len), stream))
	case kindDownload:
		return d.check(&p.download, "", d.calls.call(&p.download, uintptr(c.src), uintptr(c.dst), uintptr(c.len), stream))
	case kindRecord:
		return d.check(&p.eventRecord, "", d.calls.call(&p.eventRecord, c.event.handle, stream))
	case kindAfter:
		return d.check(&p.streamAfter, "", d.calls.call(&p.streamAfter, stream, c.event.handle, 0))
	case kindReplay:
		return d.replay(c)
	}
	panic("driver: unknown command")
}

// launch starts a kernel.
func (d *Device) launch(c *command) error {
	p, f := &d.lib.procs, c.fn
	if err := f.allowLDS(c.lds); err != nil {
		return err
	}
	copy(d.calls.values[:c.n], c.args[:c.n])
	params := uintptr(unsafe.Pointer(&d.calls.pointers))
	var code int32
	q := &p.launch
	if c.early && p.launchConfigured.ok() {
		q = &p.launchConfigured
		code = d.launchEarly(c, params)
	} else if c.cooperative {
		q = &p.launchCooperative
		code = d.calls.call(q, f.handle, uintptr(c.grid[0]), uintptr(c.grid[1]), uintptr(c.grid[2]),
			uintptr(c.block[0]), uintptr(c.block[1]), uintptr(c.block[2]), uintptr(c.lds), c.stream.handle, params)
	} else {
		code = d.calls.call(q, f.handle, uintptr(c.grid[0]), uintptr(c.grid[1]), uintptr(c.grid[2]),
			uintptr(c.block[0]), uintptr(c.block[1]), uintptr(c.block[2]), uintptr(c.lds), c.stream.handle, params, 0)
	}
	if code == 0 {
		return nil
	}
	return d.check(q, fmt.Sprintf("%s, grid %v, block %v, %d bytes of LDS", f.symbol, c.grid, c.block, c.lds), code)
}

// launchEarly starts a kernel that may begin before those in front of it have
// ended.
func (d *Device) launchEarly(c *command, params uintptr) int32 {
	l := d.calls
	l.early = launchAttribute{id: earlyAttribute, value: [8]uint64{1}}
	l.config = launchConfig{grid: c.grid, block: c.block, lds: c.lds, stream: c.stream.handle,
		attributes: uintptr(unsafe.Pointer(&l.early)), count: 1}
	return l.call(&d.lib.procs.launchConfigured, uintptr(unsafe.Pointer(&l.config)), c.fn.handle, params, 0)
}

// A waiter waits for a stream or an event on the caller's own thread: a wait
// hands nothing to the device, and coming back to the caller from another thread
// would cost more than a short wait itself. args is what C is given, in place.
type waiter struct {
	device *Device
	proc   *proc
	args   [1]uintptr
}

// wait waits until everything that was queued so far has been handed on, and
// then for the stream or event.
func (w *waiter) wait() error {
	d := w.device
	if err := d.refused(); err != nil {
		return err
	}
	if d.worker.patience > 0 || !d.worker.drained() {
		if err := d.barrier(); err != nil {
			return err
		}
	}
	if d.worker.patience > 0 { // a caller that is stuck in C cannot give up
		return d.do(func() error { return d.check(w.proc, "", call(w.proc, w.args[0])) })
	}
	if d.closed.Load() {
		return closedError()
	}
	goruntime.LockOSThread()
	code := d.join()
	if code == 0 {
		code = int32(foreign(w.proc.addr, w.args[:]...))
	}
	goruntime.UnlockOSThread()
	return d.check(w.proc, "", code)
}

// barrier waits until everything that was queued so far has been handed on.
func (d *Device) barrier() error {
	c, err := d.worker.reserve(d.refused)
	if err != nil {
		return err
	}
	c.kind, c.stream = kindBarrier, nil
	return d.finish(c)
}

// join makes the device's context current on this thread, where the API has
// contexts.
func (d *Device) join() int32 {
	if d.context[0] == 0 {
		return 0
	}
	return int32(foreign(d.lib.procs.setContext.addr, d.context[:]...))
}
