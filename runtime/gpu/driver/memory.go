package driver

import (
	"fmt"
	"unsafe"

	"github.com/nstf/nstf/kernels/hip"
)

// A Buffer is a range of bytes in a device's memory.
type Buffer struct {
	Address hip.Address
	Size    int64
}

// At returns n bytes from an offset on. It panics where they do not lie in
// the buffer, like an index of a slice.
func (b Buffer) At(offset, n int64) Buffer {
	if offset < 0 || n < 0 || offset > b.Size || n > b.Size-offset {
		panic(fmt.Sprintf("driver: %d bytes at %d of a buffer of %d", n, offset, b.Size))
	}
	return Buffer{b.Address + hip.Address(offset), n}
}

// Memory returns how much of the device's memory is free and how much there
// is, in bytes.
func (d *Device) Memory() (free, total int64, err error) {
	err = d.do(func() error {
		p := &d.lib.procs.freeMemory
		var f, t uint64
		if err := d.check(p, d.String(), call(p, uintptr(unsafe.Pointer(&f)), uintptr(unsafe.Pointer(&t)))); err != nil {
			return err
		}
		free, total = int64(f), int64(t)
		return nil
	})
	return free, total, err
}

// Alloc returns n bytes, aligned to at least 256. Their contents are
// undefined. ErrMemory is why it fails where there is no room.
func (d *Device) Alloc(n int64) (Buffer, error) {
	return d.allocate("Alloc", n, func(address *uint64) error {
		p := &d.lib.procs.alloc
		if code := call(p, uintptr(unsafe.Pointer(address)), uintptr(n)); code != 0 {
			return d.check(p, aboutBytes(n, d), code)
		}
		return nil
	})
}

func aboutBytes(n int64, d *Device) string { return fmt.Sprintf("%d bytes on %v", n, d) }

// allocate has the device's thread take n bytes and notes them.
func (d *Device) allocate(name string, n int64, take func(address *uint64) error) (Buffer, error) {
	if n <= 0 {
		return Buffer{}, &Error{Call: name, Detail: fmt.Sprintf("%d bytes", n), Reason: ErrRange}
	}
	b := Buffer{Size: n}
	err := d.do(func() error {
		var a uint64
		if err := take(&a); err != nil {
			return err
		}
		b.Address = hip.Address(a)
		d.mu.Lock()
		d.buffers[b.Address] = n
		d.mu.Unlock()
		return nil
	})
	if err != nil {
		return Buffer{}, err
	}
	return b, nil
}

// Free gives back what Alloc or AllocShared returned. Work in flight that uses it is
// waited for by the runtime.
func (d *Device) Free(b Buffer) error {
	d.mu.Lock()
	n, ok := d.buffers[b.Address]
	host, shared := d.shared[b.Address]
	if ok && n == b.Size {
		delete(d.buffers, b.Address)
		delete(d.shared, b.Address)
	}
	d.mu.Unlock()
	if !ok || n != b.Size {
		return &Error{Call: "Free", Detail: fmt.Sprintf("%d bytes at %#x are no allocation", b.Size, uint64(b.Address)), Reason: ErrRange}
	}
	p, at := &d.lib.procs.free, uintptr(b.Address)
	if shared {
		p, at = &d.lib.procs.pinnedFree, host
	}
	return d.do(func() error { return d.check(p, fmt.Sprintf("%d bytes", n), call(p, at)) })
}

// Pinned is host memory that the device copies from and to by itself.
type Pinned struct {
	device  *Device
	address uintptr
	bytes   []byte
}

// Pinned returns n bytes of pinned host memory.
func (d *Device) Pinned(n int64) (*Pinned, error) {
	if n <= 0 {
		return nil, &Error{Call: "Pinned", Detail: fmt.Sprintf("%d bytes", n), Reason: ErrRange}
	}
	h := &Pinned{device: d}
	err := d.do(func() error {
		p := &d.lib.procs.pinnedAlloc
		if code := call(p, uintptr(unsafe.Pointer(&h.address)), uintptr(n), 0); code != 0 {
			return d.check(p, fmt.Sprintf("%d bytes", n), code)
		}
		h.bytes = view(h.address, n)
		d.mu.Lock()
		d.pinned[h] = struct{}{}
		d.mu.Unlock()
		return nil
	})
	if err != nil {
		return nil, err
	}
	return h, nil
}

// Bytes returns the memory. It is valid until Free, and until the device is
// closed; it must not be touched while a copy from or to it is in flight.
func (h *Pinned) Bytes() []byte { return h.bytes }

// Free gives the memory back.
func (h *Pinned) Free() error {
	d := h.device
	d.mu.Lock()
	_, ok := d.pinned[h]
	delete(d.pinned, h)
	d.mu.Unlock()
	if !ok {
		return nil
	}
	h.bytes = nil
	p := &d.lib.procs.pinnedFree
	return d.do(func() error { return d.check(p, "", call(p, h.address)) })
}

// isPinned reports whether bytes lie in pinned memory of the device, so that
// it may copy them by itself.
func (d *Device) isPinned(b []byte) bool {
	a := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	d.mu.Lock()
	defer d.mu.Unlock()
	for h := range d.pinned {
		if a >= h.address && a+uintptr(len(b)) <= h.address+uintptr(len(h.bytes)) {
			return true
		}
	}
	return false
}
