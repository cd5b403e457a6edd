package driver

import (
	"fmt"
	"unsafe"

	"github.com/nstf/nstf/kernels/hip"
)

// codePeerEnabled is what both APIs say where a device reaches the other already.
const codePeerEnabled = 704

// Reach has kernels of the device read and write another's memory, by its addresses.
// It may be called again. ErrPeer is why it fails where the machine does not let them.
func (d *Device) Reach(other *Device) error {
	about := fmt.Sprintf("%v to the memory of %v", d, other)
	refuse := func(detail string) error {
		return &Error{Call: about, Detail: detail, Hint: hintPeer, Reason: ErrPeer}
	}
	ask, enable := &d.lib.procs.peerAsk, &d.lib.procs.peerEnable
	switch {
	case d == other:
		return nil
	case d.lib.dialect.api != other.lib.dialect.api:
		return refuse("they have different drivers")
	case !ask.ok() || !enable.ok():
		return refuse("this runtime has no functions for it")
	}
	return d.do(func() error {
		var can int32
		if code := call(ask, uintptr(unsafe.Pointer(&can)), uintptr(d.handle), uintptr(other.handle)); code != 0 {
			return d.check(ask, about, code)
		}
		if can == 0 {
			return refuse("")
		}
		peer := uintptr(other.handle)
		if d.lib.dialect.api == hip.CUDA {
			peer = other.context[0]
		}
		if code := call(enable, peer, 0); code != codePeerEnabled {
			return d.check(enable, about, code)
		}
		return nil
	})
}

// Reaches reports whether the runtime says that kernels of a device may read and write another's
// memory.
func (l *Library) Reaches(ordinal, other int) bool {
	p := &l.procs
	var from, to, can int32
	return p.peerAsk.ok() && call(&p.device, uintptr(unsafe.Pointer(&from)), uintptr(ordinal)) == 0 && call(&p.device, uintptr(unsafe.Pointer(&to)), uintptr(other)) == 0 &&
		call(&p.peerAsk, uintptr(unsafe.Pointer(&can)), uintptr(from), uintptr(to)) == 0 && can != 0
}

// Kinds of memory of hipExtMallocWithFlags (hip_runtime_api.h): no cache of any device keeps
// what lies in it, or none while a kernel runs. The first is of ROCm 5.3 and later.
var fineGrained = []uintptr{3, 1} // hipDeviceMallocUncached, hipDeviceMallocFinegrained

// AllocFine is [Device.Alloc] of memory in which kernels see what kernels of other devices
// write while they run. CUDA's is all of that kind.
func (d *Device) AllocFine(n int64) (Buffer, error) {
	if d.lib.dialect.api == hip.CUDA {
		return d.Alloc(n)
	}
	return d.allocate("AllocFine", n, func(address *uint64) error {
		p := &d.lib.procs.allocFine
		if !p.ok() {
			return &Error{Call: aboutBytes(n, d), Detail: "this runtime allocates no memory that devices share", Hint: hintDriver, Reason: ErrPeer}
		}
		var code int32
		for _, flags := range fineGrained {
			if code = call(p, uintptr(unsafe.Pointer(address)), uintptr(n), flags); code == 0 {
				return nil
			}
		}
		return d.check(p, aboutBytes(n, d), code)
	})
}

// Address returns where kernels of the device find the memory: what they write there the
// host sees when a stream was waited for, and mostly before.
func (h *Pinned) Address() (hip.Address, error) {
	d := h.device
	p := &d.lib.procs.mapped
	if !p.ok() { // one range of addresses for both
		return hip.Address(h.address), nil
	}
	var a uint64
	err := d.do(func() error { return d.check(p, "", call(p, uintptr(unsafe.Pointer(&a)), h.address, 0)) })
	return hip.Address(a), err
}
