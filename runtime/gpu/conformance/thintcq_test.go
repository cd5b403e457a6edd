package conformance

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/kernels/ops"
)

// TestThinTCQ multiplies with thin factors of trellis codes, inputs and codes being
// still on the output sides of the products before, or not.
func TestThinTCQ(t *testing.T) {
	m := open(t)
	for i, c := range []thinTCQCase{
		{t: 1, k: []int{16, 16, 32}, n: []int{160, 32, 48}, bits: 2, block: 16, rawX: true, rawCodes: true},
		{t: 3, k: []int{208}, n: []int{384}, bits: 3, block: 128, rawX: true},
		{t: 8, k: []int{64, 64}, n: []int{144, 256}, bits: 4, block: 1, rawCodes: true, scales: true},
		{t: 2, k: []int{32, 32}, n: []int{256, 256}, bits: 2, block: 64, rawX: true, rawCodes: true, gated: true},
		{t: 1, k: []int{80}, n: []int{128}, bits: 5, block: 2, scales: true, rawX: true},
		{t: 1, k: []int{512}, n: []int{128}, bits: 6, block: 32},
	} {
		if sampled(t) {
			c.run(t, m, rand.New(rand.NewPCG(46, uint64(i))))
		}
	}
}

// A thinTCQCase is one hip.ThinTCQ on random codes, rotated in blocks of one size.
type thinTCQCase struct {
	t, bits, block                int
	k, n                          []int
	rawX, rawCodes, scales, gated bool
}

// params are those of a matrix in the case: blocks are what divides its sizes.
func (c *thinTCQCase) params(n, k int, seed int64) scheme.TCQ {
	p := scheme.TCQ{Bits: c.bits, Codebook: scheme.TCQCodebookFor(c.bits), RotateIn: c.block, RotateOut: c.block, Seed: seed, InScales: c.scales, OutScales: c.scales}
	for k%p.RotateIn != 0 {
		p.RotateIn /= 2
	}
	for n%p.RotateOut != 0 {
		p.RotateOut /= 2
	}
	return p
}

// halves are the scales of a side, nil for none.
func (s *stored) halves(part int, n int, there bool) []float32 {
	if !there {
		return nil
	}
	out := make([]float32, n)
	cpu.Best().DecodeF16(out, s.matrix.Data(part))
	return out
}

// outputs rotates rows of products with a matrix back.
func outputs(s *stored, x []float32, n int) []float32 {
	p := scheme.ParseTCQ(s.Params)
	y := append([]float32(nil), x...)
	for at := 0; at < len(y); at += n {
		cpu.RotateOut(y[at:at+n], p, s.halves(2, n, p.OutScales), 0)
	}
	return y
}

func (c *thinTCQCase) run(t *testing.T, m *machine, r *rand.Rand) {
	t.Helper()
	what := fmt.Sprintf("T=%d K=%v N=%v %d bits", c.t, c.k, c.n, c.bits)
	op := &hip.ThinTCQ{T: c.t, Gated: c.gated, Act: ops.SiLU}
	var outs []*memory
	var wants, sizes [][]float64
	for i, k := range c.k {
		n := c.n[i]
		a := trellis(t, r, c.params(n, k, 3), int64(n), int64(k))
		b := trellis(t, r, c.params(k, 128, int64(i)), int64(k), 128)
		q := trellis(t, r, c.params(n, 128, 5), int64(n), 128)
		x, codes, bias, residual := ordinary(r, c.t*k), ordinary(r, c.t*n), ordinary(r, n), ordinary(r, c.t*n)
		y := m.put(t, residual)
		p := hip.ThinRotated{X: m.put(t, x).address(), Product: hip.Product{W: m.place(t, a, n), Y: y.address(), Residual: y.address()}}
		if i != 1 {
			p.Bias = m.put(t, bias).address()
		} else {
			bias = make([]float32, n)
		}
		if c.rawX {
			p.XFrom = m.place(t, b, k)
			x = outputs(b, x, k)
		}
		if c.rawCodes {
			p.Codes, p.From = m.put(t, codes).address(), m.place(t, q, n)
			codes = outputs(q, codes, n)
		} else {
			codes = make([]float32, c.t*n)
		}
		want, size := a.product(x, c.t)
		for j := range want {
			want[j] += float64(codes[j]) + float64(bias[j%n]) + float64(residual[j])
			size[j] += math.Abs(float64(codes[j])) + 2
		}
		op.Products, outs, wants, sizes = append(op.Products, p), append(outs, y), append(wants, want), append(sizes, size)
	}
	m.run(t, op.Calls(m.target))
	if c.gated {
		c.turned(t, m, r, op)
	}
	for i, y := range outs {
		got := make([]float32, len(wants[i]))
		y.get(t, got)
		for j := range got {
			want, size := wants[i][j], sizes[i][j]
			if c.gated {
				g, u := wants[0][j], wants[1][j]
				want, size = g/(1+math.Exp(-g))*u, sizes[0][j]*(1+math.Abs(u))+sizes[1][j]*(1+math.Abs(g))
			}
			if !(math.Abs(float64(got[j])-want) <= 1e-6*size) {
				t.Fatalf("%s: number %d of product %d is %g, want %g, sizes of %g", what, j, i, got[j], want, size)
			}
		}
		if c.gated {
			return
		}
	}
}

