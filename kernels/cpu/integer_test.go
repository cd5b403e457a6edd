package cpu_test

import (
	"flag"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/kernels/kerneltest"
)

func integerBackend(s *cpu.Set) kerneltest.IntegerBackend { return kerneltest.IntegerProcessor(s) }

// Emulated, each run has a part of the schemes and codings.
var (
	partsFlag = flag.Int("parts", 1, "of so many parts of schemes and codings, ...")
	partFlag  = flag.Int("part", 0, "... run this one, from 0 on")
)

// dealt is a part's share of a list.
func dealt[T any](list []T) []T {
	var out []T
	for i, x := range list {
		if i%*partsFlag == *partFlag {
			out = append(out, x)
		}
	}
	return out
}

func TestInteger(t *testing.T) {
	eachLevel(t, func(t *testing.T, s *cpu.Set) {
		b := integerBackend(s)
		b.Schemes = dealt(b.Schemes)
		kerneltest.TestInteger(t, b)
	})
}

// Where scales are powers of two and sums are small, float32 rounds nothing and
// the order of additions does not show: what is left are the integers, and every
// level must agree with plain Go to the bit.
func TestIntegersAreExact(t *testing.T) {
	generic, err := cpu.ForLevel(cpu.LevelGeneric)
	if err != nil {
		t.Fatal(err)
	}
	const n, k = 70, 512
	r := rand.New(rand.NewPCG(1, 2))
	eachLevel(t, func(t *testing.T, s *cpu.Set) {
		for _, name := range cpu.Integers() {
			sc, _ := scheme.ByName(name)
			w := kerneltest.RandomRows(r, sc, n, k)
			kerneltest.SetScales(w, sc, func() uint16 { return 0x3c00 }) // 1
			for _, tokens := range []int{1, 2, 3, 4, 8, 9, 25} {
				a, want, got := make([]float32, tokens*k), make([]float32, tokens*n), make([]float32, tokens*n)
				for i := range a {
					if a[i] = float32(r.IntN(15) - 7); i%16 == 0 {
						a[i] = 127 // so that d is 1
					}
				}
				integerBackend(generic).MatMul(name, want, n, w, a, tokens, 0, n, k)
				integerBackend(s).MatMul(name, got, n, w, a, tokens, 0, n, k)
				wantSame(t, name, got, want)
			}
		}
	})
}

// TestActivationError measures what quantizing activations costs, as the root
// mean square error by that of the values.
func TestActivationError(t *testing.T) {
	const k = 1 << 16
	for _, c := range []struct {
		name   string
		limits [2]float64 // in groups of 32, of 16
		fill   func(r *rand.Rand, i int) float64
	}{
		{"gaussian", [2]float64{0.0055, 0.0041}, func(r *rand.Rand, _ int) float64 { return r.NormFloat64() }},
		{"uniform", [2]float64{0.0039, 0.0031}, func(r *rand.Rand, _ int) float64 { return 2*r.Float64() - 1 }},
		{"one in 10 a thousand times the rest", [2]float64{0.0044, 0.0028}, func(r *rand.Rand, _ int) float64 {
			if r.IntN(10) == 0 {
				return 1000 * r.NormFloat64()
			}
			return r.NormFloat64()
		}},
		{"one in 100 a hundred times the rest", [2]float64{0.0130, 0.0088}, func(r *rand.Rand, i int) float64 {
			if i%100 == 50 {
				return 100
			}
			return r.NormFloat64()
		}},
	} {
		r := rand.New(rand.NewPCG(1, 2))
		x, q := make([]float32, k), make([]float32, k)
		for i := range x {
			x[i] = float32(c.fill(r, i))
		}
		for i, scheme := range []string{"q4_k", "q8_0"} {
			integerBackend(cpu.Best()).Quantized(scheme, q, x)
			var sum, all float64
			for i, v := range x {
				sum += math.Pow(float64(v-q[i]), 2)
				all += math.Pow(float64(v), 2)
			}
			rms := math.Sqrt(sum / all)
			t.Logf("%s, groups of %d: %.3f %%", c.name, 32>>i, 100*rms)
			if rms > c.limits[i] {
				t.Errorf("%s, groups of %d: relative error %.5f, want at most %.5f", c.name, 32>>i, rms, c.limits[i])
			}
		}
	}
}

