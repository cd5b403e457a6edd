package conformance

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/kernels/kerneltest"
)

func TestNormTable(t *testing.T) {
	m := open(t)
	norm := func(dst, x []float32, n hip.Normal) {
		in, out := m.put(t, x), m.put(t, x)
		defer in.release()
		defer out.release()
		m.run(t, (&hip.Norm{T: 1, D: len(x), X: in.address(), Next: n, Out: out.address()}).Calls(m.target))
		out.get(t, dst)
	}
	kerneltest.Test(t, kerneltest.Backend{
		Name: m.target.Arch, Takes: func(n int) bool { return n == 1 || sampled(t) },
		RMSNorm: func(dst, x, w []float32, eps, offset float32) {
			w = slices.Clone(w)
			for i := range w {
				w[i] += offset
			}
			weight := m.put(t, w)
			defer weight.release()
			norm(dst, x, hip.Normal{Weight: weight.address(), Eps: eps})
		},
		LayerNorm: func(dst, x, w, b []float32, eps float32) {
			weight := m.put(t, w)
			defer weight.release()
			n := hip.Normal{Kind: hip.LayerNorm, Weight: weight.address(), Eps: eps}
			if b != nil {
				bias := m.put(t, b)
				defer bias.release()
				n.Bias = bias.address()
			}
			norm(dst, x, n)
		},
	})
}

// TestNorm compares sums of branches and what follows with the processor's: the
// same order of additions, so that errors are those of the norms alone.
func TestNorm(t *testing.T) {
	m := open(t)
	r := rand.New(rand.NewPCG(5, 6))
	set := cpu.Best()
	for _, c := range []struct {
		d             int
		kind          hip.NormKind
		a, b          bool
		postA, postB  bool
		next, inPlace bool
		bias          bool
		t             int
	}{
		{64, hip.RMSNorm, true, false, false, false, true, false, false, 1},
		{64, hip.RMSNorm, true, false, true, false, true, false, false, 3},
		{100, hip.RMSNorm, true, true, true, true, true, false, false, 2},
		{77, hip.RMSNorm, true, true, false, false, false, false, false, 5},
		{2048, hip.RMSNorm, true, false, true, false, true, false, false, 9},
		{64, hip.LayerNorm, true, true, false, false, true, false, true, 3},
		{4100, hip.LayerNorm, true, true, true, true, true, false, true, 2},
		{33, hip.LayerNorm, false, false, false, false, true, true, false, 4},
		{20480, hip.RMSNorm, true, false, false, false, true, false, false, 1},
	} {
		if !sampled(t) {
			continue
		}
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			vector := func(n int) []float32 {
				v := make([]float32, n)
				for i := range v {
					v[i] = float32(r.NormFloat64())
				}
				return v
			}
			normal := func(on bool) (hip.Normal, func(x []float32)) {
				if !on {
					return hip.Normal{}, func([]float32) {}
				}
				w, b := vector(c.d), []float32(nil)
				n := hip.Normal{Kind: c.kind, Weight: m.put(t, w).address(), Eps: 1e-5}
				if c.bias {
					b = vector(c.d)
					n.Bias = m.put(t, b).address()
				}
				return n, func(x []float32) {
					for ; len(x) > 0; x = x[c.d:] {
						if c.kind == hip.RMSNorm {
							set.RMSNorm(x[:c.d], x[:c.d], w, 1e-5, 0)
						} else {
							set.LayerNorm(x[:c.d], x[:c.d], w, b, 1e-5)
						}
					}
				}
			}
			n := c.t * c.d
			x, a, b := vector(n), vector(n), vector(n)
			postA, refA := normal(c.postA)
			postB, refB := normal(c.postB)
			next, refNext := normal(c.next)
			dx, out := m.put(t, x), m.put(t, make([]float32, n))
			op := hip.Norm{T: c.t, D: c.d, X: dx.address(), Next: next, Out: out.address()}
			if c.inPlace {
				op.Out = op.X
			}
			if c.a {
				op.A = hip.Branch{Rows: m.put(t, a).address(), Post: postA}
				refA(a)
			}
			if c.b {
				op.B = hip.Branch{Rows: m.put(t, b).address(), Post: postB}
				refB(b)
				set.Add(a, b)
			}
			if c.a {
				set.Add(x, a)
			}
			h := slices.Clone(x)
			refNext(h)
			for turn := range 10 {
				m.run(t, op.Calls(m.target))
				gotX, gotH := make([]float32, n), make([]float32, n)
				dx.get(t, gotX)
				out.get(t, gotH)
				if c.inPlace {
					gotX, gotH = x, gotX
				}
				compare(t, fmt.Sprintf("X, turn %d", turn), gotX, x, 2e-6)
				if c.next {
					compare(t, fmt.Sprintf("Out, turn %d", turn), gotH, h, 2e-6)
				}
				if c.a || c.inPlace {
					break // it adds again
				}
			}
		})
	}
}

// compare wants got within a relative error of want, absolute under 1.
func compare(t *testing.T, name string, got, want []float32, tolerance float64) {
	t.Helper()
	for i, w := range want {
		if e := float64(got[i]) - float64(w); !(max(e, -e) <= tolerance*max(1, float64(max(w, -w)))) {
			t.Fatalf("%s: element %d is %g, want %g", name, i, got[i], w)
		}
	}
}

// Rows that a norm brings to a product's order give the bits of those that the product brings there.
func TestNormHalves(t *testing.T) {
	m, r := open(t), rand.New(rand.NewPCG(5, 6))
	for _, v := range varieties(t) {
		if !v.named("q4_k", "f16") || !taken(t) {
			continue
		}
		for _, d := range []int{256, 512, 4096} {
			const rows, outputs = 37, 64
			x, branch, weight := ordinary(r, rows*d), ordinary(r, rows*d), ordinary(r, d)
			x[3*d], x[5*d+1] = float32(math.Inf(1)), 1e30
			clear(x[7*d : 8*d])
			clear(branch[7*d : 8*d])
			matrix := m.place(t, v.make(t, r, outputs, d), outputs)
			at, added, w, h := m.put(t, x), m.put(t, branch), m.put(t, weight), m.put(t, make([]float32, rows*d))
			y, scratch := m.put(t, make([]float32, rows*outputs)), m.put(t, make([]byte, hip.MatmulScratch(rows, d)+256))
			space := (scratch.address() + 255) &^ 255
			var got [2][]float32
			for i, halves := range []hip.Address{0, space} {
				at.set(t, x)
				h.set(t, make([]float32, rows*d))
				scratch.set(t, make([]byte, hip.MatmulScratch(rows, d)+256))
				norm := &hip.Norm{T: rows, D: d, X: at.address(), A: hip.Branch{Rows: added.address()}, Next: hip.Normal{Weight: w.address(), Eps: 1e-5}, Out: h.address(), Halves: halves}
				product := &hip.Matmul{T: rows, X: h.address(), Products: []hip.Product{{W: matrix, Y: y.address()}}, Scratch: space, Brought: halves != 0}
				m.run(t, append(norm.Calls(m.target), product.Calls(m.target)...))
				got[i] = make([]float32, rows*outputs)
				y.get(t, got[i])
			}
			for i := range got[0] { // NaN where a row has an infinity
				if a, b := math.Float32bits(got[0][i]), math.Float32bits(got[1][i]); a != b && !(got[0][i] != got[0][i] && got[1][i] != got[1][i]) {
					t.Fatalf("%v, %d numbers: output %d is %g, by halves %g", v, d, i, got[0][i], got[1][i])
				}
			}
		}
	}
}
