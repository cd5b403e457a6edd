package driver

import (
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"github.com/nstf/nstf/kernels/hip"
)

// A Compiler is hiprtc or NVRTC, loaded. It needs no device, and may be used by
// several goroutines at once.
type Compiler struct {
	procs    compilerProcs
	api      hip.API
	path     string
	version  string
	identity string
	archs    []int    // NVRTC: the capabilities that it knows, ascending; nil: it does not tell
	targets  []string // hiprtc: the architectures that it knows; nil: it does not tell
	// serial is held by a compilation where two at once end the process: hiprtc
	// of ROCm 5.2 does that, and of 5.x none is trusted. nil: several may run.
	serial *sync.Mutex
}

// FindCompiler loads the compiler of an API where no runtime is needed: to
// build for other machines.
func FindCompiler(o Options) (*Compiler, []Attempt, error) {
	if dialectOf(o.API) == nil {
		return nil, nil, unknownAPI(o.API)
	}
	c, tried := findCompiler(o, "", 0)
	if c == nil {
		return nil, tried, missingCompiler(o.API, tried)
	}
	return c, tried, nil
}

// findCompiler looks for the compiler that fits the runtime, where one is
// given; nil where there is none.
func findCompiler(o Options, runtimePath string, cudaMajor int) (c *Compiler, tried []Attempt) {
	symbols := dialectOf(o.API).compilerSymbols
	tried = try("compiler", compilerNames(o, runtimePath, cudaMajor), symbols[0].name, func(handle uintptr, path string) error {
		found := &Compiler{api: o.API, path: path}
		missing := bindCompiler(&found.procs, symbols, func(s string) uintptr { return lookup(handle, s) })
		if len(missing) > 0 {
			return fmt.Errorf("it lacks %s", strings.Join(missing, ", "))
		}
		var major, minor int32
		if code := call(&found.procs.version, uintptr(unsafe.Pointer(&major)), uintptr(unsafe.Pointer(&minor))); code != 0 {
			return found.fault(&found.procs.version, "", code)
		}
		found.version = fmt.Sprintf("%d.%d", major, minor)
		if o.API == hip.HIP && Generation(path) == "5" {
			found.serial = new(sync.Mutex)
		}
		found.archs = found.knownArchs()
		found.targets = found.knownTargets()
		found.identity = strings.Join(append([]string{found.version, fileIdentity(path)}, found.targetOptions(hip.Target{})...), " ")
		c = found
		return nil
	})
	return c, tried
}

// fileIdentity tells one build of a library from another, as far as that can
// be had without reading 100 MB: hiprtc calls itself 9.0 in every release.
func fileIdentity(path string) string {
	s, err := os.Stat(path)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%s %d %d", filepath.Base(path), s.Size(), s.ModTime().UnixNano())
}

// API returns the family that it compiles for.
func (c *Compiler) API() hip.API { return c.api }

// Path returns its file, where the loader tells.
func (c *Compiler) Path() string { return c.path }

// Version returns its number: NVRTC's is CUDA's, hiprtc's is 9.0 throughout.
func (c *Compiler) Version() string { return c.version }

// Targets returns the architectures that hiprtc compiles for, nil where it does
// not tell.
func (c *Compiler) Targets() []string { return c.targets }

// Identity differs between any two builds of it: a part of a cache's key.
func (c *Compiler) Identity() string { return c.identity }

