package cpu_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/x448/float16"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
	"github.com/nstf/nstf/kernels/cpu"
)

// randomTCQ returns random codes, which are all valid, and scales about 1/50.
func randomTCQ(rng *rand.Rand, bits, n, k int) (codes, scales []byte) {
	codes, scales = make([]byte, n/16*k/16*32*bits), make([]byte, n/16*2)
	for i := range codes {
		codes[i] = byte(rng.Uint32())
	}
	for i := range n / 16 {
		binary.LittleEndian.PutUint16(scales[2*i:], uint16(float16.Fromfloat32(0.02+float32(i)*0.001)))
	}
	return codes, scales
}

// TestTCQProducts holds MatVec to float64 sums over the rows that Row decodes,
// at the activations that the kernel multiplies with.
func TestTCQProducts(t *testing.T) {
	for _, l := range cpu.Levels() {
		set, err := cpu.ForLevel(l)
		if err != nil {
			t.Fatal(err)
		}
		for bits := 2; bits <= 6; bits++ {
			for _, k := range []int{16, 32, 48, 96, 256, 272, 288, 544} {
				const n, tokens = 48, 2
				rng := rand.New(rand.NewPCG(uint64(bits), uint64(k)))
				codes, scales := randomTCQ(rng, bits, n, k)
				q := set.NewTCQ(scheme.TCQ{Bits: bits, Codebook: scheme.TCQCodebookFor(bits), RotateIn: 1, RotateOut: 1}, n, k, codes, scales)
				if !q.Tuned() {
					if l == cpu.LevelNEON || l == cpu.LevelDotProd {
						t.Fatalf("%v, %d bits: no kernel", l, bits)
					}
					continue
				}
				x := make([]float32, tokens*k)
				for i := range x {
					x[i] = float32(rng.NormFloat64())
				}
				var acts cpu.Activations
				acts.Reset(tokens, k, 32, false)
				for r := range tokens {
					set.QuantizeRow(&acts, r, x[r*k:(r+1)*k])
				}
				y, row := make([]float32, n), make([]float32, k)
				for token := range tokens {
					q.MatVec(y, &acts, token, 0, n)
					for r := range n {
						q.Row(row, r)
						var want, size float64
						for i, w := range row {
							v := rounded(x[token*k:(token+1)*k], i)
							want += float64(w) * v
							size += math.Abs(float64(w) * v)
						}
						if d := math.Abs(float64(y[r]) - want); d > 1e-6*size {
							t.Fatalf("%v, %d bits, K %d, token %d, row %d: %g, want %g", l, bits, k, token, r, y[r], want)
						}
					}
				}
			}
		}
	}
}

// rounded is x[i] as an activation of its group of 32.
func rounded(x []float32, i int) float64 {
	var top float32
	for _, v := range x[i/32*32 : min(i/32*32+32, len(x))] {
		top = max(top, max(v, -v))
	}
	if top == 0 {
		return 0
	}
	return math.RoundToEven(float64(x[i]*(127/top))) * float64(top) / 127
}

// TestTCQRows holds Row, between the rotations of activations and of sums, to
// the reference decode of the scheme.
func TestTCQRows(t *testing.T) {
	s, _ := scheme.ByName("tcq")
	rng := rand.New(rand.NewPCG(8, 8))
	const n, k = 64, 96
	p := scheme.TCQ{Bits: 3, Codebook: scheme.TCQBytes4, RotateIn: 32, RotateOut: 64, Seed: 11, InScales: true, OutScales: true}
	codes, scales := randomTCQ(rng, p.Bits, n, k)
	out, in := make([]float32, n), make([]float32, k)
	parts := [][]byte{codes, scales, halves(rng, out), halves(rng, in)}
	x := tcqTensor(t, s, p, n, k, parts)
	m, err := scheme.Open(&x)
	if err != nil {
		t.Fatal(err)
	}
	a := make([]float32, k)
	for i := range a {
		a[i] = float32(rng.NormFloat64())
	}
	turned := append([]float32(nil), a...)
	cpu.RotateIn(turned, p, in)
	q := cpu.Best().NewTCQ(p, n, k, codes, scales)
	y, row := make([]float32, n), make([]float32, k)
	for r := range n {
		q.Row(row, r)
		var sum float64
		for i := range row {
			sum += float64(row[i]) * float64(turned[i])
		}
		y[r] = float32(sum)
	}
	cpu.RotateOut(y, p, out, 0)
	for r := range n {
		m.DecodeRow(row, int64(r))
		var want, size float64
		for i := range row {
			want += float64(row[i]) * float64(a[i])
			size += math.Abs(float64(row[i]) * float64(a[i]))
		}
		if d := math.Abs(float64(y[r]) - want); d > 1e-5*size {
			t.Fatalf("row %d: %g, want %g", r, y[r], want)
		}
	}
}

func BenchmarkTCQ(b *testing.B) {
	for _, l := range cpu.Levels() {
		set, err := cpu.ForLevel(l)
		if err != nil {
			b.Fatal(err)
		}
		benchmarkTCQ(b, set)
	}
}

func benchmarkTCQ(b *testing.B, set *cpu.Set) {
	for _, n := range []int{512, 1 << 15} { // in the cache, and not
		for bits := 2; bits <= 6; bits++ {
			benchmarkTCQProduct(b, set, bits, n)
		}
	}
}

func benchmarkTCQProduct(b *testing.B, set *cpu.Set, bits, n int) {
	const k = 4096
	b.Run(fmt.Sprintf("%v/%d/%d", set.Level(), n, bits), func(b *testing.B) {
		rng := rand.New(rand.NewPCG(1, 1))
		codes, scales := randomTCQ(rng, bits, n, k)
		q := set.NewTCQ(scheme.TCQ{Bits: bits, Codebook: scheme.TCQBytes4}, n, k, codes, scales)
		if !q.Tuned() {
			b.Skip("no kernel at this level")
		}
		var acts cpu.Activations
		acts.Reset(1, k, 32, false)
		set.QuantizeRow(&acts, 0, make([]float32, k))
		y := make([]float32, n)
		for b.Loop() {
			q.MatVec(y, &acts, 0, 0, n)
		}
		b.ReportMetric(float64(n*k)*float64(b.N)/b.Elapsed().Seconds()/1e9, "Gweights/s")
	})
}

// halves fills v with numbers about 1 that f16 holds, and returns them as f16.
func halves(rng *rand.Rand, v []float32) []byte {
	b := make([]byte, 2*len(v))
	for i := range v {
		h := float16.Fromfloat32(0.5 + rng.Float32())
		v[i] = h.Float32()
		binary.LittleEndian.PutUint16(b[2*i:], uint16(h))
	}
	return b
}

func tcqTensor(t *testing.T, s *scheme.Scheme, p scheme.TCQ, n, k int, parts [][]byte) formats.Tensor {
	t.Helper()
	var blobs []tensor.Blob
	for _, b := range parts {
		blobs = append(blobs, tensor.BytesBlob(b))
	}
	x, err := scheme.New("w", s, []int64{int64(n), int64(k)}, p.Params(), blobs...)
	if err != nil {
		t.Fatal(err)
	}
	return x
}
