package driver

import (
	"fmt"
	goruntime "runtime"
	"strings"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/nstf/nstf/kernels/hip"
)

// A compiler is hiprtc or NVRTC, loaded. It needs no device, and its functions
// may be called from any thread.
type compiler struct {
	procs   compilerProcs
	api     hip.API
	path    string
	version string // 9.0 (hiprtc numbers itself), 12.9
	archs   []int  // NVRTC: what it knows, ascending; nil: it does not tell
}

func (l *Library) loadCompiler(o Options) {
	names := compilerNames(o, l.major(), l.path)
	l.open("compiler", names, func(handle uintptr, path string) error {
		c := &compiler{api: o.API, path: path}
		missing := bindCompiler(&c.procs, l.dialect.compilerSymbols, func(s string) uintptr { return lookup(handle, s) })
		if len(missing) > 0 {
			return fmt.Errorf("it lacks %s", strings.Join(missing, ", "))
		}
		var major, minor int32
		if code := call(&c.procs.version, uintptr(unsafe.Pointer(&major)), uintptr(unsafe.Pointer(&minor))); code != 0 {
			return c.fault(&c.procs.version, "", code)
		}
		c.version = fmt.Sprintf("%d.%d", major, minor)
		c.archs = c.knownArchs()
		l.compiler = c
		return nil
	})
}

// knownArchs asks NVRTC which compute capabilities it compiles for.
func (c *compiler) knownArchs() []int {
	var n int32
	if !c.procs.archCount.ok() || !c.procs.archs.ok() || call(&c.procs.archCount, uintptr(unsafe.Pointer(&n))) != 0 || n <= 0 {
		return nil
	}
	list := make([]int32, n)
	if call(&c.procs.archs, uintptr(unsafe.Pointer(&list[0]))) != 0 {
		return nil
	}
	archs := make([]int, n)
	for i, a := range list {
		archs[i] = int(a)
	}
	return archs
}

// fault makes an Error of a compiler's code.
func (c *compiler) fault(p *proc, about string, code int32) *Error {
	e := &Error{Call: p.name, Code: int(code)}
	if about != "" {
		e.Call += " of " + about
	}
	if c.procs.errorName.ok() {
		r, _, _ := purego.SyscallN(c.procs.errorName.addr, uintptr(code))
		e.Name = text(r)
	}
	return e
}

// Options returns everything that the compiler is told about a unit on a
// target: the part of a cache's key that is neither source nor version.
func (l *Library) Options(u hip.Unit, t hip.Target) []string {
	return append(u.Options(t), l.targetOptions(t)...)
}

// targetOptions names the target as the compiler spells it.
func (l *Library) targetOptions(t hip.Target) []string {
	if l.dialect.api == hip.HIP {
		return []string{"--offload-arch=" + t.Arch, "-std=c++17", "-O3"}
	}
	arch, _ := l.compiler.cudaArch(t)
	return []string{"--gpu-architecture=" + arch, "-std=c++17"}
}

// Compile makes machine code of a unit for a target, which need not be one of
// a device here. Several goroutines may compile at once. The log holds the
// compiler's warnings, or why it failed.
func (l *Library) Compile(u hip.Unit, t hip.Target) (code []byte, log string, err error) {
	return l.CompileSource(u.File, u.Source(), u.Options(t), t)
}

// CompileSource compiles a text of any origin. The options are the caller's;
// the target's are added.
func (l *Library) CompileSource(name, source string, options []string, t hip.Target) (code []byte, log string, err error) {
	c := l.compiler
	if c == nil {
		return nil, "", &Error{Call: "compiling " + name, Detail: l.tellTried("compiler"), Hint: compilerHint(l.dialect.api), Reason: ErrMissing}
	}
	options = append(options[:len(options):len(options)], l.targetOptions(t)...)
	var program uintptr
	text, file := cBytes(source), cBytes(name)
	create := &c.procs.create
	r := call(create, uintptr(unsafe.Pointer(&program)), uintptr(unsafe.Pointer(&text[0])), uintptr(unsafe.Pointer(&file[0])), 0, 0, 0)
	if r != 0 {
		return nil, "", c.fault(create, name, r)
	}
	defer call(&c.procs.destroy, uintptr(unsafe.Pointer(&program)))

	r = c.compile(program, options)
	log = strings.TrimSpace(string(c.fetch(&c.procs.logSize, &c.procs.log, program)))
	if r != 0 {
		e := c.fault(&c.procs.compile, name+" with "+strings.Join(options, " "), r)
		e.Detail, e.Reason = "\n"+log, ErrCompile
		e.Hint = "please report this with the output of `nstf doctor --json`"
		return nil, log, e
	}
	size, get := &c.procs.codeSize, &c.procs.code
	if l.dialect.api == hip.CUDA {
		if _, exact := c.cudaArch(t); !exact {
			size, get = &c.procs.ptxSize, &c.procs.ptx
		}
	}
	code = c.fetchRaw(size, get, program)
	if len(code) == 0 {
		return nil, log, &Error{Call: get.name + " of " + name, Detail: "the compiler gave no code"}
	}
	return code, log, nil
}

// compile runs the compiler over a program.
func (c *compiler) compile(program uintptr, options []string) int32 {
	texts := make([][]byte, len(options))
	pointers := make([]*byte, len(options))
	for i, o := range options {
		texts[i] = cBytes(o)
		pointers[i] = &texts[i][0]
	}
	r := call(&c.procs.compile, program, uintptr(len(options)), uintptr(unsafe.Pointer(unsafe.SliceData(pointers))))
	goruntime.KeepAlive(texts)
	return r
}

// fetch reads a text of a program.
func (c *compiler) fetch(size, get *proc, program uintptr) []byte {
	b := c.fetchRaw(size, get, program)
	for len(b) > 0 && b[len(b)-1] == 0 {
		b = b[:len(b)-1]
	}
	return b
}

// fetchRaw reads bytes of a program whose size is asked for first; nil where
// either call fails.
func (c *compiler) fetchRaw(size, get *proc, program uintptr) []byte {
	var n uint64 // size_t
	if !size.ok() || !get.ok() || call(size, program, uintptr(unsafe.Pointer(&n))) != 0 || n == 0 || n > 1<<30 {
		return nil
	}
	b := make([]byte, n)
	if call(get, program, uintptr(unsafe.Pointer(&b[0]))) != 0 {
		return nil
	}
	return b
}

// cBytes returns a text with a NUL at its end.
func cBytes(s string) []byte { return append([]byte(s), 0) }

func compilerHint(api hip.API) string {
	if api == hip.HIP {
		return "install hiprtc (docs/gpu.md names the package), or give a folder of kernels built ahead"
	}
	return "install NVRTC of the driver's CUDA version or older: `pip install nvidia-cuda-nvrtc`, or CUDA's runtime packages"
}