// knownArchs asks NVRTC which compute capabilities it compiles for.
func (c *Compiler) knownArchs() []int {
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

// knownTargets asks comgr, the library behind hiprtc, which architectures it
// compiles for; nil where it cannot be asked. hiprtc ends the process when it is
// given one that it does not know (those of ROCm 5.2, 5.7 and 6.4 do).
func (c *Compiler) knownTargets() (list []string) {
	if c.api != hip.HIP {
		return nil
	}
	handle := c.comgr()
	if handle == 0 {
		return nil
	}
	count := proc{"amd_comgr_get_isa_count", lookup(handle, "amd_comgr_get_isa_count")}
	name := proc{"amd_comgr_get_isa_name", lookup(handle, "amd_comgr_get_isa_name")}
	var n uint64 // size_t
	if !count.ok() || !name.ok() || call(&count, uintptr(unsafe.Pointer(&n))) != 0 {
		return nil
	}
	for i := range uintptr(n) {
		var s uintptr
		if call(&name, i, uintptr(unsafe.Pointer(&s))) == 0 { // amdgcn-amd-amdhsa--gfx1100
			if arch := text(s); strings.Contains(arch, "--") {
				list = append(list, arch[strings.LastIndex(arch, "--")+2:])
			}
		}
	}
	return list
}

// comgr returns the library behind hiprtc, which lies beside it; 0 where none
// does.
func (c *Compiler) comgr() uintptr {
	dir, base := filepath.Split(c.path)
	names := comgrNames()
	if rest, ok := strings.CutPrefix(base, "hiprtc"); ok { // hiprtc0602.dll uses amd_comgr0602.dll
		names = append([]string{"amd_comgr" + rest}, names...)
	}
	for _, name := range names {
		if path := filepath.Join(dir, name); dir != "" && exists(path) {
			if handle, err := openLibrary(path); err == nil {
				return handle
			}
		}
	}
	return 0
}

// fault makes an Error of a compiler's code.
func (c *Compiler) fault(p *proc, about string, code int32) *Error {
	e := &Error{Call: p.name, Code: int(code), Hint: hintReport}
	if about != "" {
		e.Call += " of " + about
	}
	if c.procs.errorName.ok() {
		e.Name = text(foreign(c.procs.errorName.addr, uintptr(code)))
	}
	return e
}

// Options returns everything that the compiler is told about a unit on a
// target.
func (c *Compiler) Options(u hip.Unit, t hip.Target) []string {
	return append(u.Options(t), c.targetOptions(t)...)
}

// targetOptions names the target as the compiler spells it.
func (c *Compiler) targetOptions(t hip.Target) []string {
	if c.api == hip.HIP {
		return []string{"--offload-arch=" + t.Arch, "-std=c++17", "-O3"}
	}
	arch, _ := c.cudaArch(t)
	return []string{"--gpu-architecture=" + arch, "-std=c++17"}
}

// Compile makes machine code of a unit for a target, which need not be one of
// a device here. The log holds the compiler's warnings, or why it failed.
func (c *Compiler) Compile(u hip.Unit, t hip.Target) (code []byte, log string, err error) {
	return c.CompileSource(u.File, u.Source(), u.Options(t), t)
}

// CompileSource compiles a text of any origin. The options are the caller's;
// the target's are added.
func (c *Compiler) CompileSource(name, source string, options []string, t hip.Target) (code []byte, log string, err error) {
	if c.targets != nil && !slices.Contains(c.targets, t.Arch) {
		return nil, "", &Error{Call: "compiling " + name, Detail: fmt.Sprintf("this compiler does not know %s, only %s", t.Arch, strings.Join(c.targets, ", ")),
			Hint: "install a newer ROCm; docs/gpu.md says which knows which card", Reason: ErrCompile}
	}
	options = append(options[:len(options):len(options)], c.targetOptions(t)...)
	if c.serial != nil {
		c.serial.Lock()
		defer c.serial.Unlock()
	}
	var program uintptr
	text, file := cBytes(source), cBytes(name)
	create := &c.procs.create
	r := call(create, uintptr(unsafe.Pointer(&program)), uintptr(unsafe.Pointer(&text[0])), uintptr(unsafe.Pointer(&file[0])), 0, 0, 0)
	if r != 0 {
		return nil, "", c.fault(create, name, r)
	}
	defer func() { call(&c.procs.destroy, uintptr(unsafe.Pointer(&program))) }()

	r = c.compile(program, options)
	log = strings.TrimSpace(string(c.fetch(&c.procs.logSize, &c.procs.log, program)))
	if r != 0 {
		e := c.fault(&c.procs.compile, name+" with "+strings.Join(options, " "), r)
		e.Detail, e.Reason = "\n"+log, ErrCompile
		e.Hint = hintReport
		return nil, log, e
	}
	size, get := &c.procs.codeSize, &c.procs.code
	if c.api == hip.CUDA {
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
func (c *Compiler) compile(program uintptr, options []string) int32 {
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
func (c *Compiler) fetch(size, get *proc, program uintptr) []byte {
	b := c.fetchRaw(size, get, program)
	for len(b) > 0 && b[len(b)-1] == 0 {
		b = b[:len(b)-1]
	}
	return b
}

// fetchRaw reads bytes of a program whose size is asked for first; nil where
// either call fails.
func (c *Compiler) fetchRaw(size, get *proc, program uintptr) []byte {
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

// missingCompiler is the error of a machine without one.
func missingCompiler(api hip.API, tried []Attempt) error {
	hint := "install NVRTC of the driver's CUDA version or older: `pip install nvidia-cuda-nvrtc`, or CUDA's runtime packages"
	if api == hip.HIP {
		hint = "install hiprtc (docs/gpu.md names the package), or give a folder of kernels built ahead"
	}
	return &Error{Call: "loading the compiler of " + string(api), Detail: tell(tried, "compiler"), Hint: hint, Reason: ErrMissing}
}
