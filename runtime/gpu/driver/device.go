package driver

import (
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/nstf/nstf/kernels/hip"
)

// A Device is an opened GPU. Its methods may be called from any goroutine.
type Device struct {
	lib        *Library
	ordinal    int
	handle     int32
	context    [1]uintptr // CUDA's primary context
	worker     *worker
	properties Properties
	lost       atomic.Pointer[Error]
	closing    sync.Once
	closed     atomic.Bool
	calls      *caller // used by the device's thread only

	mu      sync.Mutex
	buffers map[hip.Address]int64
	shared  map[hip.Address]uintptr // those of the host's memory, with their address there
	pinned  map[*Pinned]struct{}
	streams map[*Stream]struct{}
	modules map[*Module]struct{}
	graphs  map[*Graph]struct{}
	events  map[*Event]struct{}
	staging *staging
}

// Properties say what a device is.
type Properties struct {
	Name        string     `json:"name"`
	Target      hip.Target `json:"target"`
	Ordinal     int        `json:"ordinal"`
	BusID       string     `json:"bus_id"`     // 0000:03:00.0, "" where unknown
	Memory      int64      `json:"memory"`     // bytes
	L2          int64      `json:"l2"`         // bytes
	Threads     int        `json:"threads"`    // of a block, at most
	Units       int        `json:"units"`      // physical compute units, where the runtime counts pairs of them as one in Target
	Clock       int        `json:"clock_khz"`  // of the compute units, at most
	MemoryClock int        `json:"memory_khz"` // at most
	BusWidth    int        `json:"bus_bits"`
	Integrated  bool       `json:"integrated"`  // shares the processor's memory
	Cooperative bool       `json:"cooperative"` // blocks may wait for one another
	Graphs      bool       `json:"graphs"`      // the runtime captures; else Replay repeats the launches
	Runtime     string     `json:"runtime"`
}

// Open makes a device ready.
func (l *Library) Open(ordinal int) (*Device, error) {
	n, err := l.Count()
	if err != nil {
		return nil, err
	}
	if ordinal < 0 || ordinal >= n {
		e := &Error{Call: fmt.Sprintf("opening %s:%d", l.dialect.api, ordinal), Detail: fmt.Sprintf("there are %d, counted from 0", n), Hint: "`nstf doctor` lists the devices", Reason: ErrNoDevice}
		if n == 0 {
			e.Detail, e.Hint = "", l.adviceNoDevice()
		}
		return nil, e
	}
	d := &Device{
		lib: l, ordinal: ordinal, worker: newWorker(l.patience), buffers: map[hip.Address]int64{}, shared: map[hip.Address]uintptr{}, pinned: map[*Pinned]struct{}{},
		streams: map[*Stream]struct{}{}, modules: map[*Module]struct{}{}, graphs: map[*Graph]struct{}{}, events: map[*Event]struct{}{},
	}
	d.calls = newCaller()
	d.staging = newStaging(d)
	go d.worker.run(d.execute)
	if err := d.do(d.enter); err != nil {
		d.worker.stop()
		return nil, err
	}
	return d, nil
}

// enter makes the device current on its thread and learns what it is.
func (d *Device) enter() error {
	l, p := d.lib, &d.lib.procs
	if code := call(&p.device, uintptr(unsafe.Pointer(&d.handle)), uintptr(d.ordinal)); code != 0 {
		return l.fault(&p.device, fmt.Sprint(d.ordinal), code)
	}
	var err error
	if d.context[0], err = l.enter(d.ordinal, d.handle); err != nil {
		return err
	}
	d.properties, err = l.properties(d.ordinal, d.handle)
	if err != nil {
		l.leave(d.handle)
	}
	return err
}

