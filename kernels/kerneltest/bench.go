package kerneltest

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/nstf/nstf/kernels/ops"
)

// A benchmark is one kernel at one shape. Work is counted in bytes read and
// written once, or in floating-point operations where flops is set.
type benchmark struct {
	name         string
	bytes, flops int
	has          func(b *Backend) bool
	setup        func(b *Backend, r *rand.Rand) (run func())
}

// Bench runs the table of cases for the kernels timed, then times them. Weights
// of matrix-vector products are 256 MiB, more than the caches of most machines;
// the rest is as large as a model's rows are.
func Bench(tb *testing.B, b Backend) {
	faults := map[string]error{} // of operations that were validated
	for _, bm := range benchmarks() {
		tb.Run(bm.name, func(tb *testing.B) {
			if !bm.has(&b) {
				tb.Skipf("%s does not offer it", b.Name)
			}
			op, _, _ := strings.Cut(bm.name, "/")
			fault, done := faults[op]
			if !done {
				fault = Validate(&b, op)
				faults[op] = fault
			}
			if fault != nil {
				tb.Fatalf("not timed, it is wrong: %v", fault)
			}
			run := bm.setup(&b, rand.New(rand.NewPCG(5, 6)))
			run()
			for tb.Loop() {
				run()
			}
			seconds := tb.Elapsed().Seconds() / float64(tb.N)
			if bm.flops > 0 {
				tb.ReportMetric(float64(bm.flops)/seconds/1e9, "GFLOP/s")
			} else {
				tb.ReportMetric(float64(bm.bytes)/seconds/1e9, "GB/s")
			}
		})
	}
}

func benchmarks() []benchmark {
	const k, n = 4096, 16384 // 256 MiB in float32
	return append([]benchmark{
		{"DotRows/head=128,rows=512", 512 * 128 * 4, 0, func(b *Backend) bool { return b.DotRows != nil },
			func(b *Backend, r *rand.Rand) func() {
				y, w, x := make([]float32, 512), ordinary(r, 512*128), ordinary(r, 128)
				return func() { b.DotRows(y, w, 128, x) }
			}},
		{"MatVecF32/256MiB", k * n * 4, 0, func(b *Backend) bool { return b.MatVecF32 != nil },
			func(b *Backend, r *rand.Rand) func() {
				y, w, x := make([]float32, n), ordinary(r, n*k), ordinary(r, k)
				return func() { b.MatVecF32(y, w, x) }
			}},
		{"MatVecBF16/256MiB", k * n * 4, 0, func(b *Backend) bool { return b.MatVecBF16 != nil },
			func(b *Backend, r *rand.Rand) func() {
				y, w, x := make([]float32, 2*n), halves(r, 2*n*k), ordinary(r, k)
				return func() { b.MatVecBF16(y, w, x) }
			}},
		{"MatVecF16/256MiB", k * n * 4, 0, func(b *Backend) bool { return b.MatVecF16 != nil },
			func(b *Backend, r *rand.Rand) func() {
				y, w, x := make([]float32, 2*n), halves(r, 2*n*k), ordinary(r, k)
				return func() { b.MatVecF16(y, w, x) }
			}},
		{"AccumRows/head=128,rows=512", 512 * 128 * 4, 0, func(b *Backend) bool { return b.AccumRows != nil },
			func(b *Backend, r *rand.Rand) func() {
				dst, p, v := make([]float32, 128), ordinary(r, 512), ordinary(r, 512*128)
				return func() { b.AccumRows(dst, p, v, 128) }
			}},
	}, slices.Concat(attendBenchmarks(), gemmBenchmarks(), rowBenchmarks())...)
}

// halves are random small 16-bit floats, finite in both formats.
func halves(r *rand.Rand, n int) []byte {
	w := make([]byte, 2*n)
	for i := range n {
		binary.LittleEndian.PutUint16(w[2*i:], uint16(r.Uint32())&0xbbff|0x2000)
	}
	return w
}

