package driver_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/runtime/gpu/driver"
)

// says holds an error to a reason and to texts that it or its hint contains.
func says(t *testing.T, err error, reason error, texts ...string) {
	t.Helper()
	var e *driver.Error
	if !errors.As(err, &e) {
		t.Fatalf("%T: %v", err, err)
	}
	if reason != nil && !errors.Is(err, reason) {
		t.Errorf("the reason of %q is %v, want %v", err, e.Reason, reason)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error()+"\n"+e.Hint, text) {
			t.Errorf("error: %v\nhint: %s\ndoes not say %q", err, e.Hint, text)
		}
	}
	if e.Hint == "" {
		t.Errorf("no hint for %v", err)
	}
}

// TestNoLibrary: folders without a library, and with a file that is none.
func TestNoLibrary(t *testing.T) {
	dir := t.TempDir()
	c, tried, err := driver.FindCompiler(driver.Options{API: hip.HIP, Paths: []string{dir}, Only: true})
	says(t, err, driver.ErrMissing, "tried", "libhiprtc.so", "docs/gpu.md")
	if c != nil || len(tried) == 0 {
		t.Errorf("%v, tried %v", c, tried)
	}
	l, err := driver.Load(driver.Options{API: hip.HIP, Paths: []string{dir}, Only: true})
	says(t, err, driver.ErrMissing, "tried", "libamdhip64.so.6", "ROCM_PATH")
	if len(l.Tried()) == 0 {
		t.Error("nothing was tried")
	}
	if err := os.WriteFile(filepath.Join(dir, "libamdhip64.so.6"), []byte("not a library"), 0o666); err != nil {
		t.Fatal(err)
	}
	_, err = driver.Load(driver.Options{API: hip.HIP, Paths: []string{dir}, Only: true})
	says(t, err, driver.ErrMissing, "libamdhip64.so.6", "too short")
	if _, err := driver.Load(driver.Options{API: "vulkan"}); err == nil {
		t.Error("loaded an API that does not exist")
	}
}

// TestLacking: a library without a function that is needed is passed over.
func TestLacking(t *testing.T) {
	_, err := driver.Load(newFake(t, hip.HIP, "LACKS").options())
	says(t, err, driver.ErrMissing, "lacks hipModuleLaunchKernel")
}

// TestNoCompiler: what was compiled before still runs.
func TestNoCompiler(t *testing.T) {
	f := newFake(t, hip.HIP)
	if err := os.Remove(filepath.Join(f.dir, "libhiprtc.so.6")); err != nil {
		t.Fatal(err)
	}
	d := f.open(t)
	_, _, err := d.Compile(hip.Unit{File: "common.hip"})
	says(t, err, driver.ErrMissing, "hiprtc")
	m := must(d.Load([]byte("\x7fELF step\x00")))(t)
	must(m.Function("step"))(t)
}

// TestNoDevice: the library is there and finds nothing to work on.
func TestNoDevice(t *testing.T) {
	for _, api := range []hip.API{hip.HIP, hip.CUDA} {
		l, err := driver.Load(newFake(t, api, "NO_DEVICE").options())
		if err == nil {
			_, err = l.Open(0)
		}
		says(t, err, driver.ErrNoDevice, map[hip.API]string{hip.HIP: "/dev/kfd", hip.CUDA: "nvidia-smi"}[api])
	}
	_, err := driver.Load(newFake(t, hip.HIP, "INIT=100").options())
	says(t, err, driver.ErrNoDevice, "hipInit", "hipErrorNoDevice")
	l := must(driver.Load(newFake(t, hip.HIP).options()))(t)
	_, err = l.Open(1)
	says(t, err, driver.ErrNoDevice, "hip:1", "there are 1")
}

