package driver

import (
	"fmt"
	"unsafe"
)

// A caller holds what C reads and purego passes on: on the heap, which does
// not move, and in place, so that a call allocates nothing. It belongs to a
// device's thread.
type caller struct {
	args     [12]uintptr
	values   [maxArgs]uint64  // a kernel's arguments
	pointers [maxArgs]uintptr // their addresses
}

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
	if c.kind == kindWait {
		err := s.err
		s.err = nil
		p := &d.lib.procs.streamWait
		if e := d.check(p, "", d.calls.call(p, s.handle)); err == nil {
			err = e
		}
		return err
	}
	if s.err == nil {
		s.err = d.perform(c)
	}
	return s.err
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
	if c.cooperative {
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
