package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/model"
	kernels "github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/runtime/exec"
	"github.com/nstf/nstf/runtime/place"
)

// A deviceFlag is --device of every command that executes a model.
type deviceFlag struct {
	name string
	flag *pflag.Flag
}

func (f *deviceFlag) add(s *pflag.FlagSet) {
	defer func() { f.flag = s.Lookup("device") }()
	s.StringVar(&f.name, "device", string(place.Auto), "auto, cpu, hip[:N] or cuda[:N]; auto: a GPU it fits, if any")
}

func (f *deviceFlag) check() error {
	if _, err := place.ParseRequest(f.name); err != nil {
		return usagef("--%v", err)
	}
	return nil
}

// named reports whether a checked flag asks for a GPU, and a command line does: what a
// setting asks for is a wish where there is a choice.
func (f *deviceFlag) named() bool {
	if f.flag != nil && !f.flag.Changed {
		return false
	}
	r, err := place.ParseRequest(f.name)
	return err == nil && (r.Kind == place.HIP || r.Kind == place.CUDA)
}

// device returns the device that a checked flag asks for. What is chosen is told
// on stderr.
func (a *app) device(f *deviceFlag) exec.Device {
	r, err := place.ParseRequest(f.name)
	if err != nil {
		panic(err)
	}
	d := exec.Device{Request: r, Libraries: gpuLibraries(), Notice: func(line string) { fmt.Fprintln(a.err, formats.Printable(line)) }}
	m := place.Discover(kernels.Best())
	d.Tiles = m.UsualTiles()
	if dir, err := os.UserCacheDir(); err == nil {
		d.Kernels = filepath.Join(dir, "nstf", "kernels")
		if t, err := place.LoadTiles(filepath.Join(dir, "nstf"), &m); err == nil { // else bench --tune makes it anew
			d.Tiles = t
		}
	}
	return d
}

// opened opens the device that a checked flag asks for to run windows of text through a
// model, block by block; nil: the processor does.
func (a *app) opened(f *deviceFlag, m *model.Model, windows ...[][]int32) (*exec.Opened, error) {
	w := exec.Walk{Gather: true}
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
