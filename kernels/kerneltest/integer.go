package kerneltest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
)

// An IntegerBackend is a device's products of coded weights with activations
// quantized to int8.
type IntegerBackend struct {
	Name    string
	Schemes []string
	// MatMul is C[T][n0:n1] = A[T][K] W[n0:n1][K]^T, where w is stored as the
	// scheme says and a, at distance k, is quantized on the way.
	MatMul func(scheme string, c []float32, ldc int, w []byte, a []float32, t, n0, n1, k int)
	// Quantized writes what the activations of a row become for a scheme to dst.
	Quantized func(scheme string, dst, a []float32)
	// FewTokens is the T beyond which bits may change.
	FewTokens int
}

// integerTolerance is the error allowed, relative to the sum over k of
// |a_k| times twice the largest weight of the row: codes are summed with their
// offsets, so small weights beside a large one count like it.
const integerTolerance = 0x1p-23

// tokenCounts cross the limits at which kernels change.
func tokenCounts() []int { return []int{1, 2, 3, 4, 5, 7, 8, 9, 12, 16, 17, 24} }

// TestInteger runs every scheme through every case.
func TestInteger(t *testing.T, b IntegerBackend) {
	for _, name := range b.Schemes {
		s, ok := scheme.ByName(name)
		if !ok {
			t.Fatalf("no scheme %q", name)
		}
		t.Run(name, func(t *testing.T) {
			t.Run("decode", func(t *testing.T) { testOneHot(t, b, s) })
			t.Run("tails", func(t *testing.T) { testTails(t, b, s) })
			t.Run("splits", func(t *testing.T) { testSplits(t, b, s) })
			t.Run("special", func(t *testing.T) { testSpecialScales(t, b, s) })
			t.Run("activations", func(t *testing.T) { testSpecialActivations(t, b, s) })
		})
	}
}

// RandomRows makes n rows of k weights as a scheme stores them: random codes,
// and scales between 2^-7 and 1/2 of either sign.
func RandomRows(r *rand.Rand, s *scheme.Scheme, n, k int) []byte {
	w := make([]byte, n*k/s.Block*s.BlockBytes)
	for i := range w {
		w[i] = byte(r.Uint32())
	}
	SetScales(w, s, func() uint16 { return uint16(0x2000 + r.IntN(0x1800) + r.IntN(2)<<15) })
	return w
}

// SetScales overwrites the scales of every block by f16 numbers, or by what is
// near to them where a scheme has other scales.
func SetScales(w []byte, s *scheme.Scheme, half func() uint16) {
	for i := 0; i < len(w); i += s.BlockBytes {
		for _, at := range s.ScaleAt {
			h, p := half(), w[i+at:]
			switch s.Scale {
			case scheme.ScaleNibbles:
				for j := range 4 {
					p[2*j+1] = p[2*j+1]&15 | byte(h>>(4*j)&15)<<4
				}
			case scheme.ScaleE8M0:
				p[0] = byte(h>>10&31) + 112
			case scheme.ScaleE4M3:
				p[0] = byte(h >> 7 & 127) // the exponents of 16 to 31 wrap around
			case scheme.ScaleF16:
				p[0], p[1] = byte(h), byte(h>>8)
			default:
				panic("kerneltest: no scales known for " + s.Name)
			}
		}
	}
}

// decoded is the reference decode of whole rows.
func decoded(s *scheme.Scheme, w []byte, n, k int) []float32 {
	shape := []int64{int64(n), int64(k)}
	parts, err := s.Parts(shape, nil)
	if err != nil {
		panic(err)
	}
	m, err := scheme.Open(&formats.Tensor{Shape: shape, Scheme: s.Name, Parts: []formats.Part{
		{Name: parts[0].Name, DType: parts[0].DType, Shape: parts[0].Shape, Data: tensor.BytesBlob(w)}}})
	if err != nil {
		panic(err)
	}
	dst := make([]float32, n*k)
	m.DecodeRows(dst, 0, int64(n))
	return dst
}

