package conformance

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/runtime/gpu/driver"
)

// timed runs calls b.N times, the i-th with the i-th list of them in turn, and
// returns the microseconds of one by the device's clock.
func (m *machine) timed(b *testing.B, lists ...[]hip.Call) float64 {
	b.Helper()
	type launch struct {
		f *driver.Function
		c hip.Call
	}
	var launches [][]launch
	for _, calls := range lists {
		var l []launch
		for _, c := range calls {
			f, err := m.function(&c)
			if err != nil {
				b.Fatal(err)
			}
			l = append(l, launch{f, c})
		}
		launches = append(launches, l)
	}
	run := func(n int) {
		for i := range n {
			for _, l := range launches[i%len(launches)] {
				if err := m.stream.Launch(l.f, l.c); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	from, err := m.Event()
	if err != nil {
		b.Fatal(err)
	}
	to, err := m.Event()
	if err != nil {
		b.Fatal(err)
	}
	run(3)
	b.ResetTimer()
	if err := m.stream.Record(from); err != nil {
		b.Fatal(err)
	}
	run(b.N)
	if err := m.stream.Record(to); err != nil {
		b.Fatal(err)
	}
	ms, err := to.Since(from)
	if err != nil {
		b.Fatal(err)
	}
	b.StopTimer()
	return ms * 1000 / float64(b.N)
}

// A placed is a matrix on the device several times, so that no cache holds it
// from one launch to the next.
type placed struct {
	s      *stored
	copies []hip.Weight
}

// placedOnce keeps the matrices of benchmarks, which share them.
type placedOnce map[string]*placed

func (p placedOnce) get(b *testing.B, m *machine, v *variety, n, k int) *placed {
	b.Helper()
	key := fmt.Sprintf("%v %d %d", v, n, k)
	if p[key] == nil {
		s := v.make(b, rand.New(rand.NewPCG(29, 30)), n, k)
		w := &placed{s: s}
		size := int64(0)
		for i := range s.Parts {
			size += int64(len(s.matrix.Data(i)))
		}
		for len(w.copies) == 0 || int64(len(w.copies))*size < 256<<20 {
			w.copies = append(w.copies, m.place(b, s, n))
		}
		p[key] = w
	}
	return p[key]
}

// A matmulBench is one measured product.
type matmulBench struct {
	scheme string
	n, k   int
	t      int
	exact  bool
	gated  bool
	tile   *hip.MatmulTile
}

func (c *matmulBench) String() string {
	s := fmt.Sprintf("%s/%dx%d/T=%d", c.scheme, c.n, c.k, c.t)
	if c.gated {
		s += "/gated"
	}
	if c.exact {
		s += "/exact"
	}
	if c.tile != nil {
		s += "/" + strings.ReplaceAll(c.tile.String(), " ", "_")
	}
	return s
}

// BenchmarkMatmul measures products of the shapes of an 8 B and a 1.1 B llama, the
// tiles of the tuning table, and how they go with the number of tokens. Every
// product is validated first.
//
//	go test -c -o conformance.test ./runtime/gpu/conformance
//	conformance.test -device cuda -test.run - -test.bench Matmul -test.benchtime 30x
func BenchmarkMatmul(b *testing.B) {
	m := open(b)
	matrices := placedOnce{}
	for _, c := range matmulBenches(m.target) {
		b.Run(c.String(), func(b *testing.B) { c.run(b, m, matrices) })
	}
}

// matmulBenches lists what is measured.
func matmulBenches(t hip.Target) []*matmulBench {
	var all []*matmulBench
	add := func(scheme string, t int, gated bool, shapes ...[2]int) {
		for _, s := range shapes {
			all = append(all, &matmulBench{scheme: scheme, n: s[0], k: s[1], t: t, gated: gated})
		}
	}
	for _, tile := range hip.MatmulTiles(t, false) {
		for _, tokens := range []int{2048, 256, 32} {
			all = append(all, &matmulBench{scheme: "q4_k", n: 14336, k: 4096, t: tokens, tile: &tile})
		}
	}
	for _, tile := range hip.MatmulTiles(t, true) {
		all = append(all, &matmulBench{scheme: "q4_k", n: 4096, k: 4096, t: 512, tile: &tile, exact: true})
	}
	add("q4_k", 2048, false, [2]int{4096, 4096}, [2]int{6144, 4096}, [2]int{14336, 4096}, [2]int{4096, 14336})
	add("q4_k", 2048, true, [2]int{14336, 4096})
	add("q4_k", 2048, false, [2]int{2048, 2048}, [2]int{2560, 2048}, [2]int{2048, 5632})
	add("q4_k", 2048, true, [2]int{5632, 2048})
	for _, tokens := range []int{16, 64, 128, 512, 1024} {
		add("q4_k", tokens, false, [2]int{14336, 4096}, [2]int{4096, 4096})
	}
	for _, scheme := range []string{"q8_0", "q6_k", "q5_k", "q2_k", "iq2_xxs", "iq4_xs", "f16", "bf16"} {
		add(scheme, 2048, false, [2]int{14336, 4096})
	}
	return all
}

func (c *matmulBench) run(b *testing.B, m *machine, matrices placedOnce) {
	v := pick(b, c.scheme)[0]
	w := matrices.get(b, m, v, c.n, c.k)
	r := rand.New(rand.NewPCG(31, 32))
	x := make([]float32, c.t*c.k)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	in := m.put(b, x)
	defer in.release()
	scratch, err := m.alloc(hip.MatmulScratch(c.t, c.k))
	if err != nil {
		b.Fatal(err)
	}
	defer (&memory{m, scratch}).release()
	y, err := m.alloc(int64(4 * c.t * c.n))
	if err != nil {
		b.Fatal(err)
	}
	defer (&memory{m, y}).release()
	flops := 2 * float64(c.t) * float64(c.n) * float64(c.k)
	var lists [][]hip.Call
	for i := range w.copies {
		op := &hip.Matmul{T: c.t, Exact: c.exact, X: in.address(), Scratch: scratch.Address, Tile: c.tile,
			Products: []hip.Product{{W: w.copies[i], Y: y.Address}}}
		if c.gated {
			op.Gated, op.Products = true, append(op.Products, hip.Product{W: w.copies[i]})
		}
		lists = append(lists, op.Calls(m.target))
	}
	if c.gated {
		flops *= 2
	}
	m.run(b, lists[0])
	c.validate(b, m, w, y, x)
	us := m.timed(b, lists...)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(us, "us")
	b.ReportMetric(flops/us*1e-6, "TFLOP/s")
	if f, err := m.function(&lists[0][len(lists[0])-1]); err == nil {
		a := f.Attributes()
		b.ReportMetric(float64(a.Registers), "regs")
		b.ReportMetric(float64(a.Spill), "spill")
	}
}

// validate holds a sample of the outputs to float64.
func (c *matmulBench) validate(b *testing.B, m *machine, w *placed, y driver.Buffer, x []float32) {
	b.Helper()
	test := &matmulCase{k: c.k, exact: c.exact}
	row, got := make([]float32, c.k), make([]byte, 4)
	for i := range 40 {
		token, feature := (i*397+c.t-1)%c.t, (i*1201+c.n-1)%c.n
		w.s.matrix.DecodeRows(row, int64(feature), 1)
		want, allowed := test.dot(row, x[token*c.k:][:c.k])
		if c.gated {
			allowed = 1.13*allowed*(2*math.Abs(want)+allowed) + 0x1p-20*math.Abs(want*want)
			want *= activated(0, want)
		}
		if err := m.stream.Download(got, y.At(int64(4*(token*c.n+feature)), 4)); err != nil {
			b.Fatal(err)
		}
		v := float64(math.Float32frombits(uint32(got[0]) | uint32(got[1])<<8 | uint32(got[2])<<16 | uint32(got[3])<<24))
		if !(math.Abs(v-want) <= allowed) {
			b.Fatalf("feature %d of token %d: %g, want %g within %g", feature, token, v, want, allowed)
		}
	}
}

// peakSource multiplies a resident tile again and again: what the matrix unit can
// do with activations in LDS.
const peakSource = `
NSTF_KERNEL void __launch_bounds__(256, 1) nstf_peak(f32 *y, int turns) {
	extern __shared__ __align__(1024) u8 lds[];
	for (int i = threadIdx.x; i < PEAK_TILES * MATRIX_TOKENS * 32; i += blockDim.x) ((u32 *)lds)[i] = 0;
	__syncthreads();
	MatrixSums sums[1][PEAK_TILES] = {};
	MatrixRuns w[1] = {};
	for (int i = 0; i < turns; i++) {
#if MATRIX_WGMMA
		matrix_products(sums, w, lds, 0);
		matrix_wait<1>();
#else
		for (int b = 0; b < MATRIX_BLOCKS; b++) matrix_products(sums, w, lds, b);
#endif
	}
#if MATRIX_WGMMA
	matrix_wait<0>();
#endif
	f32 sum = 0;
	for (int i = 0; i < PEAK_TILES; i++) sum += sums[0][i].v[0];
	if (sum != 0) y[threadIdx.x] = sum;
}
`

// BenchmarkPeak measures the matrix unit and the copying of memory, the bounds
// that the other benchmarks are read beside.
func BenchmarkPeak(b *testing.B) {
	m := open(b)
	b.Run("matrix", func(b *testing.B) {
		const tiles, turns = 16, 4000
		shape := hip.MatmulTile{Features: 1, Tokens: tiles, Waves: 1, Parts: 1, Stages: 1}
		tokens, features := shape.Size(m.target, false)
		unit := hip.Unit{File: "matrix.hip", Defines: fmt.Sprintf("NSTF_EXACT=0 NSTF_TEAMS=1 PEAK_TILES=%d", tiles)}
		code, log, err := m.CompileSource("peak.hip", unit.Source()+peakSource, unit.Options(m.target))
		if err != nil {
			b.Fatal(err, log)
		}
		module, err := m.Load(code)
		if err != nil {
			b.Fatal(err)
		}
		m.modules[unit] = module
		out := m.put(b, make([]float32, 256))
		waves := 256 / m.target.Wave
		us := m.timed(b, []hip.Call{{Unit: unit, Symbol: "nstf_peak", Grid: [3]uint32{uint32(m.target.Units), 1, 1}, Block: [3]uint32{256, 1, 1},
			LDS: uint32(tokens * 128), Args: []hip.Arg{hip.Ptr(out.address()), hip.I32(turns)}}})
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(2*float64(tokens*features*64*turns)*float64(waves*m.target.Units)/us*1e-6, "TFLOP/s")
	})
	b.Run("copy", func(b *testing.B) {
		const size = 1 << 30
		from, err := m.alloc(size)
		if err != nil {
			b.Fatal(err)
		}
		to, err := m.alloc(size)
		if err != nil {
			b.Fatal(err)
		}
		begin, _ := m.Event()
		end, err := m.Event()
		if err != nil {
			b.Fatal(err)
		}
		for i := range b.N + 1 {
			if i == 1 {
				err = m.stream.Record(begin)
			}
			if err == nil {
				err = m.stream.Copy(to, from, size)
			}
			if err != nil {
				b.Fatal(err)
			}
		}
		if err := m.stream.Record(end); err != nil {
			b.Fatal(err)
		}
		ms, err := end.Since(begin)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(2*size*float64(b.N)/ms*1e-6, "GB/s")
	})
}
