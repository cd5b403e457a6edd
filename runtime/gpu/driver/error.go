package driver

import (
	"errors"
	"fmt"

	"github.com/nstf/nstf/kernels/hip"
)

// Reasons that callers can ask for with errors.Is.
var (
	// ErrMissing is why a library or a function that is needed was not found.
	ErrMissing = errors.New("not found")
	// ErrNoDevice is why nothing was opened.
	ErrNoDevice = errors.New("no device")
	// ErrLost is why a device cannot be used any more in this process.
	ErrLost = errors.New("device lost")
	// ErrMemory is why an allocation failed.
	ErrMemory = errors.New("out of memory")
	// ErrClosed is why a call on a closed device failed.
	ErrClosed = errors.New("device is closed")
	// ErrCompile is why a kernel's source was refused; the log is in the Detail.
	ErrCompile = errors.New("the kernel does not compile")
	// ErrPeer is why a device does not reach another's memory.
	ErrPeer = errors.New("no peer access")
	// ErrRange is why a copy was refused before it began.
	ErrRange = errors.New("out of range")
)

// An Error is a failed call of a vendor's library, or what made it impossible.
type Error struct {
	Call   string // hipModuleLaunchKernel, and what it was about
	Code   int    // the library's code; 0 where no call was made
	Name   string // the code's name: hipErrorOutOfMemory
	Detail string // what else is known: the compiler's log, names that were tried
	Hint   string // what the user can do, or ""
	Reason error  // one of the Err values above, or nil
}

// Error implements error.
func (e *Error) Error() string {
	text := e.Call
	switch {
	case e.Name != "":
		text += fmt.Sprintf(": %s (%d)", e.Name, e.Code)
	case e.Code != 0:
		text += fmt.Sprintf(": error %d", e.Code)
	case e.Reason != nil:
		text += ": " + e.Reason.Error()
	}
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	return text
}

// Unwrap returns the reason.
func (e *Error) Unwrap() error { return e.Reason }

// fault makes an Error of a code that a function returned.
func (l *Library) fault(p *proc, about string, code int32) *Error {
	e := &Error{Call: p.name, Code: int(code), Name: l.errorName(code), Hint: hintReport}
	if about != "" {
		e.Call += " of " + about
	}
	if k, ok := l.dialect.faults[code]; ok {
		e.Reason, e.Hint = k.reason, k.hint
	}
	if e.Reason == ErrNoDevice {
		e.Hint = l.adviceNoDevice()
	}
	return e
}

// A meaning is what a code says to the user.
type meaning struct {
	reason error
	hint   string
}

const (
	hintMemory  = "close other programs that use the GPU, or ask for less: a shorter context, a smaller model, fewer layers on the GPU"
	hintLost    = "start the program again; if it happens again, `nstf doctor` says what to report"
	hintTarget  = "the code was built for another GPU: remove the cache of compiled kernels, or update the driver"
	hintDriver  = "the driver is older than the runtime, or absent: update it; `nstf doctor` shows what was found"
	hintReport  = "please report this with the output of `nstf doctor --json`"
	hintPeer    = "each GPU computes its share from the others' memory: without that, share the model by its layers (--split layers); what may be in the way is an IOMMU that isolates the cards, ACS of a PCIe switch, or a BIOS without large BARs"
	hintCapture = "this runtime cannot record that call in a graph"
)

// adviceNoDevice says why a library may see no device.
func (l *Library) adviceNoDevice() string {
	if l.dialect.api == hip.CUDA {
		return "`nvidia-smi` should list a GPU; if it does not, install or repair NVIDIA's driver"
	}
	if a := Advice(Nodes("/", OpenNode)); a != "" {
		return a
	}
	return "this runtime knows none of the GPUs here; `nstf doctor` shows what it found, and on Linux whether /dev/kfd and /dev/dri may be opened"
}
