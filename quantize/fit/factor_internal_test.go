package fit

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/nstf/nstf/kernels/cpu"
)

// spiked returns moments of inputs in which few directions weigh some powers of
// ten more than the rest, and a channel has most of the trace.
func spiked(rng *rand.Rand, k int) []float64 {
	const rank = 12
	u := make([]float64, rank*k)
	for i := range u {
		u[i] = rng.NormFloat64() * math.Pow(10, float64(i/k%4)/2)
	}
	for r := range rank {
		u[r*k+7] *= 100
	}
	h := make([]float64, k*k)
	for i := range k {
		for j := range i + 1 {
			var sum float64
			for r := range rank {
				sum += u[r*k+i] * u[r*k+j]
			}
			h[i*k+j], h[j*k+i] = sum, sum
		}
		h[i*k+i] += rng.Float64()
	}
	return h
}

// TestFactor multiplies the factors, in words of 16 bits and in float32, and
// wants the moments back; what rounding leaves costs little when errors are
// answered by it.
func TestFactor(t *testing.T) {
	const k = 600
	h := spiked(rand.New(rand.NewPCG(1, 2)), k)
	pool := cpu.NewPool(2)
	defer pool.Close()
	var least float64
	for _, c := range []struct {
		exact     bool
		tolerance float64 // of sqrt(H_ii H_jj)
		cost      float64 // over the least that errors can cost
	}{{true, 2e-6, 1e-5}, {false, 2e-4, 1e-4}} {
		f := &factor{k: k, damping: 0.01 * trace(h, k) / k, d: make([]float32, k)}
		f.fill(&moments{h: h, k: k, rotate: 1}, pool)
		if !newEliminator(f, true, c.exact, cpu.Best(), pool).run() {
			t.Fatalf("exact %v: not positive definite", c.exact)
		}
		m := make([]float64, k*k)
		row := make([]float32, k)
		for i := range k {
			f.row(row, i)
			for j, v := range row[:i+1] {
				m[i*k+j] = float64(v)
			}
		}
		if least == 0 {
			for _, d := range f.d {
				least += float64(d)
			}
		}
		var worst float64
		for i := range k {
			for j := range i + 1 {
				var sum float64
				for l := i; l < k; l++ {
					sum += m[l*k+i] * float64(f.d[l]) * m[l*k+j]
				}
				want := h[i*k+j]
				if i == j {
					want += f.damping
				}
				worst = max(worst, math.Abs(sum-want)/math.Sqrt(h[i*k+i]*h[j*k+j]))
			}
		}
		// White residuals answered by M cost tr(M'^-1 H M^-1), and at best tr(D).
		if worst > c.tolerance {
			t.Errorf("exact %v: products of the factors are %g off, want %g", c.exact, worst, c.tolerance)
		}
		cost := answered(m, h, f.damping, k)/least - 1
		if math.Abs(cost) > c.cost {
			t.Errorf("exact %v: answers cost %g more than need be, want %g", c.exact, cost, c.cost)
		}
		t.Logf("exact %v: off by %.2g, answers cost %.2g more", c.exact, worst, cost)
	}
}

func trace(h []float64, k int) (sum float64) {
	for i := range k {
		sum += h[i*k+i]
	}
	return sum
}

// answered returns tr(M'^-1 (H + damping I) M^-1).
func answered(m, h []float64, damping float64, k int) (cost float64) {
	inverse := make([]float64, k*k) // lower triangular
	for j := range k {
		inverse[j*k+j] = 1
		for i := j + 1; i < k; i++ {
			var sum float64
			for l := j; l < i; l++ {
				sum += m[i*k+l] * inverse[l*k+j]
			}
			inverse[i*k+j] = -sum
		}
	}
	e := make([]float64, k)
	for i := range k { // what a residual of 1 in column i leaves behind it
		for j := i; j < k; j++ {
			e[j] = inverse[j*k+i]
		}
		for a := i; a < k; a++ {
			var sum float64
			for b := i; b < k; b++ {
				sum += h[a*k+b] * e[b]
			}
			cost += e[a] * (sum + damping*e[a])
		}
	}
	return cost
}

