package conformance

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/kernels/ops"
)

// trellis returns a random tensor of trellis codes: all codes are valid.
func trellis(t testing.TB, r *rand.Rand, p scheme.TCQ, shape ...int64) *stored {
	t.Helper()
	s, _ := scheme.ByName("tcq")
	v := &variety{scheme: s, params: p.Params()}
	specs, err := s.Parts(shape, v.params)
	if err != nil {
		t.Fatal(err)
	}
	var raw []byte
	for _, part := range specs {
		raw = append(raw, v.part(t, r, &part, int(shape[len(shape)-1]))...)
	}
	return store(t, s, shape, v.params, raw)
}

// codewords returns C of a tensor, N rows of K, before all rotations.
func codewords(s *stored) []float32 {
	p := scheme.ParseTCQ(s.Params)
	n, k := s.n(), s.k()
	set := cpu.Best()
	q, c := set.NewTCQ(p, n, k, s.matrix.Data(0), s.matrix.Data(1)), make([]float32, n*k)
	for i := range n {
		q.Row(c[i*k:(i+1)*k], i)
	}
	return c
}

func params(bits int) scheme.TCQ {
	return scheme.TCQ{Bits: bits, Codebook: scheme.TCQCodebookFor(bits), RotateIn: 1, RotateOut: 1}
}

// TestTCQMatvec multiplies codewords of every number of bits with every number of
// rows in both modes, several matrices at once.
func TestTCQMatvec(t *testing.T) {
	m := open(t)
	r := rand.New(rand.NewPCG(31, 1))
	for bits := scheme.TCQMinBits; bits <= scheme.TCQMaxBits; bits++ {
		for _, c := range []struct {
			t, k  int
			n     []int64
			exact bool
		}{{1, 2080, []int64{48, 16, 32, 16, 64}, false}, {5, 16, []int64{16}, false}, {3, 48, []int64{80}, false}, {2, 1136, []int64{144}, false}, {4, 592, []int64{16, 128}, false}, {2, 1024, []int64{32, 32}, true}, {6, 208, []int64{48}, true}} {
			if testing.Short() && bits != 3 || !sampled(t) {
				continue
			}
			p := params(bits)
			if bits == 4 {
				p.Codebook = scheme.TCQBytes2
			}
			what := fmt.Sprintf("%d bits T=%d K=%d N=%v exact=%v", bits, c.t, c.k, c.n, c.exact)
			x := ordinary(r, c.t*c.k)
			in := m.put(t, x)
			op := &hip.Matvec{T: c.t, Exact: c.exact, X: in.address()}
			if !c.exact {
				acts := m.put(t, make([]byte, hip.ActsSize(c.t, c.k)))
				op.Acts = hip.Acts{Data: acts.address(), T: c.t, K: c.k}
				m.run(t, (&hip.Quantize{X: in.address(), Acts: op.Acts}).Calls(m.target))
				x = roundedActs(x, c.t, c.k)
			}
			var s []*stored
			var y []*memory
			for _, n := range c.n {
				s = append(s, trellis(t, r, p, n, int64(c.k)))
				y = append(y, m.put(t, make([]float32, c.t*int(n))))
				op.Products = append(op.Products, hip.Product{W: m.place(t, s[len(s)-1], int(n)), Y: y[len(y)-1].address()})
			}
			m.run(t, op.Calls(m.target))
			for i := range s {
				got := make([]float32, c.t*s[i].n())
				y[i].get(t, got)
				nearProducts(t, what, got, codewords(s[i]), x, c.t, s[i].n(), c.k)
			}
		}
	}
}

// roundedActs are activations as bytes round them, 32 together.
func roundedActs(x []float32, t, k int) []float32 {
	out := make([]float32, len(x))
	for row := range t {
		for from := 0; from < k; from += 32 {
			group := x[row*k+from : row*k+min(from+32, k)]
			var top float32
			for _, v := range group {
				top = max(top, float32(math.Abs(float64(v))))
			}
			d := top * float32(1./127)
			for i, v := range group {
				out[row*k+from+i] = float32(math.RoundToEven(float64(v*(127/top)))) * d
			}
		}
	}
	return out
}