func TestIntegerAllocatesNothing(t *testing.T) {
	eachLevel(t, func(t *testing.T, s *cpu.Set) {
		const n, k = 40, 512
		var a cpu.Activations
		var scratch cpu.IntegerScratch
		c := make([]float32, 16*n)
		for _, name := range cpu.Integers() {
			sc, _ := scheme.ByName(name)
			w, x := kerneltest.RandomRows(rand.New(rand.NewPCG(1, 2)), sc, n, k), make([]float32, 16*k)
			kernel := s.Integer(name)
			calls := func() {
				for _, tokens := range []int{1, 3, 16} {
					s.Quantize(&a, x, k, tokens, k, kernel.Group())
					kernel.MatMul(c, n, w, &a, 0, n, &scratch)
				}
			}
			calls()
			if allocs := testing.AllocsPerRun(20, calls); allocs != 0 {
				t.Errorf("%s: %g allocations, want none", name, allocs)
			}
		}
	})
}

func TestIntegerRefusesWhatDoesNotFit(t *testing.T) {
	s := cpu.Best()
	if s.Integer("f32") != nil {
		t.Error("there are integer kernels for f32")
	}
	var a cpu.Activations
	var scratch cpu.IntegerScratch
	q := s.Integer("q4_k")
	if q.Fits(128) || !q.Fits(512) || q.Fits(0) {
		t.Error("q4_k fits rows of 256 weights and no others")
	}
	s.Quantize(&a, make([]float32, 256), 256, 1, 256, q.Group())
	for name, call := range map[string]func(){
		"short weights": func() { q.MatMul(make([]float32, 2), 2, make([]byte, 287), &a, 0, 2, &scratch) },
		"short output":  func() { q.MatMul(make([]float32, 1), 2, make([]byte, 288), &a, 0, 2, &scratch) },
		"short row":     func() { s.QuantizeRow(&a, 0, make([]float32, 255)) },
		"other groups":  func() { s.Integer("q6_k").MatMul(make([]float32, 2), 2, make([]byte, 420), &a, 0, 2, &scratch) },
		"no such row":   func() { s.QuantizeRow(&a, 1, make([]float32, 256)) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			call()
		}()
	}
}

// FuzzInteger compares every level with plain Go on weights of any bytes.
func FuzzInteger(f *testing.F) {
	f.Add([]byte("activations of any bits"), uint8(0), uint8(3), uint64(1))
	f.Add([]byte{0, 0, 0x80, 0x7f, 1, 0, 0, 0, 0xff, 0xff, 0x7f, 0x7f}, uint8(7), uint8(20), uint64(2))
	generic, err := cpu.ForLevel(cpu.LevelGeneric)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, bits []byte, which, tokens uint8, seed uint64) {
		name := cpu.Integers()[int(which)%len(cpu.Integers())]
		sc, _ := scheme.ByName(name)
		const n, k = 35, 512
		r := rand.New(rand.NewPCG(seed, 1))
		w := make([]byte, n*k/sc.Block*sc.BlockBytes)
		for i := range w {
			w[i] = byte(r.Uint32())
		}
		if name == "mxfp4" { // whose scales reach 2^127
			kerneltest.SetScales(w, sc, func() uint16 { return uint16(r.Uint32()) })
		}
		m := int(tokens)%20 + 1
		a := random(r, m*k)
		copy(a[r.IntN(k):], floats(bits, m*k-k))
		q := make([]float32, k)
		want, got := make([]float32, m*n), make([]float32, m*n)
		integerBackend(generic).MatMul(name, want, n, w, a, m, 0, n, k)
		for _, l := range cpu.Levels()[1:] {
			s, err := cpu.ForLevel(l)
			if err != nil {
				t.Fatal(err)
			}
			integerBackend(s).MatMul(name, got, n, w, a, m, 0, n, k)
			for i := range got {
				integerBackend(s).Quantized(name, q, a[i/n*k:i/n*k+k])
				wantClose(t, name, want[i], got[i], q)
			}
		}
	})
}

// wantClose allows for sums that cancel: weights of any bytes are up to 65504
// times 63 times 255 in size.
func wantClose(t *testing.T, what string, generic, other float32, q []float32) {
	t.Helper()
	size := 0.0
	for _, v := range q {
		size += math.Abs(float64(v))
	}
	size *= 65504 * 63 * 255
	if size > math.MaxFloat32 || size != size || generic != generic || other != other {
		return
	}
	if d := math.Abs(float64(generic) - float64(other)); d > size*0x1p-21 {
		t.Errorf("%s: %g generic, %g in assembly, terms of %g", what, generic, other, size)
	}
}