// TestNoPermission tells the user which group to join.
func TestNoPermission(t *testing.T) {
	root := t.TempDir()
	check(t, os.MkdirAll(filepath.Join(root, "dev/dri"), 0o777))
	for _, name := range []string{"dev/kfd", "dev/dri/renderD128", "dev/dri/card0"} {
		check(t, os.WriteFile(filepath.Join(root, name), nil, 0o660))
	}
	refuse := func(string) error { return fs.ErrPermission }
	nodes := driver.Nodes(root, refuse)
	if len(nodes) != 2 || nodes[0].Error == "" || nodes[1].Error == "" || nodes[1].Path != filepath.Join(root, "dev/dri/renderD128") {
		t.Errorf("%+v", nodes)
	}
	if a := driver.Advice(nodes); !strings.Contains(a, "usermod -a -G") || !strings.Contains(a, "render") {
		t.Errorf("advice %q", a)
	}
	if a := driver.Advice(driver.Nodes(t.TempDir(), refuse)); !strings.Contains(a, "amdgpu") {
		t.Errorf("advice without /dev/kfd: %q", a)
	}
	if a := driver.Advice(driver.Nodes(root, func(string) error { return nil })); a != "" {
		t.Errorf("advice where all is well: %q", a)
	}
}

// TestUnknownTarget: architectures that the compiler or we do not know.
func TestUnknownTarget(t *testing.T) {
	d := newFake(t, hip.HIP, `ARCH="gfx000"`).open(t)
	_, _, err := d.Compile(hip.Unit{File: "common.hip"})
	says(t, err, driver.ErrCompile, "gfx000", "invalid target ID")
	l := must(driver.Load(newFake(t, hip.HIP, `ARCH="unheard-of"`).options()))(t)
	_, err = l.Open(0)
	says(t, err, nil, "no architecture")
}

// TestRefusedCode: code of another target or of a newer compiler.
func TestRefusedCode(t *testing.T) {
	d := newFake(t, hip.HIP, "LOAD=209").open(t)
	_, err := d.Load([]byte("\x7fELF"))
	says(t, err, nil, "hipModuleLoadData", "hipErrorNoBinaryForGpu", "gfx1100")
}

// TestAllocationFails: it says how much was wanted, and the device goes on.
func TestAllocationFails(t *testing.T) {
	for api, name := range map[hip.API]string{hip.HIP: "hipErrorOutOfMemory", hip.CUDA: "CUDA_ERROR_OUT_OF_MEMORY"} {
		d := newFake(t, api, "ALLOC=2").open(t)
		_, err := d.Alloc(2 << 20)
		says(t, err, driver.ErrMemory, "2097152 bytes", name, "shorter context")
		must(d.Alloc(1 << 20))(t)
	}
}

// TestBrokenCompiler shows what the compiler said.
func TestBrokenCompiler(t *testing.T) {
	d := newFake(t, hip.HIP, "BROKEN").open(t)
	_, log, err := d.Compile(hip.Unit{File: "common.hip"})
	says(t, err, driver.ErrCompile, "common.hip", "the compiler is broken", "HIPRTC_ERROR_COMPILATION", "--offload-arch=gfx1100")
	if !strings.Contains(log, "the compiler is broken") {
		t.Errorf("log %q", log)
	}
}

// TestLaunchFails: a failure of queued work is told once, by who waits next;
// the work behind it is left out; then the stream goes on.
func TestLaunchFails(t *testing.T) {
	b := newBench(t, newFake(t, hip.HIP, "LAUNCH=9").open)
	f := must(b.module.Function("step"))(t)
	buf := must(b.Alloc(64))(t)
	check(t, b.Fill(buf, 1))
	check(t, b.Launch(f, hip.Call{Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{16, 1, 1}, Args: []hip.Arg{hip.Ptr(buf.Address)}}))
	check(t, b.Fill(buf, 2))
	err := b.Wait()
	says(t, err, nil, "hipModuleLaunchKernel of step", "[1 1 1]", "hipErrorOther (9)")
	if got := b.read(t, buf)[0]; got != 0x01010101 {
		t.Errorf("%#x: work behind the failure was done, or work before it was not", got)
	}
	_, err = b.Capture(func() error {
		return b.Launch(f, hip.Call{Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{16, 1, 1}, Args: []hip.Arg{hip.Ptr(buf.Address)}})
	})
	says(t, err, nil, "hipModuleLaunchKernel of step", "hipErrorOther (9)")
	check(t, b.Fill(buf, 3))
	check(t, b.Wait())
}

