package driver_test

import (
	"bytes"
	"encoding/binary"
	"flag"
	"math"
	"os"
	"testing"

	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/runtime/gpu/driver"
)

var (
	deviceFlag = flag.String("device", "", "hip or cuda; default: hip where its library loads")
	pathFlag   = flag.String("libraries", "", "folder of libraries to try first")
)

// open returns the device that the flags name.
func open(t testing.TB) *driver.Device {
	t.Helper()
	o := driver.Options{API: hip.HIP}
	if *deviceFlag != "" {
		o.API = hip.API(*deviceFlag)
	}
	if *pathFlag != "" {
		o.Paths = []string{*pathFlag}
	}
	l, err := driver.Load(o)
	if err != nil {
		if *deviceFlag == "" {
			t.Skipf("no device: %v", err)
		}
		t.Fatal(err)
	}
	d, err := l.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func TestProperties(t *testing.T) {
	d := open(t)
	p := d.Properties()
	t.Logf("%+v", p)
	if p.Name == "" || p.Target.Arch == "" || p.Memory < 1<<20 || p.Target.LDS < 1<<15 || p.Threads < 256 {
		t.Errorf("%+v", p)
	}
	if p.Target.Wave != 32 && p.Target.Wave != 64 {
		t.Errorf("wave of %d", p.Target.Wave)
	}
	if want := os.Getenv("AMDEMU_ARCH"); want != "" && p.Target.API == hip.HIP && p.Target.Arch != want {
		t.Errorf("architecture %s, want %s", p.Target.Arch, want)
	}
}

func TestCopies(t *testing.T) {
	d := open(t)
	s, err := d.Stream()
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{1, 3, 4096, 64 << 10, 64<<10 + 1, 4 << 20, 9<<20 + 7} {
		a, err := d.Alloc(int64(n))
		if err != nil {
			t.Fatal(err)
		}
		b, err := d.Alloc(int64(n))
		if err != nil {
			t.Fatal(err)
		}
		src, dst := make([]byte, n), make([]byte, n)
		for i := range src {
			src[i] = byte(i * 7 / 3)
		}
		if err := s.Upload(a, src); err != nil {
			t.Fatal(err)
		}
		if err := s.Fill(b, 0xa5); err != nil {
			t.Fatal(err)
		}
		if err := s.Copy(b, a, int64(n/2)); err != nil {
			t.Fatal(err)
		}
		if err := s.Download(dst, b); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(dst[:n/2], src[:n/2]) || !bytes.Equal(dst[n/2:], bytes.Repeat([]byte{0xa5}, n-n/2)) {
			t.Errorf("%d bytes came back changed", n)
		}
		if err := d.Free(a); err != nil {
			t.Error(err)
		}
		if err := d.Free(b); err != nil {
			t.Error(err)
		}
	}
}

func TestLaunch(t *testing.T) {
	d := open(t)
	s, err := d.Stream()
	if err != nil {
		t.Fatal(err)
	}
	code, log, err := d.CompileSource("test.hip", kernels, nil)
	if err != nil {
		t.Fatalf("%v\n%s", err, log)
	}
	m, err := d.Load(code)
	if err != nil {
		t.Fatal(err)
	}
	f, err := m.Function("arguments")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", f.Attributes())
	out, err := d.Alloc(64 * 4)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Launch(f, hip.Call{Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{64, 1, 1}, Args: []hip.Arg{
		hip.Ptr(out.Address), hip.I32(-3), hip.F32(0.5), hip.I64(-1 << 40), hip.I32(7),
	}}); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 64*4)
	if err := s.Download(got, out); err != nil {
		t.Fatal(err)
	}
	for i := range 64 {
		want := float32(i)*0.5 - 3 + float32(-1<<8) + 7
		if v := math.Float32frombits(binary.LittleEndian.Uint32(got[4*i:])); v != want {
			t.Fatalf("thread %d wrote %v, want %v", i, v, want)
		}
	}
}

const kernels = `
extern "C" __global__ void arguments(float* out, int a, float b, long long c, int d) {
	int i = threadIdx.x;
	out[i] = i * b + a + (float)(c >> 32) + d;
}
`
