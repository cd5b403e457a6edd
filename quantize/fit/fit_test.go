package fit_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
	"github.com/nstf/nstf/quantize/fit"
)

// fittable lists the schemes with a fitter.
func fittable(t testing.TB) (out []*scheme.Scheme) {
	t.Helper()
	for _, s := range scheme.Table() {
		if _, ok := fit.For(s); ok {
			out = append(out, s)
		}
	}
	if len(out) == 0 {
		t.Fatal("no scheme has a fitter")
	}
	return out
}

// rowsOf makes rows of weights with outliers.
func rowsOf(seed uint64, n int) []float32 {
	rng := rand.New(rand.NewPCG(seed, 1))
	w := make([]float32, n)
	for i := range w {
		w[i] = float32(rng.NormFloat64()) * 0.03
		if rng.IntN(200) == 0 {
			w[i] *= 15
		}
	}
	return w
}

// TestRange feeds weights of every magnitude: what comes back is finite and
// not further away than the weight itself is from zero, and exact where all
// weights are alike.
func TestRange(t *testing.T) {
	for _, s := range fittable(t) {
		t.Run(s.Name, func(t *testing.T) {
			for e := -149; e <= 18; e++ {
				for _, w := range [][]float32{
					scaled(rowsOf(1, 256), float32(math.Ldexp(1, e-4))),
					constant(float32(math.Ldexp(1, min(e, 15)))), constant(-float32(math.Ldexp(1, min(e, 15)))),
				} {
					if s.Name == "f16" && e > 15 {
						continue
					}
					got := fitted(t, s, w, nil, 256)
					top := extremum(w)
					for i, v := range got {
						if d := math.Abs(float64(v) - float64(w[i])); !(d <= top) {
							t.Fatalf("2^%d: weight %d, %g, became %g", e, i, w[i], v)
						}
					}
				}
			}
		})
	}
}

func scaled(w []float32, f float32) []float32 {
	for i := range w {
		w[i] *= f
	}
	return w
}

func constant(v float32) []float32 {
	w := make([]float32, 256)
	for i := range w {
		w[i] = v
	}
	return w
}

func extremum(w []float32) (top float64) {
	for _, v := range w {
		top = max(top, math.Abs(float64(v)))
	}
	return top
}

// TestExact packs what a scheme can hold exactly and wants it back.
func TestExact(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	for name, low := range map[string]int{"q4_0": -8, "q5_0": -16, "q8_0": -127, "q6_k": -32} {
		w := make([]float32, 256)
		for i := range w {
			w[i] = 0.25 * float32(low+rng.IntN(-2*low))
			if i%16 == 0 {
				w[i] = 0.25 * float32(low)
			}
		}
		s, _ := scheme.ByName(name)
		if got := fitted(t, s, w, nil, 256); rmse(got, w) != 0 {
			t.Errorf("%s: rmse %g on weights it holds exactly", name, rmse(got, w))
		}
	}
	for name, top := range map[string]int{"q4_k": 15, "q5_k": 31} {
		w := make([]float32, 256)
		for i := range w {
			w[i] = 0.5*float32(rng.IntN(top+1)) - 2
			switch i % 32 {
			case 0:
				w[i] = -2
			case 1:
				w[i] = 0.5*float32(top) - 2
			}
		}
		s, _ := scheme.ByName(name)
		// The scales of scales are f16 of what 63 divides.
		if got := fitted(t, s, w, nil, 256); rmse(got, w) > 3e-3 {
			t.Errorf("%s: rmse %g on weights it nearly holds", name, rmse(got, w))
		}
	}
}

// TestZero: zeros stay zeros.
func TestZero(t *testing.T) {
	for _, s := range fittable(t) {
		for i, v := range fitted(t, s, make([]float32, 512), nil, 256) {
			if v != 0 {
				t.Fatalf("%s: weight %d became %g", s.Name, i, v)
			}
		}
	}
}

// TestImportance: weighting columns lowers the weighted error, and constant
// importance changes nothing.
func TestImportance(t *testing.T) {
	const k = 1024
	w := rowsOf(2, 8*k)
	importance := make([]float32, k)
	flat := make([]float32, k)
	rng := rand.New(rand.NewPCG(4, 4))
	for i := range importance {
		importance[i] = float32(math.Exp(2 * rng.NormFloat64()))
		flat[i] = 3
	}
	for _, s := range fittable(t) {
		if s.Plain() {
			continue
		}
		plain, weighted := fitted(t, s, w, nil, k), fitted(t, s, w, importance, k)
		a, b := weightedError(w, plain, importance), weightedError(w, weighted, importance)
		t.Logf("%s: weighted error %.4g, without importance %.4g", s.Name, b, a)
		if !(b < a) {
			t.Errorf("%s: importance gives %g, none %g", s.Name, b, a)
		}
		if got := fitted(t, s, w, flat, k); rmse(got, plain) != 0 {
			t.Errorf("%s: constant importance changes the codes", s.Name)
		}
		zero := fitted(t, s, w, make([]float32, k), k)
		if rmse(zero, plain) != 0 {
			t.Errorf("%s: an importance of zeros differs from none", s.Name)
		}
	}
}

func weightedError(w, got, importance []float32) (sum float64) {
	for i := range w {
		d := float64(w[i]) - float64(got[i])
		sum += d * d * float64(importance[i%len(importance)])
	}
	return sum
}

