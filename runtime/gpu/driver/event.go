package driver

import (
	"math"
	"sync/atomic"
	"unsafe"
)

// An Event is a place in a stream's work.
type Event struct {
	device *Device
	handle uintptr
	done   waiter
	failed atomic.Pointer[error] // what the stream had failed by where it was to be recorded; nil: nothing
}

// Event makes an event, which has to be recorded before it is of use.
func (d *Device) Event() (*Event, error) {
	e := &Event{device: d}
	err := d.do(func() error {
		p := &d.lib.procs.eventCreate
		if code := call(p, uintptr(unsafe.Pointer(&e.handle)), 0); code != 0 {
			return d.check(p, "", code)
		}
		e.done = waiter{d, &d.lib.procs.eventWait, [1]uintptr{e.handle}}
		d.mu.Lock()
		d.events[e] = struct{}{}
		d.mu.Unlock()
		return nil
	})
	if err != nil {
		return nil, err
	}
	return e, nil
}

// Record puts the event behind the work queued so far.
func (s *Stream) Record(e *Event) error {
	c, err := s.queue(kindRecord)
	if err != nil {
		return err
	}
	c.event = e
	s.commit(c)
	return nil
}

// After has the stream's further work wait for an event of another stream. Where that had failed, this
// one has too.
func (s *Stream) After(e *Event) error {
	c, err := s.queue(kindAfter)
	if err != nil {
		return err
	}
	c.event = e
	s.commit(c)
	return nil
}

// Wait waits until the work in front of the event is done. It returns what the stream had failed by, if
// it had, until the stream's own Wait has told it.
func (e *Event) Wait() error {
	err := e.done.wait()
	if first := e.failed.Load(); first != nil {
		return *first
	}
	return err
}

// told forgets a failure that a stream's Wait returns: events that are not recorded again stand for it no more.
func (d *Device) told(first *error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for e := range d.events {
		e.failed.CompareAndSwap(first, nil)
	}
}

// Since returns the milliseconds from an earlier event to this one. It waits
// for this one.
func (e *Event) Since(earlier *Event) (float64, error) {
	d := e.device
	if err := e.Wait(); err != nil {
		return 0, err
	}
	var ms float64
	err := d.do(func() error {
		p := &d.lib.procs
		var bits uint32
		if err := d.check(&p.eventElapsed, "", call(&p.eventElapsed, uintptr(unsafe.Pointer(&bits)), earlier.handle, e.handle)); err != nil {
			return err
		}
		ms = float64(math.Float32frombits(bits))
		return nil
	})
	return ms, err
}

// Free gives the event back.
func (e *Event) Free() error {
	d := e.device
	d.mu.Lock()
	_, ok := d.events[e]
	delete(d.events, e)
	d.mu.Unlock()
	if !ok {
		return nil
	}
	p := &d.lib.procs.eventDestroy
	return d.do(func() error { return d.check(p, "", call(p, e.handle)) })
}
