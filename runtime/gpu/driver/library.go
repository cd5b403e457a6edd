package driver

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/nstf/nstf/kernels/hip"
)

// Options say where to look.
type Options struct {
	API hip.API
	// Paths are folders, or files, that are tried first.
	Paths []string
	// Roots are installations that are tried after the loader's own search
	// path and before the usual places: a ROCM_PATH, a CUDA_PATH.
	Roots []string
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
	compiler *compiler // nil: none was found
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
// succeeds: code compiled before can be run. The error, ErrMissing where no
// library was found, comes with a Library that can only say what it tried.
func Load(o Options) (*Library, error) {
	l := &Library{patience: o.Patience}
	switch o.API {
	case hip.HIP:
		l.dialect = &hipDialect
	case hip.CUDA:
		l.dialect = &cudaDialect
	default:
		return l, &Error{Call: "Load", Detail: fmt.Sprintf("unknown API %q", o.API)}
	}
	if err := l.loadRuntime(o); err != nil {
		return l, err
	}
	if err := l.initialize(); err != nil {
		return l, err
	}
	l.loadCompiler(o)
	return l, nil
}

// Tried returns what was looked for, in order.
func (l *Library) Tried() []Attempt { return l.tried }

// API returns the family of the library.
func (l *Library) API() hip.API { return l.dialect.api }

// Path returns the runtime's file, where the loader tells.
func (l *Library) Path() string { return l.path }

// Version returns the runtime's version: HIP's 6.3.42133, CUDA's 12.9.
func (l *Library) Version() string {
	if l.dialect.api == hip.HIP { // major * 10^7 + minor * 10^5 + patch
		return fmt.Sprintf("%d.%d.%d", l.version/10_000_000, l.version/100_000%100, l.version%100_000)
	}
	return fmt.Sprintf("%d.%d", l.version/1000, l.version/10%100)
}

// major returns the first part of the version.
func (l *Library) major() int {
	if l.dialect.api == hip.HIP {
		return l.version / 10_000_000
	}
	return l.version / 1000
}

// Compiler returns the compiler's file and version, "" where there is none.
func (l *Library) Compiler() (path, version string) {
	if l.compiler == nil {
		return "", ""
	}
	return l.compiler.path, l.compiler.version
}

// open tries candidates until one loads and holds all that is required.
func (l *Library) open(what string, names []string, accept func(handle uintptr, path string) error) bool {
	for _, name := range names {
		if strings.ContainsRune(name, filepath.Separator) && !exists(name) {
			l.tried = append(l.tried, Attempt{What: what, Name: name, Error: "no such file"})
			continue
		}
		a := Attempt{What: what, Name: name}
		handle, err := openLibrary(name)
		if err == nil {
			a.Path = libraryPath(handle, name)
			err = accept(handle, a.Path)
		}
		if err != nil {
			a.Error = err.Error()
		}
		l.tried = append(l.tried, a)
		if err == nil {
			return true
		}
	}
	return false
}

func (l *Library) loadRuntime(o Options) error {
	names := runtimeNames(o)
	ok := l.open("runtime", names, func(handle uintptr, path string) error {
		missing := bind(&l.procs, l.dialect.symbols, func(s string) uintptr { return lookup(handle, s) })
		if len(missing) > 0 {
			return fmt.Errorf("it lacks %s", strings.Join(missing, ", "))
		}
		l.path = path
		return nil
	})
	if ok {
		return nil
	}
	return &Error{Call: "loading " + names[len(names)-1], Detail: l.tellTried("runtime"), Hint: installHint(o.API), Reason: ErrMissing}
}

// tellTried says briefly why nothing was loaded: a file that was found and
// could not be used is worth more than names that do not exist.
func (l *Library) tellTried(what string) string {
	var absent, broken []string
	for _, a := range l.tried {
		switch {
		case a.What != what || a.Error == "":
		case notThere(a):
			absent = append(absent, a.Name)
		default:
			broken = append(broken, a.Name+": "+a.Error)
		}
	}
	if len(broken) > 0 {
		return strings.Join(broken, "; ")
	}
	return "tried " + strings.Join(absent, ", ")
}

// notThere reports whether an attempt failed since there is no such file,
// rather than because of it: the loader then names the file itself.
func notThere(a Attempt) bool {
	return a.Error == "no such file" || strings.Contains(a.Error, filepath.Base(a.Name)+": cannot open shared object file: No such file") ||
		strings.Contains(a.Error, "The specified module could not be found")
}

func installHint(api hip.API) string {
	if api == hip.HIP {
		return "install the ROCm runtime (docs/gpu.md names the packages), or say where it lies by ROCM_PATH; `nstf doctor` shows what was tried"
	}
	return "install NVIDIA's driver; `nstf doctor` shows what was tried"
}
