package driver

import (
	"errors"
	"fmt"
	"unsafe"
)

// A Graph is recorded work of a stream, to be repeated. Where the runtime
// captures, a replay is one call of it; elsewhere the driver repeats the
// launches itself.
type Graph struct {
	device   *Device
	exec     uintptr   // the runtime's; 0: it has none
	commands []command // what was queued, where the runtime has nothing
	freed    bool
}

// graphs reports whether the runtime captures.
func (l *Library) graphs() bool {
	p := &l.procs
	return p.captureBegin.ok() && p.captureEnd.ok() && (p.graphInstantiate.ok() || p.graphInstantiateLog.ok()) &&
		p.graphLaunch.ok() && p.graphDestroy.ok() && p.execDestroy.ok()
}

// Capture calls record and keeps the work that it queues on the stream
// instead of carrying it out. Only Launch, Copy, Fill and copies from and to
// pinned memory can be kept.
func (s *Stream) Capture(record func() error) (*Graph, error) {
	if s.recording != nil {
		return nil, captureError("Capture")
	}
	if err := s.Wait(); err != nil {
		return nil, err
	}
	d, p := s.device, &s.device.lib.procs
	g := &Graph{device: d}
	native := d.properties.Graphs
	if native {
		err := d.do(func() error { return d.check(&p.captureBegin, "", call(&p.captureBegin, s.handle, captureRelaxed)) })
		if err != nil {
			return nil, err
		}
	}
	s.recording = g
	finished := false
	defer func() {
		if !finished { // record panicked
			s.recording = nil
			_ = s.endCapture(g, native)
		}
	}()
	err := record()
	finished = true
	s.recording = nil
	if e := s.endCapture(g, native); err == nil {
		err = e
	}
	if err != nil {
		_ = g.Free()
		return nil, err
	}
	if g.exec != 0 {
		g.commands = nil
	}
	d.mu.Lock()
	d.graphs[g] = struct{}{}
	d.mu.Unlock()
	return g, nil
}

// endCapture ends what Capture began. Work that the runtime cannot capture
// leaves a graph without exec, which is replayed command by command.
func (s *Stream) endCapture(g *Graph, native bool) error {
	if !native {
		return nil
	}
	d, p := s.device, &s.device.lib.procs
	err := d.do(func() error {
		failed := s.failed.Swap(nil)
		var graph uintptr
		err := d.check(&p.captureEnd, "", call(&p.captureEnd, s.handle, uintptr(unsafe.Pointer(&graph))))
		if failed != nil {
			err = *failed
		}
		if err == nil {
			err = g.instantiate(graph)
		}
		if graph != 0 {
			call(&p.graphDestroy, graph)
		}
		return err
	})
	if e := (*Error)(nil); errors.As(err, &e) && (e.Code == codeUnsupported || e.Code == codeCaptureUnsupported) {
		return nil
	}
	return err
}

// instantiate makes a captured graph runnable, on the device's thread.
func (g *Graph) instantiate(graph uintptr) error {
	d, p := g.device, &g.device.lib.procs
	if q := &p.graphInstantiate; q.ok() {
		return d.check(q, "", call(q, uintptr(unsafe.Pointer(&g.exec)), graph, 0))
	}
	q := &p.graphInstantiateLog
	return d.check(q, "", call(q, uintptr(unsafe.Pointer(&g.exec)), graph, 0, 0, 0))
}

// Replay queues the graph's work. It does not allocate.
func (s *Stream) Replay(g *Graph) error {
	if s.recording != nil {
		return captureError("Replay")
	}
	if g.freed || g.device != s.device {
		return &Error{Call: "Replay", Detail: fmt.Sprintf("the graph was freed, or is not one of %v", s.device), Reason: ErrRange}
	}
	c, err := s.queue(kindReplay)
	if err != nil {
		return err
	}
	c.graph = g
	s.commit(c)
	return nil
}

// replay repeats a graph on the device's thread.
func (d *Device) replay(c *command) error {
	g, p := c.graph, &d.lib.procs.graphLaunch
	if g.exec != 0 {
		return d.check(p, "", d.calls.call(p, g.exec, c.stream.handle))
	}
	for i := range g.commands {
		g.commands[i].stream = c.stream
		if err := d.perform(&g.commands[i]); err != nil {
			return err
		}
	}
	return nil
}

// Free gives the graph back. No replay of it may be in flight.
func (g *Graph) Free() error {
	d := g.device
	d.mu.Lock()
	freed := g.freed
	g.freed = true
	delete(d.graphs, g)
	d.mu.Unlock()
	if freed {
		return nil
	}
	return d.do(func() error { g.destroy(); return nil })
}

// destroy gives the runtime's part back, on the device's thread.
func (g *Graph) destroy() {
	if g.exec != 0 {
		call(&g.device.lib.procs.execDestroy, g.exec)
		g.exec = 0
	}
}