// turned runs the operation once more, to the input side of a matrix that reads what it
// gave, in float32 and rounded.
func (c *thinTCQCase) turned(t *testing.T, m *machine, r *rand.Rand, op *hip.ThinTCQ) {
	t.Helper()
	n := c.n[0]
	down := trellis(t, r, scheme.TCQ{Bits: 2, Codebook: 1, RotateIn: 32, RotateOut: 16, Seed: 8, InScales: true}, 16, int64(n))
	want := make([]float32, c.t*n)
	z, acts, expected := m.put(t, make([]float32, c.t*n)), m.put(t, make([]byte, hip.ActsSize(c.t, n))), m.put(t, make([]byte, hip.ActsSize(c.t, n)))
	again := *op
	again.Products = append([]hip.ThinRotated(nil), op.Products...)
	residual := m.put(t, make([]float32, c.t*n)) // y was the residual, and is another now
	for i := range again.Products {
		again.Products[i].Residual = residual.address()
	}
	y2 := m.put(t, make([]float32, c.t*n))
	again.Products[0].Y = y2.address()
	m.run(t, again.Calls(m.target))
	y2.get(t, want)
	for at := 0; at < len(want); at += n {
		cpu.RotateIn(want[at:at+n], scheme.ParseTCQ(down.Params), down.halves(2, n, true))
	}
	again.To, again.Z = m.place(t, down, 16), z.address()
	m.run(t, again.Calls(m.target))
	got := make([]float32, len(want))
	z.get(t, got)
	sameBits(t, "the input side", got, want)
	again.Acts = hip.Acts{Data: acts.address(), T: c.t, K: n}
	m.run(t, again.Calls(m.target))
	m.run(t, (&hip.Quantize{X: z.address(), Acts: hip.Acts{Data: expected.address(), T: c.t, K: n}}).Calls(m.target))
	a, b := make([]byte, hip.ActsSize(c.t, n)), make([]byte, hip.ActsSize(c.t, n))
	acts.get(t, a)
	expected.get(t, b)
	if !bytes.Equal(a, b) {
		t.Fatal("rounded to other bytes")
	}
}

// product multiplies rows of x with all of a matrix of codes, and says how large what
// is added up is.
func (s *stored) product(x []float32, rows int) (y, size []float64) {
	w, n, k, largest := s.floats(), s.n(), s.k(), s.largest()
	for t := range rows {
		all := 0.0
		for _, v := range x[t*k : (t+1)*k] {
			all += float64(v) * float64(v)
		}
		for i := range n {
			d, _ := (&product{}).dot(w[i*k:(i+1)*k], x[t*k:(t+1)*k])
			y = append(y, d)
			size = append(size, math.Sqrt(all)*largest)
		}
	}
	return y, size
}

// largest is the largest sum of squares of a row of a rotated block, which errors of
// a float32 sum are in proportion to.
func (s *stored) largest() (most float64) {
	w, k := s.floats(), s.k()
	for i := 0; i < len(w); i += k {
		sum := 0.0
		for _, v := range w[i : i+k] {
			sum += float64(v) * float64(v)
		}
		most = max(most, math.Sqrt(sum))
	}
	return most
}