// testOneHot gives each token a single activation, so that the product is the
// decoded weights, each in its place.
func testOneHot(t *testing.T, b IntegerBackend, s *scheme.Scheme) {
	const n, k = 33, 256
	w := RandomRows(rand.New(rand.NewPCG(7, 7)), s, n, k)
	want := decoded(s, w, n, k)
	for _, tokens := range []int{1, 4, 256} {
		a, c := make([]float32, tokens*k), make([]float32, tokens*n)
		for first := 0; first < k; first += tokens {
			clear(a)
			for i := range tokens {
				a[i*k+first+i] = 127
			}
			b.MatMul(s.Name, c, n, w, a, tokens, 0, n, k)
			for i, got := range c {
				row := want[i%n*k : i%n*k+k]
				exact := 127 * float64(row[first+i/n])
				if e := math.Abs(float64(got) - exact); !(e <= integerTolerance*127*2*largest(row)) {
					t.Fatalf("T=%d: weight %d of row %d comes out as %g, want %g", tokens, first+i/n, i%n, got/127, exact/127)
				}
			}
		}
	}
}

func largest(x []float32) float64 {
	top := 0.0
	for _, v := range x {
		top = max(top, math.Abs(float64(v)))
	}
	return top
}

// testTails checks all counts of rows and tokens, K down to a block, odd
// strides and addresses, against float64 on the activations as quantized.
func testTails(t *testing.T, b IntegerBackend, s *scheme.Scheme) {
	r := rand.New(rand.NewPCG(3, 4))
	worst := 0.0
	for _, k := range []int{32, 64, 96, 224, 256, 288, 512, 1056} {
		if k%s.Block != 0 {
			continue
		}
		for i, tokens := range tokenCounts() {
			for _, n := range []int{1 + i/2, 33 + 3*i} {
				w := append([]byte{1}, RandomRows(r, s, n, k)...)[1:] // odd address
				a := ordinary(r, tokens*k)
				worst = max(worst, checkInteger(t, b, s, fmt.Sprintf("T=%d N=%d K=%d", tokens, n, k), w, a, tokens, n/3, n, k))
				if t.Failed() {
					return
				}
			}
		}
	}
	t.Logf("%s: largest error %.2f of the tolerance", b.Name, worst)
}

// checkInteger runs one product ten times, with guard words, and returns its
// error as a part of the tolerance.
func checkInteger(t *testing.T, b IntegerBackend, s *scheme.Scheme, what string, w []byte, a []float32, tokens, n0, n1, k int) (worst float64) {
	t.Helper()
	ldc := n1 + 3
	first := integerRun(t, b, s, what, w, a, tokens, n0, n1, k, ldc)
	weights, q := decoded(s, w, n1, k), make([]float32, k)
	for i := range tokens {
		b.Quantized(s.Name, q, a[i*k:i*k+k])
		for n := n0; n < n1; n++ {
			row := weights[n*k : n*k+k]
			e := exactDot(0, row, q)
			size := 0.0
			for _, v := range q {
				size += math.Abs(float64(v))
			}
			part := math.Abs(float64(first[i*ldc+n])-e.value) / (integerTolerance*size*2*largest(row) + 0x1p-149)
			if worst = max(worst, part); !(part <= 1) {
				t.Errorf("%s: token %d of row %d is %g, want %g: %.2f of the tolerance", what, i, n, first[i*ldc+n], e.value, part)
				return
			}
		}
	}
	turns := repeats()
	if k > 512 {
		turns = 1
	}
	for range turns {
		again := integerRun(t, b, s, what, w, a, tokens, n0, n1, k, ldc)
		for i := range again {
			if !sameBits(again[i], first[i]) {
				t.Fatalf("%s: element %d was %g, then %g", what, i, first[i], again[i])
			}
		}
	}
	return worst
}

// integerRun multiplies once and looks at everything that must not change.
func integerRun(t *testing.T, b IntegerBackend, s *scheme.Scheme, what string, w []byte, a []float32, tokens, n0, n1, k, ldc int) []float32 {
	t.Helper()
	buf := surrounded(make([]float32, (tokens-1)*ldc+n1))
	c := buf[guard : len(buf)-guard]
	for i := range c {
		c[i] = guardWord()
	}
	b.MatMul(s.Name, c, ldc, w, a, tokens, n0, n1, k)
	for i, v := range buf {
		at := i - guard
		if inside := at >= 0 && at < len(c) && at%ldc >= n0 && at%ldc < n1; !inside && !sameBits(v, guardWord()) {
			t.Fatalf("%s: element %d of %d was overwritten", what, at, len(c))
		}
	}
	return c
}

