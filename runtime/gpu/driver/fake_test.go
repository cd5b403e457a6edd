package driver_test

import (
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"testing"

	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/runtime/gpu/driver"
)

// A fake is the library of testdata/fake.c, built with faults.
type fake struct {
	dir string
	api hip.API
}

// newFake builds a runtime and a compiler with the defines given.
func newFake(t testing.TB, api hip.API, faults ...string) *fake {
	t.Helper()
	f := &fake{t.TempDir(), api}
	runtime, compiler := "libamdhip64.so.6", "libhiprtc.so.6"
	if api == hip.CUDA {
		runtime, compiler = "libcuda.so.1", "libnvrtc.so.12"
	}
	f.build(t, runtime, faults...)
	f.build(t, compiler, append([]string{"COMPILER"}, faults...)...)
	return f
}

func (f *fake) build(t testing.TB, name string, defines ...string) {
	t.Helper()
	if goruntime.GOOS != "linux" {
		t.Skip("the fake driver is built for Linux")
	}
	cc := ""
	for _, name := range []string{"cc", "clang", "clang-19", "gcc"} {
		if p, err := exec.LookPath(name); err == nil {
			cc = p
			break
		}
	}
	if cc == "" {
		t.Skip("no C compiler: the fake driver cannot be built")
	}
	args := []string{"-shared", "-fPIC", "-O1", "-w", "-o", filepath.Join(f.dir, name), filepath.Join("testdata", "fake.c"), "-lpthread"}
	if f.api == hip.CUDA {
		args = append(args, "-DCUDA")
	}
	for _, d := range defines {
		args = append(args, "-D"+d)
	}
	if out, err := exec.Command(cc, args...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

func (f *fake) options() driver.Options {
	return driver.Options{API: f.api, Paths: []string{f.dir}, Only: true}
}

// open opens the fake device.
func (f *fake) open(t testing.TB) *driver.Device {
	t.Helper()
	return opened(t, must(driver.Load(f.options()))(t))
}

// TestFake runs the suite on fake drivers of both families, which check
// arguments, order and thread of every call; and on one of ROCm 5.0, which
// lacks graphs and cooperative launch and lays its properties out as of old.
func TestFake(t *testing.T) {
	for name, f := range map[string]*fake{
		"hip": newFake(t, hip.HIP), "cuda": newFake(t, hip.CUDA),
		"old hip": newFake(t, hip.HIP, "OLD"), "old cuda": newFake(t, hip.CUDA, "OLD"),
		"odd hip":    newFake(t, hip.HIP, "ODD_LAYOUT"),
		"no capture": newFake(t, hip.HIP, "CAPTURE=900"),
	} {
		t.Run(name, func(t *testing.T) {
			for _, c := range suite {
				t.Run(c.name, func(t *testing.T) { c.run(t, f.open) })
			}
		})
	}
}