// TestFailureTravels: a stream that waits for an event of one that failed in front of it has
// failed too, until that is recorded again.
func TestFailureTravels(t *testing.T) {
	b := newBench(t, newFake(t, hip.HIP, "LAUNCH=9").open)
	f := must(b.module.Function("step"))(t)
	buf := must(b.Alloc(64))(t)
	other, event := must(b.Device.Stream())(t), must(b.Event())(t)
	check(t, b.Fill(buf, 1))
	check(t, other.Launch(f, hip.Call{Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{16, 1, 1}, Args: []hip.Arg{hip.Ptr(buf.Address)}}))
	check(t, other.Record(event))
	check(t, b.After(event))
	check(t, b.Fill(buf, 2))
	for _, s := range []interface{ Wait() error }{b.Stream, other} {
		says(t, s.Wait(), nil, "hipModuleLaunchKernel of step", "hipErrorOther (9)")
	}
	if got := b.read(t, buf)[0]; got != 0x01010101 {
		t.Errorf("%#x: work behind the other stream's failure was done", got)
	}
	check(t, other.Record(event))
	check(t, b.After(event))
	check(t, b.Wait())

	check(t, other.Launch(f, hip.Call{Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{16, 1, 1}, Args: []hip.Arg{hip.Ptr(buf.Address)}}))
	check(t, other.Record(event))
	says(t, event.Wait(), nil, "hipErrorOther (9)")
	says(t, other.Wait(), nil, "hipErrorOther (9)")
	check(t, event.Wait()) // it was told
	check(t, b.After(event))
	check(t, b.Wait())
}

// TestLost: a device that is lost in the middle fails every call at once with
// the first reason, and can still be closed.
func TestLost(t *testing.T) {
	for _, api := range []hip.API{hip.HIP, hip.CUDA} {
		t.Run(string(api), func(t *testing.T) {
			b := newBench(t, newFake(t, api, "LOST=3").open)
			f := must(b.module.Function("step"))(t)
			buf := must(b.Alloc(64))(t)
			var err error
			for i := 0; i < 100000 && err == nil; i++ { // more than the queue holds
				err = b.Launch(f, hip.Call{Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{16, 1, 1}, Args: []hip.Arg{hip.Ptr(buf.Address)}})
			}
			first := b.Wait()
			says(t, first, driver.ErrLost, "of step", "719", "nstf doctor")
			for what, err := range map[string]error{
				"wait": b.Wait(), "alloc": second(b.Alloc(1)), "fill": b.Fill(buf, 0), "upload": b.Upload(buf, make([]byte, 64)),
				"download": b.Download(make([]byte, 64), buf), "capture": second(b.Capture(func() error { return nil })),
				"free": b.Free(buf), "stream": b.Stream.Close(),
			} {
				if !errors.Is(err, first) {
					t.Errorf("%s: %v", what, err)
				}
			}
			check(t, b.Device.Close())
		})
	}
}

// TestHang: with patience, a device that never answers is given up.
func TestHang(t *testing.T) {
	f := newFake(t, hip.HIP, "HANG")
	o := f.options()
	o.Patience = 50 * time.Millisecond
	d := must(must(driver.Load(o))(t).Open(0))(t)
	s := must(d.Stream())(t)
	began := time.Now()
	says(t, s.Wait(), driver.ErrLost, "no answer", "hip:0")
	says(t, second(d.Alloc(1)), driver.ErrLost, "no answer")
	check(t, d.Close())
	check(t, d.Close())
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("giving up took %v", took)
	}
}

// TestNative: a graph is the runtime's where it can be, and is repeated
// launch by launch where capture is refused.
func TestNative(t *testing.T) {
	for faults, native := range map[string]bool{"NOTHING": true, "OLD": false, "CAPTURE=900": false, "CAPTURE=801": false} {
		b := newBench(t, newFake(t, hip.HIP, faults).open)
		f := must(b.module.Function("step"))(t)
		buf := must(b.Alloc(64))(t)
		check(t, b.Fill(buf, 0))
		g := must(b.Capture(func() error {
			return b.Launch(f, hip.Call{Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{16, 1, 1}, Args: []hip.Arg{hip.Ptr(buf.Address)}})
		}))(t)
		check(t, b.Replay(g))
		check(t, b.Replay(g))
		if got := b.read(t, buf)[0]; got != 2 || g.Native() != native {
			t.Errorf("%s: native %v, counted %d", faults, g.Native(), got)
		}
	}
}
