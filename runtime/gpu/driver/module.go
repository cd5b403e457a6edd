package driver

import (
	goruntime "runtime"
	"unsafe"

	"github.com/nstf/nstf/kernels/hip"
)

// A Module is machine code on a device.
type Module struct {
	device *Device
	handle uintptr
}

// A Function is a kernel of a module.
type Function struct {
	device     *Device
	handle     uintptr
	symbol     string
	attributes Attributes
	dynamicLDS uint32 // what CUDA was told to allow; used by the device's thread only
}

// Attributes say what a kernel takes of a compute unit.
type Attributes struct {
	Registers  int // of a thread; 0: unknown
	LDS        int // bytes that the code declares itself
	Spill      int // bytes of a thread that lie in memory: spills and local arrays
	MaxThreads int // of a block; 0: unknown
}

// Compile makes machine code of a unit for this device. It is
// Compiler.Compile for the device's target, on the caller's thread.
func (d *Device) Compile(u hip.Unit) (code []byte, log string, err error) {
	return d.CompileSource(u.File, u.Source(), u.Options(d.properties.Target))
}

// CompileSource is Compiler.CompileSource for the device's target.
func (d *Device) CompileSource(name, source string, options []string) (code []byte, log string, err error) {
	c := d.lib.compiler
	if c == nil {
		return nil, "", missingCompiler(d.lib.dialect.api, d.lib.tried)
	}
	return c.CompileSource(name, source, options, d.properties.Target)
}

// Load puts code on the device: a code object of HIP, a cubin, or PTX, as
// Compile made it. The code may be discarded afterwards.
func (d *Device) Load(code []byte) (*Module, error) {
	if len(code) == 0 {
		return nil, &Error{Call: "Load", Detail: "no code"}
	}
	if d.lib.dialect.api == hip.CUDA { // PTX is a text that ends in NUL
		code = append(code[:len(code):len(code)], 0)
	}
	m := &Module{device: d}
	err := d.do(func() error {
		p := &d.lib.procs.moduleLoad
		r := call(p, uintptr(unsafe.Pointer(&m.handle)), uintptr(unsafe.Pointer(&code[0])))
		goruntime.KeepAlive(code)
		if r != 0 {
			return d.check(p, "code for "+d.properties.Target.Arch, r)
		}
		d.mu.Lock()
		d.modules[m] = struct{}{}
		d.mu.Unlock()
		return nil
	})
	if err != nil {
		return nil, err
	}
	return m, nil
}

// Function finds a kernel by its symbol.
func (m *Module) Function(symbol string) (*Function, error) {
	d := m.device
	f := &Function{device: d, symbol: symbol}
	name := cBytes(symbol)
	err := d.do(func() error {
		p := &d.lib.procs.moduleFunction
		r := call(p, uintptr(unsafe.Pointer(&f.handle)), m.handle, uintptr(unsafe.Pointer(&name[0])))
		if r != 0 {
			return d.check(p, symbol, r)
		}
		f.attributes = Attributes{
			Registers: f.attribute(attributeRegisters), LDS: f.attribute(attributeStaticLDS),
			Spill: f.attribute(attributeLocal), MaxThreads: f.attribute(attributeMaxThreads),
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return f, nil
}

// attribute asks for a number, on the device's thread; 0: it is not told.
func (f *Function) attribute(id uintptr) int {
	p := &f.device.lib.procs.functionAttribute
	var v int32
	if !p.ok() || call(p, uintptr(unsafe.Pointer(&v)), id, f.handle) != 0 {
		return 0
	}
	return int(v)
}

// Symbol returns the kernel's name.
func (f *Function) Symbol() string { return f.symbol }

// Attributes returns what the kernel takes.
func (f *Function) Attributes() Attributes { return f.attributes }

// Resident returns how many blocks of so many threads and bytes of dynamic
// LDS run on one compute unit (Target.Units) at a time: what a cooperative
// launch may have. 0: the runtime does not tell.
func (f *Function) Resident(threads int, lds uint32) (int, error) {
	d := f.device
	p := &d.lib.procs.occupancy
	if !p.ok() {
		return 0, nil
	}
	var n int32
	err := d.do(func() error {
		if err := f.allowLDS(lds); err != nil {
			return err
		}
		return d.check(p, f.symbol, call(p, uintptr(unsafe.Pointer(&n)), f.handle, uintptr(threads), uintptr(lds)))
	})
	return int(n), err
}

// allowLDS asks CUDA for more dynamic shared memory than every kernel may
// have: what the code declares itself counts too. It runs on the device's thread.
func (f *Function) allowLDS(n uint32) error {
	const always = 48 << 10
	p := &f.device.lib.procs.functionSet
	if !p.ok() || int64(n)+int64(f.attributes.LDS) <= always || n <= f.dynamicLDS {
		return nil
	}
	if code := call(p, f.handle, attributeDynamicLDS, uintptr(n)); code != 0 {
		return f.device.check(p, f.symbol, code)
	}
	f.dynamicLDS = n
	return nil
}
