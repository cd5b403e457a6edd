package driver

import (
	"fmt"
	"runtime"
	"unsafe"

	"github.com/nstf/nstf/kernels/hip"
)

// A dialect is what one family of libraries numbers and means in its own way.
type dialect struct {
	api             hip.API
	symbols         []symbol
	compilerSymbols []compilerSymbol
	success         string
	attributes      attributes
	faults          map[int32]meaning
}

// attributes are the numbers by which a device is asked; 0: it cannot be.
type attributes struct {
	threads, units, physicalUnits, lds, ldsOptin, wave, cooperative int32
	clock, memoryClock, busWidth, l2, integrated                    int32
	major, minor                                                    int32
}

// Values that HIP and CUDA share.
const (
	streamNonBlocking = 1
	eventNoTiming     = 2
	captureRelaxed    = 2 // other threads and allocations do not disturb it

	attributeMaxThreads = 0
	attributeStaticLDS  = 1
	attributeLocal      = 3
	attributeRegisters  = 4
	attributeDynamicLDS = 8

	codeUnsupported        = 801
	codeCaptureUnsupported = 900
)

// call runs a C function that returns a code. Pointers to Go memory have to be
// converted in the argument list itself: //go:uintptrescapes then keeps what
// they point to alive and in place.
//
//go:uintptrescapes
func call(p *proc, args ...uintptr) int32 {
	return int32(foreign(p.addr, args...))
}

// text reads the C string at an address that a library returned.
func text(address uintptr) string {
	if address == 0 {
		return ""
	}
	// The address is not Go's: reading it through a pointer variable keeps vet
	// from taking it for a converted integer.
	p := *(*unsafe.Pointer)(unsafe.Pointer(&address))
	var b []byte
	for len(b) < 1<<16 {
		c := *(*byte)(unsafe.Add(p, len(b)))
		if c == 0 {
			break
		}
		b = append(b, c)
	}
	return string(b)
}

// view returns the n bytes of foreign memory at an address.
func view(address uintptr, n int64) []byte {
	p := *(*unsafe.Pointer)(unsafe.Pointer(&address))
	return unsafe.Slice((*byte)(p), n)
}

// errorName returns the name of a code, "" where the library does not tell.
func (l *Library) errorName(code int32) string {
	p := &l.procs.errorName
	if !p.ok() {
		return ""
	}
	if l.dialect.api == hip.HIP {
		return text(foreign(p.addr, uintptr(code)))
	}
	var name uintptr
	if call(p, uintptr(code), uintptr(unsafe.Pointer(&name))) != 0 {
		return ""
	}
	return text(name)
}

// initialize prepares the library. It makes no context on a device.
func (l *Library) initialize() error {
	var v int32 // first: it says the version even where nothing else works
	if call(&l.procs.runtimeVersion, uintptr(unsafe.Pointer(&v))) == 0 {
		l.version = int(v)
	}
	if code := call(&l.procs.init, 0); code != 0 {
		return l.fault(&l.procs.init, "", code)
	}
	if l.version == 0 {
		return &Error{Call: l.procs.runtimeVersion.name, Detail: "the library does not tell its version", Hint: hintReport}
	}
	return nil
}

// Count returns the number of devices.
func (l *Library) Count() (int, error) {
	var n int32
	if code := call(&l.procs.count, uintptr(unsafe.Pointer(&n))); code != 0 {
		return 0, l.fault(&l.procs.count, "", code)
	}
	return int(n), nil
}

// enter makes a device current on this thread and returns the context that
// leave gives back: 0 for HIP, which has none.
func (l *Library) enter(ordinal int, device int32) (context uintptr, err error) {
	p := &l.procs
	if l.dialect.api == hip.HIP {
		if code := call(&p.setDevice, uintptr(ordinal)); code != 0 {
			return 0, l.fault(&p.setDevice, fmt.Sprintf("device %d", ordinal), code)
		}
		return 0, nil
	}
	if code := call(&p.contextRetain, uintptr(unsafe.Pointer(&context)), uintptr(device)); code != 0 {
		return 0, l.fault(&p.contextRetain, fmt.Sprintf("device %d", ordinal), code)
	}
	if code := call(&p.setContext, context); code != 0 {
		return 0, l.fault(&p.setContext, fmt.Sprintf("device %d", ordinal), code)
	}
	return context, nil
}

// leave gives up what enter took.
func (l *Library) leave(device int32) {
	if l.procs.contextRelease.ok() {
		call(&l.procs.contextRelease, uintptr(device))
	}
}

// attribute asks a device for a number; 0 where it does not tell.
func (l *Library) attribute(device, id int32) int {
	var v int32
	if id == 0 || call(&l.procs.attribute, uintptr(unsafe.Pointer(&v)), uintptr(id), uintptr(device)) != 0 {
		return 0
	}
	return int(v)
}

// arch asks a device for its architecture as the compiler spells it.
func (l *Library) arch(ordinal int, device int32) (string, error) {
	if l.dialect.api == hip.CUDA {
		a := l.dialect.attributes
		return fmt.Sprintf("sm_%d%d", l.attribute(device, a.major), l.attribute(device, a.minor)), nil
	}
	p := &l.procs.properties
	b := make([]byte, propertiesSize)
	code := call(p, uintptr(unsafe.Pointer(&b[0])), uintptr(ordinal))
	runtime.KeepAlive(b)
	if code != 0 {
		return "", l.fault(p, fmt.Sprintf("device %d", ordinal), code)
	}
	if a := archOf(b, p.name); a != "" {
		return a, nil
	}
	return "", &Error{Call: p.name, Detail: "the device's properties name no architecture (gfx...)", Hint: hintReport}
}