// TestFactorSpikes: a few channels that move together and have half of the trace
// and more, as tokens with massive activations make them, leave words of 16 bits
// good enough.
func TestFactorSpikes(t *testing.T) {
	const k, rank, spikes = 1024, 128, 6
	rng := rand.New(rand.NewPCG(1, 2))
	x, product := make([]float32, k*rank), make([]float32, k*k)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	set, pool := cpu.Best(), cpu.NewPool(2)
	defer pool.Close()
	set.GemmFusedAdd(product, k, x, rank, k, 0, k, rank, func(dst []float32, n int) { copy(dst, x[n*rank:(n+1)*rank]) }, new(cpu.GemmScratch))
	for _, share := range []float64{0.5, 0.9} {
		v := make([]float64, k)
		var square float64
		for i := range spikes {
			v[5+170*i] = 1 + float64(i)/8
			square += v[5+170*i] * v[5+170*i]
		}
		h := make([]float64, k*k)
		for i := range k {
			for j := range k {
				h[i*k+j] = float64(product[i*k+j])/rank + share/(1-share)*k/square*v[i]*v[j]
			}
		}
		var want []float32
		for _, exact := range []bool{true, false} {
			f := &factor{k: k, damping: blockDamping * trace(h, k) / k, d: make([]float32, k)}
			f.fill(&moments{h: h, k: k, rotate: 1}, pool)
			if !newEliminator(f, false, exact, set, pool).run() {
				t.Fatalf("%g of the trace, exact %v: not positive definite", share, exact)
			}
			for i, d := range want {
				if math.Abs(float64(f.d[i]-d)) > 5e-3*float64(d) {
					t.Fatalf("%g of the trace: D of column %d is %g, want %g", share, i, f.d[i], d)
				}
			}
			want = f.d
		}
	}
}

// TestQuadratic wants the bits of a sum row by row, column by column, by any number of
// threads, for more rows than go at once, and zeros passed over, whatever the moments are.
func TestQuadratic(t *testing.T) {
	const n, k = quadraticRows + 3, 75
	rng := rand.New(rand.NewPCG(7, 9))
	h := make([]float64, k*k)
	for i := range k {
		for j := range i + 1 {
			h[i*k+j] = rng.NormFloat64()
			h[j*k+i] = h[i*k+j]
		}
		h[i*k+i] = 1 + math.Abs(h[i*k+i])
	}
	in := NewInput(h, k)
	e := make([]float32, n*k)
	for i := range e {
		if i%k != 5 {
			e[i] = float32(rng.NormFloat64())
		}
	}
	h[5*k+2] = math.Inf(1) // of a column of zeros
	var want float64
	for r := range n {
		x := make([]float64, k)
		for i := range x {
			x[i] = float64(e[r*k+i])
		}
		for i, v := range x {
			if v != 0 {
				want += float64(v * (2*inner(h[i*k:i*k+i], x[:i]) + float64(h[i*k+i]*v)))
			}
		}
	}
	for threads := 1; threads < 4; threads++ {
		if got := in.quadratic(e, threads); got != want {
			t.Errorf("%d threads: %v, want %v", threads, got, want)
		}
	}
	if got := in.quadratic(nil, 2); got != 0 {
		t.Errorf("no rows: %v", got)
	}
}

// BenchmarkQuadratic takes the errors of the rows that tell a cast's.
func BenchmarkQuadratic(b *testing.B) {
	const n, k = quadraticRows, 5632
	in := NewInput(make([]float64, k*k), k)
	e := make([]float32, n*k)
	for i := range e {
		e[i] = float32(i % 7)
	}
	for b.Loop() {
		in.quadratic(e, 1)
	}
}
