package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestParts holds products by parts, where this machine has a matrix unit, to float64 with the
// errors of the other kernels at most twice, at all kinds of edges, and wants the same bits at
// any number of tokens and threads.
func TestParts(t *testing.T) {
	s := Best()
	if !s.Whole() {
		t.Log("no matrix unit")
		return
	}
	one, three := NewPool(1), NewPool(3)
	defer one.Close()
	defer three.Close()
	rng := rand.New(rand.NewPCG(1, 1))
	for _, shape := range [][3]int{{1, 1, 1}, {5, 7, 3}, {16, 16, 32}, {32, 32, 32}, {33, 65, 100}, {64, 40, 512}, {300, 96, 700}, {70, 200, 1536}} {
		for _, exact := range []bool{false, true} {
			t.Run(fmt.Sprint(shape, exact), func(t *testing.T) {
				m, n, k := shape[0], shape[1], shape[2]
				a, w := make([]float32, m*k), make([]float32, n*k)
				for i := range a {
					a[i] = float32(rng.NormFloat64())
				}
				for i := range w {
					w[i] = float32(rng.NormFloat64())
					if exact && i/k%3 > 0 { // some panels are bfloat16, others not
						w[i] = math.Float32frombits(math.Float32bits(w[i]) &^ 0xffff)
					}
				}
				rows := func(dst []float32, row int) { copy(dst, w[row*k:(row+1)*k]) }
				const gap = 3
				c, again, plain := make([]float32, m*(n+gap)), make([]float32, m*(n+gap)), make([]float32, m*n)
				var p Parts
				s.GemmWhole(one, c, n+gap, a, k, m, n, k, rows, &p)
				for row := 0; row < m; row += 37 {
					s.GemmWhole(three, again[row*(n+gap):], n+gap, a[row*k:], k, min(37, m-row), n, k, rows, &p)
				}
				if !slices.Equal(c, again) {
					t.Error("other bits where tokens come apart")
				}
				var sc GemmScratch
				s.GemmMany(plain, n, a, k, m, 0, n, k, rows, &sc)
				var miss, missPlain, size float64
				for i := range m {
					for j := range n {
						var want, length float64
						for x, v := range a[i*k : (i+1)*k] {
							want += float64(v) * float64(w[j*k+x])
							length += math.Abs(float64(v) * float64(w[j*k+x]))
						}
						miss += math.Pow((float64(c[i*(n+gap)+j])-want)/length, 2)
						missPlain += math.Pow((float64(plain[i*n+j])-want)/length, 2)
						size++
					}
					for _, v := range c[i*(n+gap)+n : (i+1)*(n+gap)] {
						if v != 0 {
							t.Fatal("written behind a row")
						}
					}
				}
				if miss, plain := math.Sqrt(miss/size), math.Sqrt(missPlain/size); !(miss <= 2*plain+2e-8) {
					t.Errorf("error %.3g of what is added, %.3g without the matrix unit", miss, plain)
				}
			})
		}
	}
}

// TestPartsNaN wants a NaN, whatever its bits, and an infinity to be seen in the row and the column that
// have it, and nowhere else.
func TestPartsNaN(t *testing.T) {
	s := Best()
	if !s.Whole() {
		t.Log("no matrix unit")
		return
	}
	one := NewPool(1)
	defer one.Close()
	const m, n, k = 20, 18, 40
	for _, bits := range []uint32{0xffffffff, 0x7fffffff, 0x7fffe000, 0xffffe000, 0x7f800001, 0x7fc00000, 0x7f800000} {
		a, w, c := make([]float32, m*k), make([]float32, n*k), make([]float32, m*n)
		for i := range a {
			a[i] = 1
		}
		for i := range w {
			w[i] = 1
		}
		a[3*k+21], w[5*k+2] = math.Float32frombits(bits), math.Float32frombits(bits)
		var p Parts
		s.GemmWhole(one, c, n, a, k, m, n, k, func(dst []float32, row int) { copy(dst, w[row*k:(row+1)*k]) }, &p)
		for i, v := range c {
			if odd := i/n == 3 || i%n == 5; odd != (v != v) {
				t.Fatalf("%#x: c[%d][%d] is %v", bits, i/n, i%n, v)
			}
		}
	}
}

// TestPartsSquares is TestParts of sums of squares.
func TestPartsSquares(t *testing.T) {
	s := Best()
	if !s.Whole() {
		t.Log("no matrix unit")
		return
	}
	plain := *s
	plain.parts = nil
	one, three := NewPool(1), NewPool(3)
	defer one.Close()
	defer three.Close()
	rng := rand.New(rand.NewPCG(1, 2))
	for _, shape := range [][2]int{{1, 1}, {5, 7}, {100, 70}, {700, 33}, {512, 500}, {30, 900}} {
		n, k := shape[0], shape[1]
		x := make([]float32, n*k)
		for i := range x {
			x[i] = float32(rng.NormFloat64())
		}
		sums := make([][]float64, 3)
		for i, set := range []*Set{s, s, &plain} {
			var q Squares
			sums[i] = make([]float64, k*(k+1)/2)
			set.AddSquares([]*Pool{one, three, one}[i], sums[i], x, k, &q)
		}
		if !slices.Equal(sums[0], sums[1]) {
			t.Errorf("%v: other bits at other threads", shape)
		}
		var misses [2]float64
		for i := range k {
			for j := range i + 1 {
				var want, length float64
				for r := range n {
					v := float64(x[r*k+i]) * float64(x[r*k+j])
					want, length = want+v, length+math.Abs(v)
				}
				for v := range misses {
					misses[v] += math.Pow((sums[2*v][i*(i+1)/2+j]-want)/length, 2)
				}
			}
		}
		size := float64(k * (k + 1) / 2)
		if miss, plain := math.Sqrt(misses[0]/size), math.Sqrt(misses[1]/size); !(miss <= 2*plain+2e-8) {
			t.Errorf("%v: error %.3g of what is added, %.3g without the matrix unit", shape, miss, plain)
		}
	}
}
