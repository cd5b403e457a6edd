package cpu_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
	"github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/kernels/kerneltest"
)

// opened makes a matrix of random parts: fill gives the bytes of one.
func opened(t testing.TB, name string, n, k int, params map[string]int64, fill func(part string, raw []byte)) *scheme.Matrix {
	t.Helper()
	s, _ := scheme.ByName(name)
	specs, err := s.Parts([]int64{int64(n), int64(k)}, params)
	if err != nil {
		t.Fatal(err)
	}
	var parts []tensor.Blob
	for _, p := range specs {
		raw := make([]byte, p.Bytes)
		fill(p.Name, raw)
		parts = append(parts, tensor.BytesBlob(raw))
	}
	x, err := scheme.New("w", s, []int64{int64(n), int64(k)}, params, parts...)
	if err != nil {
		t.Fatal(err)
	}
	m, err := scheme.Open(&x)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func plainID(d tensor.DType) int64 { return int64(scheme.ByDType(d).ID) }

// affineMatrix has scales about 0.1 and zero points among the codes.
func affineMatrix(t testing.TB, r *rand.Rand, n, k, bits, group int, scale, zero tensor.DType) *scheme.Matrix {
	params := map[string]int64{"bits": int64(bits), "group": int64(group), "scale": plainID(scale)}
	if zero != tensor.Invalid {
		params["zero"] = plainID(zero)
	}
	return opened(t, "affine", n, k, params, func(part string, raw []byte) {
		for i := range raw {
			raw[i] = byte(r.Uint32())
		}
		switch part {
		case "scales":
			fillNumbers(raw, scale, func() float32 { return 0.05 + 0.1*r.Float32() })
		case "zeros":
			fillNumbers(raw, zero, func() float32 { return float32(r.IntN(1 << bits)) })
		}
	})
}

func fillNumbers(raw []byte, d tensor.DType, next func() float32) {
	switch d { // integers do not come from floats
	case tensor.U8:
		for i := range raw {
			raw[i] = byte(next())
		}
		return
	case tensor.I16:
		for i := 0; i < len(raw); i += 2 {
			raw[i], raw[i+1] = byte(next()), 0
		}
		return
	}
	x := make([]float32, len(raw)*8/d.Bits())
	for i := range x {
		x[i] = next()
	}
	if err := tensor.FromFloat32(raw, x, d); err != nil {
		panic(err)
	}
}

// Affine codes of every width, with every kind of scale and zero point, against
// float64 on the same activations.
func TestAffine(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	eachLevel(t, func(t *testing.T, s *cpu.Set) {
		if s.Level() == cpu.LevelGeneric {
			if m := affineMatrix(t, r, 4, 64, 4, 32, tensor.F16, tensor.Invalid); s.Coded(m) != nil {
				t.Error("plain Go multiplies in float32")
			}
			return
		}
		for _, bits := range dealt([]int{2, 3, 4, 5, 6, 7, 8}) {
			for i, zero := range []tensor.DType{tensor.Invalid, tensor.U8, tensor.I16, tensor.F16, tensor.BF16, tensor.F32} {
				scale := []tensor.DType{tensor.F16, tensor.BF16, tensor.F32}[i%3]
				for j, k := range []int{32, 96, 256, 288, 512, 1056} {
					group := []int{32, 64, 128}[(i+j)%3]
					m := affineMatrix(t, r, 35+i, k, bits, group, scale, zero)
					testAffine(t, s, m, r, fmt.Sprintf("%d bits, groups of %d, scales %v, zeros %v, K=%d", bits, group, scale, zero, k))
					if t.Failed() {
						return
					}
				}
			}
		}
	})
}

func testAffine(t *testing.T, s *cpu.Set, m *scheme.Matrix, r *rand.Rand, what string) {
	t.Helper()
	c := s.Coded(m)
	if c == nil {
		t.Fatalf("%s: no kernels", what)
	}
	n, k := int(m.N), int(m.K)
	w := make([]float32, n*k)
	m.DecodeRows(w, 0, m.N)
	largest := 0.15 * math.Exp2(float64(m.Params["bits"]))
	var a cpu.Activations
	var scratch cpu.IntegerScratch
	x, q := make([]float32, k), make([]float32, k)
	for _, tokens := range []int{1, 2, 3, 8, 9, 20} {
		all := make([]float32, tokens*k)
		for i := range all {
			all[i] = float32(r.NormFloat64())
		}
		s.Quantize(&a, all, k, tokens, k, c.Group())
		y := make([]float32, tokens*n)
		c.MatMul(y, n, &a, 0, n, &scratch)
		parts := make([]float32, tokens*n)
		for _, cut := range [][2]int{{0, 7}, {7, 8}, {8, n}} {
			c.MatMul(parts, n, &a, cut[0], cut[1], &scratch)
		}
		if !slices.Equal(parts, y) {
			t.Fatalf("%s, T=%d: bits depend on the split", what, tokens)
		}
		lower := make([]float32, tokens*(n-5))
		c.Slice(5, n-5).MatMul(lower, n-5, &a, 0, n-5, &scratch)
		for i := range tokens {
			a.Decode(q, i)
			copy(x, q)
			size := 0.0
			for _, v := range q {
				size += math.Abs(float64(v))
			}
			for j := range n {
				exact := 0.0
				for p, v := range q {
					exact += float64(v) * float64(w[j*k+p])
				}
				if e := math.Abs(float64(y[i*n+j]) - exact); !(e <= 0x1p-22*size*largest) {
					t.Fatalf("%s, T=%d: row %d of token %d is %g, want %g", what, tokens, j, i, y[i*n+j], exact)
				}
				if j >= 5 && lower[i*(n-5)+j-5] != y[i*n+j] {
					t.Fatalf("%s, T=%d: row %d of a slice is %g, want %g", what, tokens, j-5, lower[i*(n-5)+j-5], y[i*n+j])
				}
			}
		}
	}
}

// What the kernels do not take is left to float32.
func TestCodedLeavesOut(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	s := cpu.Best()
	indexed := opened(t, "affine", 4, 64, map[string]int64{"bits": 4, "group": 32, "scale": plainID(tensor.F16), "index": 4}, func(string, []byte) {})
	for name, m := range map[string]*scheme.Matrix{
		"groups of 24":        affineMatrix(t, r, 4, 96, 4, 24, tensor.F16, tensor.Invalid),
		"weights name groups": indexed,
		"float weights":       opened(t, "fp8", 4, 64, map[string]int64{"rows": 4, "cols": 32, "scale": plainID(tensor.F32)}, func(string, []byte) {}),
	} {
		if s.Coded(m) != nil {
			t.Errorf("%s have integer kernels", name)
		}
	}
	if s.Level() != cpu.LevelGeneric && s.Coded(affineMatrix(t, r, 4, 40, 4, 100, tensor.F16, tensor.Invalid)) == nil {
		t.Error("a row within one group has none")
	}
}

// Rows of float weights decode to the reference's bits, whatever their place.
func TestRowsAreTheReference(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	random := func(raw []byte) {
		for i := range raw {
			raw[i] = byte(r.Uint32())
		}
	}
	var cases []*scheme.Matrix
	for _, k := range []int{16, 64, 129, 256, 320} {
		for _, cols := range []int64{16, 48, 128, 1000} {
			params := map[string]int64{"rows": 3, "cols": cols, "scale": plainID(tensor.BF16)}
			cases = append(cases, opened(t, "fp8", 7, k, params, func(part string, raw []byte) {
				if random(raw); part == "scales" {
					fillNumbers(raw, tensor.BF16, func() float32 { return float32(r.NormFloat64()) })
				}
			}))
		}
		for _, block := range []int64{16, 64, 128} {
			for _, nested := range []int64{0, 5} {
				params := map[string]int64{"block": block, "nested": nested}
				cases = append(cases, opened(t, "nf4", 9, k, params, func(part string, raw []byte) {
					if part == "codes" || part == "absmax" && nested > 0 {
						random(raw)
						return
					}
					fillNumbers(raw, tensor.F32, func() float32 { return float32(r.NormFloat64()) })
				}))
			}
		}
	}
	eachLevel(t, func(t *testing.T, s *cpu.Set) {
		for _, m := range cases {
			rows := s.Rows(m)
			want, got := make([]float32, m.K), make([]float32, m.K+1)
			for row := range int(m.N) {
				got[m.K] = 42
				m.DecodeRow(want, int64(row))
				rows(got[:m.K], row)
				for i, v := range want {
					if math.Float32bits(got[i]) != math.Float32bits(v) && (got[i] == got[i] || v == v) {
						t.Fatalf("%s %v K=%d: weight %d of row %d is %g, want %g", m.Scheme, m.Params, m.K, i, row, got[i], v)
					}
				}
				testDots(t, s, m, r, want, row)
				if got[m.K] != 42 {
					t.Fatalf("%s K=%d: wrote beyond a row", m.Scheme, m.K)
				}
			}
		}
	})
}

// testDots holds one row times one x to float64; a weight that is not a number makes
// the product one that is not.
func testDots(t *testing.T, s *cpu.Set, m *scheme.Matrix, r *rand.Rand, row []float32, n int) {
	t.Helper()
	dots := s.Dots(m)
	if dots == nil {
		return
	}
	var y [2]float32
	x := make([]float32, len(row))
	exact, size := 0.0, 0.0
	for i := range x {
		x[i] = float32(r.NormFloat64())
		exact += float64(x[i]) * float64(row[i])
		size += math.Abs(float64(x[i]) * float64(row[i]))
	}
	y[1] = 42
	var scratch cpu.GemmScratch
	dots(y[:1], 1, x, len(x), 1, n, n+1, &scratch)
	const tokens = 5
	a, several := random(r, tokens*len(x)), make([]float32, tokens)
	copy(a[3*len(x):], x)
	dots(several, 1, a, len(x), tokens, n, n+1, &scratch)
	if math.Float32bits(several[3]) != math.Float32bits(y[0]) {
		t.Fatalf("%s %v K=%d: row %d times x is %g, and %g among others", m.Scheme, m.Params, m.K, n, y[0], several[3])
	}
	if e := math.Abs(float64(y[0]) - exact); exact == exact && !(e <= 0x1p-21*size) || exact != exact && y[0] == y[0] || y[1] != 42 {
		t.Fatalf("%s %v K=%d: row %d times x is %g, want %g", m.Scheme, m.Params, m.K, n, y[0], exact)
	}
}

// Every scheme is multiplied by kernels of this package, or is listed here with the
// reason.
func TestEverySchemeIsMultiplied(t *testing.T) {
	elsewhere := map[string]string{
		"fp8": "Rows decodes it, in vectors, to float32", "nf4": "Rows decodes it, in vectors, to float32",
		"affine": "Affine multiplies it", "tcq": "TCQ multiplies it",
	}
	for _, s := range scheme.Table() {
		if s.Plain() { // f32, f16 and bf16 have dot products; others hold no weights of a model
			continue
		}
		if k := cpu.Best().Integer(s.Name); (k == nil) == (elsewhere[s.Name] == "") {
			t.Errorf("%s: integer kernels %t, elsewhere %q", s.Name, k != nil, elsewhere[s.Name])
		}
	}
}

func TestCodings(t *testing.T) {
	eachLevel(t, func(t *testing.T, s *cpu.Set) {
		for _, c := range dealt(kerneltest.Codings()) {
			if err := kerneltest.ValidateCoded(kerneltest.CodedProcessor(s), c); err != nil {
				t.Error(err)
			}
		}
	})
}

// BenchmarkCoded times matrices of several parts, one token against what L3 holds
// and 512 tokens, beside q4_k.
func BenchmarkCoded(b *testing.B) {
	const n, k = 2048, 4096
	r := rand.New(rand.NewPCG(1, 2))
	for _, l := range cpu.Levels()[1:] {
		s, err := cpu.ForLevel(l)
		if err != nil {
			b.Fatal(err)
		}
		backend := kerneltest.CodedProcessor(s)
		for _, c := range append(kerneltest.Codings(), kerneltest.Coding{Name: "q4_k", Scheme: "q4_k"}) {
			m, err := kerneltest.RandomMatrix(r, c, n, k)
			if err != nil {
				b.Fatal(err)
			}
			for _, tokens := range []int{1, 512} {
				b.Run(fmt.Sprintf("%v/%s/T%d", l, c.Name, tokens), func(b *testing.B) {
					x, y := make([]float32, tokens*k), make([]float32, tokens*n)
					for b.Loop() {
						backend.MatMul(m, y, n, x, tokens, 0, n)
					}
					b.ReportMetric(float64(tokens)*n*k/b.Elapsed().Seconds()*float64(b.N)/1e9, "Gw/s")
				})
			}
		}
	}
}