// nearProducts holds y[t][n] to float64 sums of c[n][k] and x[t][k].
func nearProducts(t testing.TB, what string, y, c, x []float32, rows, n, k int) {
	t.Helper()
	for row := range rows {
		for f := range n {
			value, size := (&product{}).dot(c[f*k:(f+1)*k], x[row*k:(row+1)*k])
			near(t, fmt.Sprintf("%s: row %d output %d", what, row, f), y[row*n+f], value, size, k, false, 0, 0)
		}
	}
}

// TestTCQExperts multiplies each slot's row with its expert's codewords, few and
// many slots.
func TestTCQExperts(t *testing.T) {
	m := open(t)
	r := rand.New(rand.NewPCG(32, 1))
	const experts, n, k, slots, share = 3, 32, 64, 4, 2
	s := trellis(t, r, params(3), experts, n, k)
	x, ids := ordinary(r, slots/share*k), []int32{2, 0, 1, 2}
	in, chosen, y := m.put(t, x), m.put(t, ids), m.put(t, make([]float32, slots*n))
	m.run(t, (&hip.Matvec{T: slots, Exact: true, X: in.address(), Experts: chosen.address(), Stack: experts, Share: share,
		Products: []hip.Product{{W: m.place(t, s, n), Y: y.address()}}}).Calls(m.target))
	got, c := make([]float32, slots*n), codewords(s)
	y.get(t, got)
	for slot, e := range ids {
		nearProducts(t, fmt.Sprintf("slot %d", slot), got[slot*n:(slot+1)*n], c[int(e)*n*k:(int(e)+1)*n*k], x[slot/share*k:(slot/share+1)*k], 1, n, k)
	}
}

// TestTCQMatmul multiplies many rows exactly, and in halves.
func TestTCQMatmul(t *testing.T) {
	m := open(t)
	r := rand.New(rand.NewPCG(33, 1))
	for bits := scheme.TCQMinBits; bits <= scheme.TCQMaxBits; bits++ {
		for _, exact := range []bool{true, false} {
			if testing.Short() && bits != 3 || !sampled(t) {
				continue
			}
			const rows, n, k = 20, 48, 80
			s := trellis(t, r, params(bits), n, k)
			x := ordinary(r, rows*k)
			in, y, scratch := m.put(t, x), m.put(t, make([]float32, rows*n)), m.put(t, make([]byte, hip.MatmulScratch(rows, k)))
			m.run(t, (&hip.Matmul{T: rows, Exact: exact, X: in.address(), Scratch: scratch.address(),
				Products: []hip.Product{{W: m.place(t, s, n), Y: y.address()}}}).Calls(m.target))
			got, c := make([]float32, rows*n), codewords(s)
			y.get(t, got)
			for i, v := range got {
				value, size := (&product{}).dot(c[i%n*k:(i%n+1)*k], x[i/n*k:(i/n+1)*k])
				allowed := 0x1p-24 * size * math.Sqrt(k)
				if !exact { // a weight and an activation are rounded to halves
					allowed = 0x1p-10 * size
				}
				if math.Abs(float64(v)-value) > allowed {
					t.Fatalf("%d bits exact=%v: number %d is %g, want %g within %g", bits, exact, i, v, value, allowed)
				}
			}
		}
	}
}