// properties asks what a device is.
func (l *Library) properties(ordinal int, handle int32) (Properties, error) {
	p, a := &l.procs, &l.dialect.attributes
	name := make([]byte, 256)
	if code := call(&p.name, uintptr(unsafe.Pointer(&name[0])), uintptr(len(name)), uintptr(handle)); code != 0 {
		return Properties{}, l.fault(&p.name, fmt.Sprintf("device %d", ordinal), code)
	}
	arch, err := l.arch(ordinal, handle)
	if err != nil {
		return Properties{}, err
	}
	var memory uint64
	if code := call(&p.totalMemory, uintptr(unsafe.Pointer(&memory)), uintptr(handle)); code != 0 {
		return Properties{}, l.fault(&p.totalMemory, fmt.Sprintf("device %d", ordinal), code)
	}
	r := Properties{
		Name: cString(name), Ordinal: ordinal, Memory: int64(memory), L2: int64(l.attribute(handle, a.l2)),
		Target: hip.Target{API: l.dialect.api, Arch: arch, Wave: l.attribute(handle, a.wave), Units: l.attribute(handle, a.units),
			LDS: max(l.attribute(handle, a.lds), l.attribute(handle, a.ldsOptin))},
		Threads: l.attribute(handle, a.threads), Units: l.attribute(handle, a.physicalUnits),
		Clock: l.attribute(handle, a.clock), MemoryClock: l.attribute(handle, a.memoryClock), BusWidth: l.attribute(handle, a.busWidth),
		Integrated:  l.attribute(handle, a.integrated) != 0,
		Cooperative: l.attribute(handle, a.cooperative) != 0 && p.launchCooperative.ok(),
		Graphs:      l.graphs(),
		Runtime:     l.Version(),
	}
	r.Units = max(r.Units, r.Target.Units)
	if p.busID.ok() {
		id := make([]byte, 32)
		if call(&p.busID, uintptr(unsafe.Pointer(&id[0])), uintptr(len(id)), uintptr(handle)) == 0 {
			r.BusID = cString(id)
		}
	}
	return r, nil
}

// Properties returns what the device is.
func (d *Device) Properties() Properties { return d.properties }

// Library returns the library that opened the device.
func (d *Device) Library() *Library { return d.lib }

// String returns the device as --device takes it: hip:0.
func (d *Device) String() string { return fmt.Sprintf("%s:%d", d.lib.dialect.api, d.ordinal) }

// refused returns why no command is accepted any more.
func (d *Device) refused() error {
	if e := d.lost.Load(); e != nil {
		return e
	}
	return nil
}

// do has the device's thread call f and waits for it.
func (d *Device) do(f func() error) error {
	c, err := d.worker.reserve(d.refused)
	if err != nil {
		return err
	}
	c.kind, c.stream, c.do = kindDo, nil, f
	return d.finish(c)
}

// finish commits a command and waits for its result.
func (d *Device) finish(c *command) error {
	t := d.worker.ticket()
	c.done = t
	d.worker.commit()
	err, answered := d.worker.await(t)
	if !answered {
		err = d.lose(&Error{Call: d.String(), Detail: fmt.Sprintf("no answer for %v", d.worker.patience), Hint: hintLost, Reason: ErrLost})
	}
	return err
}

// lose marks the device as unusable. The first reason stays.
func (d *Device) lose(e *Error) error {
	d.lost.CompareAndSwap(nil, e)
	d.worker.mu.Lock()
	d.worker.room.Broadcast()
	d.worker.mu.Unlock()
	return d.lost.Load()
}

// check turns a code into an error and notices a lost device. It runs on the
// device's thread.
func (d *Device) check(p *proc, about string, code int32) error {
	if code == 0 {
		return nil
	}
	e := d.lib.fault(p, about, code)
	if e.Reason == ErrLost {
		return d.lose(e)
	}
	return e
}

// Close frees everything that belongs to the device and ends its thread. It
// waits for work in flight, unless the device is lost, and may be called
// again.
func (d *Device) Close() error {
	d.closing.Do(func() {
		d.closed.Store(true)
		c, err := d.worker.reserve(func() error { return nil })
		if err != nil {
			return
		}
		c.kind, c.stream, c.always, c.do = kindDo, nil, true, d.release
		t := d.worker.ticket()
		c.done = t
		d.worker.commit()
		d.worker.stop()
		if e := d.lost.Load(); e != nil && d.worker.patience > 0 {
			d.worker.await(t) // the thread may be stuck for good
			return
		}
		<-t.result
		<-d.worker.exited
	})
	return nil
}

// release gives back all that the device holds. Errors mean nothing here: a
// lost device answers every call with one.
func (d *Device) release() error {
	p := &d.lib.procs
	d.mu.Lock()
	defer d.mu.Unlock()
	for s := range d.streams {
		call(&p.streamWait, s.handle)
	}
	for g := range d.graphs {
		g.destroy()
	}
	for e := range d.events {
		call(&p.eventDestroy, e.handle)
	}
	for s := range d.streams {
		call(&p.streamDestroy, s.handle)
	}
	for m := range d.modules {
		call(&p.moduleUnload, m.handle)
	}
	for address := range d.buffers {
		if host, ok := d.shared[address]; ok {
			call(&p.pinnedFree, host)
		} else {
			call(&p.free, uintptr(address))
		}
	}
	for h := range d.pinned {
		call(&p.pinnedFree, h.address)
		h.bytes = nil
	}
	d.lib.leave(d.handle)
	return nil
}
