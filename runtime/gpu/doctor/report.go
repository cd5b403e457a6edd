package doctor

import (
	"errors"
	goruntime "runtime"
	"time"

	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/runtime/gpu/driver"
)

// Options say what to look at.
type Options struct {
	Root      string            // where /dev and /sys are: "/", but for tests
	Libraries []string          // folders where libraries are looked for first
	Only      bool              // look for libraries nowhere else
	Env       map[string]string // those of Variables that are set
	OpenNode  func(path string) error
}

// Variables are the names of the environment that change what a runtime shows.
func Variables() []string {
	return []string{
		"HSA_OVERRIDE_GFX_VERSION", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "CUDA_VISIBLE_DEVICES",
		"ROCM_PATH", "HIP_PATH", "CUDA_PATH", "CUDA_HOME", "LD_LIBRARY_PATH", "HSA_ENABLE_SDMA", "AMD_LOG_LEVEL", "GPU_MAX_HW_QUEUES",
	}
}

// A Report is what was found.
type Report struct {
	System      string            `json:"system"` // linux/amd64
	Environment map[string]string `json:"environment,omitempty"`
	Cards       []Card            `json:"cards,omitempty"` // AMD's, as Linux's driver lists them
	Links       []Link            `json:"links,omitempty"` // between those, and to processors
	Nodes       []driver.Node     `json:"nodes,omitempty"`
	APIs        []API             `json:"apis"`
	Findings    []Finding         `json:"findings,omitempty"`
}

// An API is one family of libraries on this machine.
type API struct {
	API      hip.API          `json:"api"`
	Runtime  string           `json:"runtime,omitempty"` // file
	Version  string           `json:"version,omitempty"`
	Compiler string           `json:"compiler,omitempty"` // file
	Language string           `json:"compiler_version,omitempty"`
	Error    string           `json:"error,omitempty"` // why there is no device
	Missing  bool             `json:"missing"`         // the error is that the runtime is not installed
	Hint     string           `json:"hint,omitempty"`
	Devices  []Device         `json:"devices,omitempty"`
	Tried    []driver.Attempt `json:"tried"`
}

// A Device is one GPU that a runtime shows.
type Device struct {
	driver.Properties
	Free    int64   `json:"free"`              // bytes
	Shared  int64   `json:"shared,omitempty"`  // free bytes of the host's memory that the device maps beside its own
	Reaches []int   `json:"reaches,omitempty"` // ordinals of others whose memory its kernels may read and write
	Expect  string  `json:"expect"`            // whether its architecture is expected to work, and why
	Compile float64 `json:"compile_seconds"`   // of the test's kernel
	Test    string  `json:"test"`              // ok, or what went wrong
	Hint    string  `json:"hint,omitempty"`    // what to do about it
	Log     string  `json:"log,omitempty"`     // the compiler's
	Missing bool    `json:"missing,omitempty"` // the test could not be compiled: no compiler
}

// A Finding is one thing that is in the way, or might be.
type Finding struct {
	Problem string `json:"problem"`
	Remedy  string `json:"remedy"`
}

// Works reports whether a device passed its test.
func (d *Device) Works() bool { return d.Test == "ok" }

// Examine looks at the machine.
func Examine(o Options) *Report {
	r := &Report{System: goruntime.GOOS + "/" + goruntime.GOARCH, Environment: o.Env}
	r.Cards, r.Links = cards(o.Root), links(o.Root)
	if len(r.Cards) > 0 || hasPCI(o.Root, vendorAMD) {
		r.Nodes = driver.Nodes(o.Root, o.OpenNode)
	}
	for _, api := range []hip.API{hip.HIP, hip.CUDA} {
		r.APIs = append(r.APIs, examineAPI(api, o))
	}
	r.Findings = findings(r)
	return r
}

func examineAPI(api hip.API, o Options) API {
	a := API{API: api}
	l, err := driver.Load(driver.Options{API: api, Paths: o.Libraries, Only: o.Only, Root: o.Root, Patience: time.Minute})
	a.Tried = l.Tried()
	a.Runtime = l.Path()
	if err != nil {
		a.refuse(err)
		a.Missing = errors.Is(err, driver.ErrMissing)
		return a
	}
	a.Version = l.Version()
	if c := l.Compiler(); c != nil {
		a.Compiler, a.Language = c.Path(), c.Version()
	}
	n, err := l.Count()
	if err == nil && n == 0 {
		_, err = l.Open(0) // says why there may be none
	}
	if err != nil {
		a.refuse(err)
		return a
	}
	for i := range n {
		d := examineDevice(l, i)
		for j := range n {
			if i != j && l.Reaches(i, j) {
				d.Reaches = append(d.Reaches, j)
			}
		}
		a.Devices = append(a.Devices, d)
	}
	return a
}

// refuse notes an error and its hint.
func (a *API) refuse(err error) { a.Error, a.Hint = err.Error(), hintOf(err) }

func hintOf(err error) string {
	var e *driver.Error
	if errors.As(err, &e) {
		return e.Hint
	}
	return ""
}