// TestRotate computes each side, and both, of every size of block, with the
// processor's bits.
func TestRotate(t *testing.T) {
	m := open(t)
	r := rand.New(rand.NewPCG(34, 1))
	for block := 1; block <= scheme.TCQMaxRotate; block *= 2 {
		if testing.Short() && block != 2 && block != 128 {
			continue
		}
		const rows = 3
		n := max(block, 32) * 9
		p := scheme.TCQ{Bits: 2, Codebook: 1, RotateIn: block, RotateOut: block, Seed: int64(block) * 77, InScales: block%3 == 1, OutScales: block%3 == 2}
		s := trellis(t, r, p, int64(n), int64(n))
		w := m.place(t, s, n)
		halves := func(part int) []float32 {
			out := make([]float32, n)
			cpu.Best().DecodeF16(out, s.matrix.Data(part))
			return out
		}
		var in, out []float32
		if p.InScales {
			in = halves(2)
		}
		if p.OutScales {
			out = halves(2)
		}
		x, bias, residual := ordinary(r, rows*n), ordinary(r, n), ordinary(r, rows*n)
		wantY, wantZ := make([]float32, rows*n), make([]float32, rows*n)
		for row := range rows {
			y := append([]float32(nil), x[row*n:(row+1)*n]...)
			cpu.RotateOut(y, p, out, 0)
			for i := range y {
				y[i] += bias[i]
				y[i] += residual[row*n+i]
			}
			copy(wantY[row*n:], y)
			cpu.RotateIn(y, p, in)
			copy(wantZ[row*n:], y)
		}
		from, plus, rest := m.put(t, x), m.put(t, bias), m.put(t, residual)
		y, z, acts, expected := m.put(t, wantY), m.put(t, wantY), m.put(t, make([]byte, hip.ActsSize(rows, n))), m.put(t, make([]byte, hip.ActsSize(rows, n)))
		op := hip.Rotate{T: rows, X: from.address(), From: w, Bias: plus.address(), Residual: rest.address(), Y: y.address()}
		check := func(what string, to *memory, want []float32) {
			t.Helper()
			got := make([]float32, rows*n)
			to.get(t, got)
			sameBits(t, fmt.Sprintf("block %d, %s", block, what), got, want)
			to.set(t, make([]float32, rows*n))
		}
		y.set(t, make([]float32, rows*n))
		m.run(t, op.Calls(m.target))
		check("output side", y, wantY)
		m.run(t, (&hip.Rotate{T: rows, X: m.put(t, wantY).address(), To: w, Z: z.address()}).Calls(m.target))
		check("input side", z, wantZ)
		op.To, op.Z = w, z.address()
		m.run(t, op.Calls(m.target))
		op.Acts = hip.Acts{Data: acts.address(), T: rows, K: n}
		m.run(t, op.Calls(m.target))
		m.run(t, (&hip.Quantize{X: z.address(), Acts: hip.Acts{Data: expected.address(), T: rows, K: n}}).Calls(m.target))
		check("output side of both", y, wantY)
		check("input side of both", z, wantZ)
		got, want := make([]byte, hip.ActsSize(rows, n)), make([]byte, hip.ActsSize(rows, n))
		acts.get(t, got)
		expected.get(t, want)
		for i := range want {
			if got[i] != want[i] {
				t.Fatalf("block %d: byte %d of rounded activations is %d, want %d", block, i, got[i], want[i])
			}
		}
	}
}

// TestRotateGate activates between two rotations.
func TestRotateGate(t *testing.T) {
	m := open(t)
	r := rand.New(rand.NewPCG(35, 1))
	const rows, n = 2, 256
	p := scheme.TCQ{Bits: 2, Codebook: 1, RotateIn: 64, RotateOut: 128, Seed: 5}
	s := trellis(t, r, p, n, n)
	w := m.place(t, s, n)
	gate, up := ordinary(r, rows*n), ordinary(r, rows*n)
	g, u, z := m.put(t, gate), m.put(t, up), m.put(t, make([]float32, rows*n))
	m.run(t, (&hip.Rotate{T: rows, X: g.address(), From: w, Gate: true, Act: ops.SiLU, Up: u.address(), UpFrom: w, To: w, Z: z.address()}).Calls(m.target))
	got, want := make([]float32, rows*n), make([]float32, rows*n)
	z.get(t, got)
	for row := range rows {
		a, b := gate[row*n:(row+1)*n], up[row*n:(row+1)*n]
		cpu.RotateOut(a, p, nil, 0)
		cpu.RotateOut(b, p, nil, 0)
		y := want[row*n : (row+1)*n]
		for i := range y {
			v := float64(a[i])
			y[i] = float32(v/(1+math.Exp(-v))) * b[i]
		}
		cpu.RotateIn(y, p, nil)
	}
	for i := range want {
		if math.Abs(float64(got[i]-want[i])) > 1e-5 {
			t.Fatalf("number %d is %g, want %g", i, got[i], want[i])
		}
	}
}