// TestBadValues: what cannot be fitted is refused with its place.
func TestBadValues(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, s := range fittable(t) {
		f, _ := fit.For(s)
		for _, bad := range []float32{nan, inf, -inf, math.MaxFloat32} {
			if bad == math.MaxFloat32 && s.Name == "f32" {
				continue
			}
			w := rowsOf(3, 3*256)
			w[2*256+7] = bad
			size, _ := s.Size([]int64{3, 256}, nil)
			err := f(make([]byte, size), w, nil, 256)
			var v *fit.ValueError
			if !errors.As(err, &v) || v.Row != 2 || v.Column != 7 {
				t.Errorf("%s, %g: %v", s.Name, bad, err)
			}
		}
		for _, bad := range []float32{nan, inf, -1} {
			importance := make([]float32, 256)
			importance[9] = bad
			size, _ := s.Size([]int64{1, 256}, nil)
			err := f(make([]byte, size), rowsOf(3, 256), importance, 256)
			var v *fit.ValueError
			if !errors.As(err, &v) || v.Row != -1 || v.Column != 9 {
				t.Errorf("%s, importance %g: %v", s.Name, bad, err)
			}
		}
	}
}

// TestPanics: lengths that do not suit are a caller's bug.
func TestPanics(t *testing.T) {
	s, _ := scheme.ByName("q4_k")
	f, _ := fit.For(s)
	for name, call := range map[string]func(){
		"row":        func() { f(make([]byte, 144), make([]float32, 255), nil, 255) },
		"bytes":      func() { f(make([]byte, 143), make([]float32, 256), nil, 256) },
		"part":       func() { f(make([]byte, 144), make([]float32, 300), nil, 256) },
		"importance": func() { f(make([]byte, 144), make([]float32, 256), make([]float32, 255), 256) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s did not panic", name)
				}
			}()
			call()
		}()
	}
}

// TestFallback walks chains to schemes that fit.
func TestFallback(t *testing.T) {
	for _, c := range []struct {
		scheme string
		k      int64
		want   string
	}{
		{"q4_k", 512, "q4_k"}, {"q4_k", 96, "q4_0"}, {"q4_k", 33, "f16"}, {"q5_k", 320, "q5_0"}, {"q6_k", 64, "q8_0"},
		{"q8_0", 31, "f16"}, {"q5_0", 1, "f16"}, {"iq2_xxs", 100, "f16"}, {"iq3_s", 96, "iq4_nl"}, {"f16", 7, "f16"}, {"f32", 7, "f32"},
	} {
		s, _ := scheme.ByName(c.scheme)
		if got := fit.Fallback(s, c.k); got.Name != c.want {
			t.Errorf("%s with rows of %d falls back to %s, want %s", c.scheme, c.k, got, c.want)
		}
	}
	for _, s := range scheme.Table() { // every fallback can be fitted and fits
		got := fit.Fallback(s, 7)
		if _, ok := fit.For(got); s.Block > 1 && !ok || !got.Fits(7) {
			t.Errorf("%s falls back to %s", s, got)
		}
	}
}

// FuzzFit: any float32 bits and importances either fail or give finite
// weights, the same ones twice.
func FuzzFit(f *testing.F) {
	f.Add(uint8(3), []byte{1, 2, 3, 4, 0, 0, 0x80, 0x3F}, []byte{0, 0, 0x80, 0x3F})
	f.Add(uint8(6), []byte{0, 0, 0x80, 0x7E, 1, 0, 0, 0}, []byte{})
	f.Fuzz(func(t *testing.T, which uint8, weights, importances []byte) {
		schemes := fittable(t)
		s := schemes[int(which)%len(schemes)]
		if len(weights) < 4 {
			return
		}
		w, importance := repeat(weights, 512), repeat(importances, 256)
		fitter, _ := fit.For(s)
		size, _ := s.Size([]int64{2, 256}, nil)
		a, b := make([]byte, size), bytes.Repeat([]byte{0xA5}, int(size))
		if err := fitter(a, w, importance, 256); err != nil {
			var v *fit.ValueError
			if !errors.As(err, &v) {
				t.Fatal(err)
			}
			return
		}
		if err := fitter(b, w, importance, 256); err != nil || !bytes.Equal(a, b) {
			t.Fatalf("%s: two runs differ, %v", s.Name, err)
		}
		x, err := scheme.New("w", s, []int64{2, 256}, nil, tensor.BytesBlob(a))
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range decoded(t, x) {
			if v-v != 0 {
				t.Fatalf("%s: weight %d, %g, became %g", s.Name, i, w[i], v)
			}
		}
	})
}

// repeat reads float32 values over and over, nil where there are none.
func repeat(raw []byte, n int) []float32 {
	if len(raw) < 4 {
		return nil
	}
	k := len(raw) / 4
	values := make([]float32, k)
	if err := tensor.ToFloat32(values, raw[:4*k], tensor.F32); err != nil {
		panic(err)
	}
	out := make([]float32, n)
	for i := range out {
		out[i] = values[i%k]
	}
	return out
}

func ExampleFor() {
	s, _ := scheme.ByName("q8_0")
	f, _ := fit.For(s)
	row := make([]float32, 32)
	row[0], row[1] = 127, -3
	packed := make([]byte, 34)
	if err := f(packed, row, nil, 32); err != nil {
		panic(err)
	}
	fmt.Printf("% x\n", packed[:5])
	// Output: 00 3c 7f fd 00
}