func gemmBenchmarks() []benchmark {
	var bs []benchmark
	for _, s := range []struct {
		name    string
		t, n, k int
	}{
		{"Gemm/1024x1024x1024", 1024, 1024, 1024},
		{"Gemm/2048x2048x2048", 2048, 2048, 2048},
		{"Gemm/T=512,N=2048,K=5632", 512, 2048, 5632},
		{"Gemm/T=64,N=2048,K=2048", 64, 2048, 2048},
		{"Gemm/T=8,N=2048,K=2048", 8, 2048, 2048},
		{"Gemm/T=5,N=2048,K=2048", 5, 2048, 2048},
		{"Gemm/T=4,N=2048,K=2048", 4, 2048, 2048},
	} {
		bs = append(bs, benchmark{s.name, 0, 2 * s.t * s.n * s.k, func(b *Backend) bool { return b.Gemm != nil },
			func(b *Backend, r *rand.Rand) func() {
				c, a, w := make([]float32, s.t*s.n), ordinary(r, s.t*s.k), ordinary(r, s.n*s.k)
				rows := func(dst []float32, row int) { copy(dst, w[row*s.k:]) }
				return func() { b.Gemm(c, s.n, a, s.k, s.t, 0, s.n, s.k, rows, false) }
			}})
	}
	return bs
}

// rowBenchmarks time what is done to a row of activations, 4096 wide.
func rowBenchmarks() []benchmark {
	const d = 4096
	row := func(name string, bytes int, has func(b *Backend) bool, call func(b *Backend, x, y []float32, raw []byte)) benchmark {
		return benchmark{name + "/4096", bytes * d, 0, has, func(b *Backend, r *rand.Rand) func() {
			x, y, raw := ordinary(r, d), ordinary(r, d), halves(r, d)
			return func() { call(b, x, y, raw) }
		}}
	}
	bs := []benchmark{
		row("DecodeF16", 6, func(b *Backend) bool { return b.DecodeF16 != nil },
			func(b *Backend, x, _ []float32, raw []byte) { b.DecodeF16(x, raw) }),
		row("DecodeBF16", 6, func(b *Backend) bool { return b.DecodeBF16 != nil },
			func(b *Backend, x, _ []float32, raw []byte) { b.DecodeBF16(x, raw) }),
		row("EncodeF16", 6, func(b *Backend) bool { return b.EncodeF16 != nil },
			func(b *Backend, x, _ []float32, raw []byte) { b.EncodeF16(raw, x) }),
		row("EncodeBF16", 6, func(b *Backend) bool { return b.EncodeBF16 != nil },
			func(b *Backend, x, _ []float32, raw []byte) { b.EncodeBF16(raw, x) }),
		row("Axpy", 12, func(b *Backend) bool { return b.Axpy != nil },
			func(b *Backend, x, y []float32, _ []byte) { b.Axpy(x, 1e-9, y) }),
		row("Scale", 8, func(b *Backend) bool { return b.Scale != nil },
			func(b *Backend, x, _ []float32, _ []byte) { b.Scale(x, 1) }),
		row("Add", 12, func(b *Backend) bool { return b.Add != nil },
			func(b *Backend, x, y []float32, _ []byte) { b.Add(x, y) }),
		row("Softmax", 8, func(b *Backend) bool { return b.Softmax != nil },
			func(b *Backend, x, y []float32, _ []byte) { copy(x, y); b.Softmax(x) }),
		row("SoftCap", 8, func(b *Backend) bool { return b.SoftCap != nil },
			func(b *Backend, x, y []float32, _ []byte) { b.SoftCap(x, 30) }),
		row("RMSNorm", 12, func(b *Backend) bool { return b.RMSNorm != nil },
			func(b *Backend, x, y []float32, _ []byte) { b.RMSNorm(x, y, y, 1e-6, 0) }),
		row("LayerNorm", 16, func(b *Backend) bool { return b.LayerNorm != nil },
			func(b *Backend, x, y []float32, _ []byte) { b.LayerNorm(x, y, y, y, 1e-6) }),
		row("RopeHalf", 16, func(b *Backend) bool { return b.RopeHalf != nil },
			func(b *Backend, x, y []float32, _ []byte) { b.RopeHalf(x, y[:d/2], y[d/2:]); copy(x, y) }),
		row("SiLUMul", 12, func(b *Backend) bool { return b.SiLUMul != nil },
			func(b *Backend, x, y []float32, _ []byte) { b.SiLUMul(x, y, y) }),
		row("SwiGLU", 12, func(b *Backend) bool { return b.SwiGLU != nil },
			func(b *Backend, x, y []float32, _ []byte) {
				b.SwiGLU(ops.Gating{Alpha: 1.702, Limit: 7, Offset: 1}, x, y, y)
			}),
	}
	for _, name := range []string{"gelu", "gelu_tanh"} {
		bs = append(bs, row(name, 8, func(b *Backend) bool { return b.Activate[name] != nil },
			func(b *Backend, x, y []float32, _ []byte) { b.Activate[name](x, y) }))
	}
	return bs
}
