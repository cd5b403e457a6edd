package driver_test

import (
	"encoding/binary"
	"flag"
	"testing"

	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/runtime/gpu/driver"
)

var (
	deviceFlag = flag.String("device", "", "hip or cuda; default: hip where its library loads")
	pathFlag   = flag.String("libraries", "", "folder of libraries to try first")
)

// An opener opens the device that is to be tested; it is closed with the test.
type opener func(testing.TB) *driver.Device

// flagged opens the device that the flags name.
func flagged(t testing.TB) *driver.Device {
	t.Helper()
	o := driver.Options{API: hip.HIP}
	if *deviceFlag != "" {
		o.API = hip.API(*deviceFlag)
	}
	if *pathFlag != "" {
		o.Paths = []string{*pathFlag}
	}
	l, err := driver.Load(o)
	if err != nil && *deviceFlag == "" {
		t.Skipf("no device: %v", err)
	}
	check(t, err)
	return opened(t, l)
}

func opened(t testing.TB, l *driver.Library) *driver.Device {
	t.Helper()
	d := must(l.Open(0))(t)
	t.Cleanup(func() { check(t, d.Close()) })
	return d
}

// A bench is a device with a stream and the kernels of this file.
type bench struct {
	*driver.Device
	*driver.Stream
	module *driver.Module
}

func newBench(t testing.TB, open opener) *bench {
	t.Helper()
	b := &bench{Device: open(t)}
	b.Stream = must(b.Device.Stream())(t)
	code, log, err := b.CompileSource("test.hip", kernels, nil)
	if err != nil {
		t.Fatalf("%v\n%s", err, log)
	}
	b.module = must(b.Load(code))(t)
	return b
}

// must stops a test at an error.
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// read downloads little-endian words.
func (b *bench) read(t testing.TB, from driver.Buffer) []uint32 {
	t.Helper()
	raw := make([]byte, from.Size)
	check(t, b.Download(raw, from))
	words := make([]uint32, len(raw)/4)
	for i := range words {
		words[i] = binary.LittleEndian.Uint32(raw[4*i:])
	}
	return words
}

const kernels = `
extern "C" __global__ void arguments(float* out, int a, float b, long long c, int d) {
	int i = threadIdx.x;
	out[i] = i * b + a + (float)(c >> 32) + d;
}
extern "C" __global__ void reverse(unsigned* out) {
	extern __shared__ unsigned lds[];
	unsigned n = blockDim.x * blockDim.y * blockDim.z;
	unsigned i = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
	unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
	lds[i] = block * n + i;
	__syncthreads();
	out[block * n + i] = lds[n - 1 - i];
}
extern "C" __global__ void meet(unsigned* out, unsigned* count, int n) {
	if (threadIdx.x == 0) {
		atomicAdd(count, 1u);
		while (atomicAdd(count, 0u) < (unsigned)n) {}
		out[blockIdx.x] = atomicAdd(count, 0u);
	}
}
extern "C" __global__ void step(unsigned* state) { state[threadIdx.x] += 1; }
extern "C" __global__ void spin(unsigned* out, int n) {
	volatile unsigned* v = out;
	for (int i = 0; i < n; i++) v[1] = v[1] + i;
	v[0] = 1;
}
`
