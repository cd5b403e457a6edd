package driver

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/nstf/nstf/kernels/hip"
)

// dialectOf returns what is particular to a family, nil for an unknown one.
func dialectOf(api hip.API) *dialect {
	switch api {
	case hip.HIP:
		return &hipDialect
	case hip.CUDA:
		return &cudaDialect
	}
	return nil
}

// Options say where to look.
type Options struct {
	API hip.API
	// Paths are folders, or files, that are tried first.
	Paths []string
	// Roots are installations that are tried after the loader's own search
	// path and before the usual places: a ROCM_PATH, a CUDA_PATH.
	Roots []string
	// Only restricts the search to Paths.
	Only bool
	// Root is where Linux's /sys and /proc are; "": "/". Tests have their own.
	Root string
	// Patience is how long a call may wait for the device before it is given
	// up as lost; 0: as long as it takes.
	Patience time.Duration
}

// A Library is a vendor's runtime and its compiler, loaded. It stays loaded
// until the process ends: neither vendor's library survives being unloaded.
// It is safe for use by several goroutines.
type Library struct {
	dialect  *dialect
	procs    procs
	version  int // as the library writes it
	path     string
	patience time.Duration
	root     string
	compiler *Compiler // nil: none was found
	tried    []Attempt
}

// An Attempt is one try to load a library.
type Attempt struct {
	What  string `json:"what"` // runtime or compiler
	Name  string `json:"name"` // what the loader was asked for
	Path  string `json:"path"` // the file that it found, where it tells
	Error string `json:"error,omitempty"`
}

// Load finds and binds the libraries of an API. Without a compiler it still
// succeeds: code compiled before can be run. With an error, ErrMissing where
// no library was found, comes a Library that can only say what it tried.
func Load(o Options) (*Library, error) {
	l := &Library{dialect: dialectOf(o.API), patience: o.Patience, root: cmp.Or(o.Root, "/")}
	if l.dialect == nil {
		return l, unknownAPI(o.API)
	}
	if err := l.loadRuntime(o); err != nil {
		return l, err
	}
	if err := l.initialize(); err != nil {
		return l, err
	}
	var tried []Attempt
	l.compiler, tried = findCompiler(o, l.path, l.version/1000)
	l.tried = append(l.tried, tried...)
	return l, nil
}

func unknownAPI(api hip.API) error {
	return &Error{Call: "Load", Detail: fmt.Sprintf("unknown API %q", api)}
}

// Tried returns what was looked for, in order.
func (l *Library) Tried() []Attempt { return l.tried }

// API returns the family of the library.
func (l *Library) API() hip.API { return l.dialect.api }

// Path returns the runtime's file, where the loader tells.
func (l *Library) Path() string { return l.path }

// Version returns the runtime's version: HIP's 6.3.42133, CUDA's 12.9; "" where
// it does not tell.
func (l *Library) Version() string {
	if l.version == 0 {
		return ""
	}
	if l.dialect.api == hip.HIP { // major * 10^7 + minor * 10^5 + patch
		return fmt.Sprintf("%d.%d.%d", l.version/10_000_000, l.version/100_000%100, l.version%100_000)
	}
	return fmt.Sprintf("%d.%d", l.version/1000, l.version/10%100)
}

// Compiler returns the compiler, nil where none was found.
func (l *Library) Compiler() *Compiler { return l.compiler }

func (l *Library) loadRuntime(o Options) error {
	names := runtimeNames(o)
	found := false
	l.tried = try("runtime", names, l.dialect.symbols[0].names[0], func(handle uintptr, path string) error {
		missing := bind(&l.procs, l.dialect.symbols, func(s string) uintptr { return lookup(handle, s) })
		if len(missing) > 0 {
			return fmt.Errorf("it lacks %s", strings.Join(missing, ", "))
		}
		l.path, found = path, true
		return nil
	})
	if found {
		return nil
	}
	return &Error{Call: "loading the runtime of " + string(o.API), Detail: tell(l.tried, "runtime"), Hint: installHint(o.API), Reason: ErrMissing}
}

// try loads candidates until one holds all that is required; function is one that each has.
func try(what string, names []string, function string, accept func(handle uintptr, path string) error) (tried []Attempt) {
	for _, name := range names {
		a := Attempt{What: what, Name: name}
		if strings.ContainsRune(name, filepath.Separator) && !exists(name) {
			a.Error = noSuchFile
			tried = append(tried, a)
			continue
		}
		handle, err := openLibrary(name)
		if err == nil {
			a.Path = libraryPath(handle, name, function)
			err = accept(handle, a.Path)
		}
		if err != nil {
			a.Error = err.Error()
		}
		tried = append(tried, a)
		if err == nil {
			break
		}
	}
	return tried
}

const noSuchFile = "no such file"

// errNoGPUs is why a program built with -tags nogpu loads nothing.
var errNoGPUs = errors.New("this program was built without GPUs")

// tell says briefly why nothing was loaded: a file that was found and could
// not be used is worth more than names that do not exist.
func tell(tried []Attempt, what string) string {
	var absent, broken []string
	for _, a := range tried {
		switch {
		case a.What != what || a.Error == "":
		case a.absent():
			absent = append(absent, a.Name)
		case a.Error == errNoGPUs.Error():
			return a.Error
		default:
			broken = append(broken, a.Name+": "+a.Error)
		}
	}
	if len(broken) > 0 {
		return strings.Join(broken, "; ")
	}
	return "tried " + strings.Join(absent, ", ")
}

// absent reports whether an attempt failed since there is no such file. The
// loader's message then is about the file itself, and not about one that it
// needs.
func (a *Attempt) absent() bool {
	return a.Error == noSuchFile || strings.HasPrefix(a.Error, a.Name+": cannot open shared object file: No such file")
}

func installHint(api hip.API) string {
	if api == hip.HIP {
		return "install the ROCm runtime (docs/gpu.md names the packages), or say where it lies by ROCM_PATH; `nstf doctor` shows what was tried"
	}
	return "install NVIDIA's driver; `nstf doctor` shows what was tried"
}
