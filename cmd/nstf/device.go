package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/nstf/nstf/calibrate"
	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/model"
	kernels "github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/runtime/exec"
	"github.com/nstf/nstf/runtime/place"
)

// A deviceFlag is --device of every command that executes a model, and --memory and --place
// of those that lay it out on several devices.
type deviceFlag struct {
	name    string
	memory  string // of devices: hip:0=20GiB,cpu=8GiB
	layout  string // file
	split   string // how several share a model
	several bool   // may be named
	unnamed bool   // --memory may bound devices that auto finds
	flag    *pflag.Flag

	requests []place.Request
	limits   map[place.Request]int64
	ranges   []place.Range
	sharing  place.Sharing
}

// add adds the flag of a command that runs on one device.
func (f *deviceFlag) add(s *pflag.FlagSet) {
	f.define(s, "auto, cpu, hip[:N] or cuda[:N]; auto: a GPU it fits, if any")
}

// addSeveral adds those of a command that lays a model out on several, --memory aside.
func (f *deviceFlag) addSeveral(s *pflag.FlagSet) {
	f.several = true
	f.define(s, "auto, cpu, hip[:N], cuda[:N], or several that share the model's\nblocks: hip:0,hip:1,cpu; auto: a GPU it fits, if any")
	s.StringVar(&f.split, "split", "auto", "how GPUs of one kind share a model: layers, each some blocks; tensor,\neach a part of every block; auto: as is expected to be faster")
	s.StringVar(&f.layout, "place", "", "`file` that says which blocks lie on which device, as\nnstf place --json writes it, instead of --device")
}

// addMemory adds --memory.
func (f *deviceFlag) addMemory(s *pflag.FlagSet) {
	s.StringVar(&f.memory, "memory", "", "most `bytes` that devices give: hip:0=20GiB,cpu=8GiB; default: what is free")
}

func (f *deviceFlag) define(s *pflag.FlagSet, usage string) {
	s.StringVar(&f.name, "device", string(place.Auto), usage)
	f.flag = s.Lookup("device")
}

// changed reports whether a command line names devices: what a setting asks for is a wish
// where there is a choice.
func (f *deviceFlag) changed() bool { return f.flag == nil || f.flag.Changed }

func (f *deviceFlag) check() (err error) {
	if f.requests, err = place.ParseRequests(f.name); err != nil {
		return usagef("--%v", err)
	}
	if f.split != "" {
		if f.sharing, err = place.ParseSharing(f.split); err != nil {
			return usagef("--%v", err)
		}
	}
	if len(f.requests) > 1 && !f.several {
		if f.changed() {
			return usagef("--device %s: this command runs on one device", f.name)
		}
		f.requests = f.requests[:1]
	}
	if f.layout != "" {
		if f.flag.Changed {
			return usagef("--place says which devices there are, and so does --device")
		}
		if err := noFolder(f.layout); err != nil {
			return err
		}
		l, err := place.ReadLayout(f.layout)
		if err != nil {
			return err
		}
		if f.sharing != "" {
			return usagef("--place says how devices share the model, and so does --split")
		}
		f.ranges, f.requests, f.sharing = l.Ranges, place.Devices(l.Ranges), l.Split
	}
	return f.checkMemory()
}

// checkMemory reads --memory.
func (f *deviceFlag) checkMemory() error {
	if f.memory == "" {
		return nil
	}
	f.limits = map[place.Request]int64{}
	for entry := range strings.SplitSeq(f.memory, ",") {
		name, text, ok := strings.Cut(entry, "=")
		r, err := place.ParseRequest(name)
		switch {
		case !ok || err != nil:
			return usagef("--memory %q is no list such as hip:0=20GiB,cpu=8GiB", entry)
		case !slices.Contains(f.requests, r) && !(f.unnamed && f.requests[0].Kind == place.Auto):
			return usagef("--memory %s: --device does not name %v", entry, r)
		case f.limits[r] > 0:
			return usagef("--memory %s: %v has a limit already", entry, r)
		}
		if f.limits[r], err = parseSize(text); err != nil {
			return usagef("--memory %s: %v", entry, err)
		}
	}
	return nil
}

// named reports whether a checked flag asks for a GPU, and a command line does.
func (f *deviceFlag) named() bool {
	if !f.changed() {
		return false
	}
	all, err := place.ParseRequests(f.name)
	return err == nil && slices.ContainsFunc(all, func(r place.Request) bool { return r.Kind == place.HIP || r.Kind == place.CUDA })
}

// args are the flags on a command line.
func (f *deviceFlag) args() []string {
	if f.layout != "" {
		return []string{"--place", f.layout, "--memory", f.memory}
	}
	if f.several {
		return []string{"--device", f.name, "--memory", f.memory, "--split", f.split}
	}
	return []string{"--device", f.name, "--memory", f.memory}
}

// device returns the device that a checked flag asks for, or several. What is chosen is
// told on stderr.
func (a *app) device(f *deviceFlag) exec.Device {
	d := exec.Device{Request: f.requests[0], Behind: f.requests[1:], Ranges: f.ranges, Split: f.sharing, Memory: f.limits,
		Libraries: gpuLibraries(), Notice: func(line string) { fmt.Fprintln(a.err, formats.Printable(line)) }}
	m := place.Discover(kernels.Best())
	d.Tiles = m.UsualTiles()
	if dir, err := os.UserCacheDir(); err == nil {
		d.Measured, d.Kernels = filepath.Join(dir, "nstf"), filepath.Join(dir, "nstf", "kernels")
		if t, err := place.LoadTiles(d.Measured, &m); err == nil { // else bench --tune makes it anew
			d.Tiles = t
		}
	}
	return d
}

// opened opens the device that a checked flag asks for to run windows of text through a
// model, block by block; nil: the processor does.
func (a *app) opened(f *deviceFlag, m *model.Model, windows ...[][]int32) (*exec.Opened, error) {
	w := exec.Walk{Gather: true, Beside: calibrate.Beside(m)}
	for _, list := range windows {
		for _, ids := range list {
			w.Context = max(w.Context, len(ids))
		}
	}
	if w.Context == 0 {
		return nil, nil
	}
	return exec.OpenFor(m, a.device(f), w)
}

// gpuLibraries returns the folders that the environment names for the
// libraries of a GPU: where people unpack ROCm or CUDA beside the system's.
func gpuLibraries() []string {
	var dirs []string
	for _, name := range []string{"ROCM_PATH", "HIP_PATH", "CUDA_PATH", "CUDA_HOME"} {
		if root := os.Getenv(name); root != "" {
			for _, sub := range []string{"lib", "lib64", "bin"} {
				dirs = append(dirs, filepath.Join(root, sub))
			}
		}
	}
	return dirs
}