// testSplits wants the same bits from any split of the rows, and from any
// company of tokens on one side of the limit of few.
func testSplits(t *testing.T, b IntegerBackend, s *scheme.Scheme) {
	const n, k = 101, 512
	r := rand.New(rand.NewPCG(5, 6))
	w := RandomRows(r, s, n, k)
	for _, tokens := range []int{1, 3, 8, b.FewTokens, b.FewTokens + 12} {
		a := ordinary(r, tokens*k)
		want, got := make([]float32, tokens*n), make([]float32, tokens*n)
		b.MatMul(s.Name, want, n, w, a, tokens, 0, n, k)
		for _, parts := range []int{2, 5, 101} {
			for p := range parts {
				b.MatMul(s.Name, got, n, w, a, tokens, p*n/parts, (p+1)*n/parts, k)
			}
			wantBits(t, fmt.Sprintf("T=%d in %d parts", tokens, parts), got, want)
		}
		for fewer := 1; fewer < tokens; fewer++ {
			if tokens > b.FewTokens && fewer <= b.FewTokens {
				continue
			}
			b.MatMul(s.Name, got, n, w, a, fewer, 0, n, k)
			wantBits(t, fmt.Sprintf("%d of %d tokens", fewer, tokens), got[:fewer*n], want)
		}
	}
}

func wantBits(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for i := range got {
		if !sameBits(got[i], want[i]) {
			t.Fatalf("%s: element %d is %g, want %g to the bit", what, i, got[i], want[i])
		}
	}
}

// testSpecialScales puts one unusual f16 into the middle row: subnormals are
// numbers like others, and what is not finite stays in its row.
func testSpecialScales(t *testing.T, b IntegerBackend, s *scheme.Scheme) {
	const n, k, middle = 40, 512, 17
	r := rand.New(rand.NewPCG(8, 9))
	for _, half := range []uint16{0x0001, 0x83ff, 0x0000, 0x8000, 0x7bff, 0x7c00, 0xfc00, 0x7e00} {
		for _, tokens := range []int{1, 4, 16} {
			w, a := RandomRows(r, s, n, k), ordinary(r, tokens*k)
			want, got := make([]float32, tokens*n), make([]float32, tokens*n)
			b.MatMul(s.Name, want, n, w, a, tokens, 0, n, k)
			size := len(w) / n
			SetScales(w[middle*size:(middle+1)*size], s, func() uint16 { return half })
			what := fmt.Sprintf("f16 %#04x, T=%d", half, tokens)
			if half&0x7c00 != 0x7c00 || s.Scale == scheme.ScaleE8M0 || s.Scale == scheme.ScaleE4M3 { // which has no such scale
				checkInteger(t, b, s, what, w, a, tokens, 0, n, k)
				continue
			}
			b.MatMul(s.Name, got, n, w, a, tokens, 0, n, k)
			for i := range got {
				v := float64(got[i])
				if special := math.IsNaN(v) || math.IsInf(v, 0); i%n == middle && !special || i%n != middle && !sameBits(got[i], want[i]) {
					t.Fatalf("%s: row %d is %g", what, i%n, v)
				}
			}
		}
	}
}

// testSpecialActivations wants NaN from a token with a NaN or an infinity, and
// nothing from it in others; a token of zeros or of what is nearly zero gives 0.
func testSpecialActivations(t *testing.T, b IntegerBackend, s *scheme.Scheme) {
	const n, k = 35, 256
	r := rand.New(rand.NewPCG(10, 11))
	w := RandomRows(r, s, n, k)
	for _, tokens := range []int{2, 4, 16} {
		for _, v := range []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))} {
			a := ordinary(r, tokens*k)
			want, got := make([]float32, tokens*n), make([]float32, tokens*n)
			b.MatMul(s.Name, want, n, w, a, tokens, 0, n, k)
			a[k+r.IntN(k)] = v
			b.MatMul(s.Name, got, n, w, a, tokens, 0, n, k)
			for i := range got {
				if bad := got[i] != got[i]; bad != (i/n == 1) || !bad && !sameBits(got[i], want[i]) {
					t.Fatalf("%g in token 1 of %d: token %d is %g", v, tokens, i/n, got[i])
				}
			}
		}
		for _, v := range []float32{0, float32(math.Copysign(0, -1)), 1e-40, -1e-31} {
			a, got := make([]float32, tokens*k), make([]float32, tokens*n)
			for i := range a {
				a[i] = v
			}
			b.MatMul(s.Name, got, n, w, a, tokens, 0, n, k)
			for i := range got {
				if got[i] != 0 {
					t.Fatalf("activations of %g give %g", v, got[i])
				}
			}
		}
	}
}
