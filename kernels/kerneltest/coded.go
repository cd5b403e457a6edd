package kerneltest

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
)

// A Coding is a scheme whose tensors have several parts, with parameters.
type Coding struct {
	Name   string // of the coding, as reports spell it
	Scheme string
	Params map[string]int64
}

// Codings lists those that are validated and timed.
func Codings() []Coding {
	id := func(d tensor.DType) int64 { return int64(scheme.ByDType(d).ID) }
	f16, f32 := id(tensor.F16), id(tensor.F32)
	return []Coding{
		{"affine4", "affine", map[string]int64{"bits": 4, "group": 128, "scale": f16, "zero": id(tensor.U8)}},
		{"affine8", "affine", map[string]int64{"bits": 8, "group": 128, "scale": f16}},
		{"affine3", "affine", map[string]int64{"bits": 3, "group": 64, "scale": id(tensor.BF16), "zero": f16}},
		{"fp8", "fp8", map[string]int64{"rows": 128, "cols": 128, "scale": f32}},
		{"nvfp4_rows", "nvfp4", map[string]int64{"rows": 3}},
		{"nf4", "nf4", map[string]int64{"block": 64, "nested": 256}},
	}
}

// RandomMatrix makes n rows of k weights: random codes, scales about 0.1 and zero
// points among the codes. A code that is not a number is made one.
func RandomMatrix(r *rand.Rand, c Coding, n, k int) (*scheme.Matrix, error) {
	t, err := RandomTensor(r, c, n, k)
	if err != nil {
		return nil, err
	}
	return scheme.Open(&t)
}

// RandomTensor is RandomMatrix as it is stored.
func RandomTensor(r *rand.Rand, c Coding, n, k int) (formats.Tensor, error) {
	s, ok := scheme.ByName(c.Scheme)
	if !ok {
		return formats.Tensor{}, fmt.Errorf("no scheme %q", c.Scheme)
	}
	shape := []int64{int64(n), int64(k)}
	specs, err := s.Parts(shape, c.Params)
	if err != nil {
		return formats.Tensor{}, err
	}
	var parts []tensor.Blob
	for _, p := range specs {
		raw := make([]byte, p.Bytes)
		fillPart(r, raw, p.DType, p.Name == "zeros", c.Params["bits"])
		parts = append(parts, tensor.BytesBlob(raw))
	}
	return scheme.New("w", s, shape, c.Params, parts...)
}

func fillPart(r *rand.Rand, raw []byte, d tensor.DType, zeros bool, bits int64) {
	for i := range raw {
		raw[i] = byte(r.Uint32())
	}
	size := d.Bits() / 8
	switch {
	case d == tensor.F8E4M3:
		for i := range raw {
			if raw[i]&0x7f == 0x7f {
				raw[i]--
			}
		}
	case d == tensor.U8 && zeros:
		for i := range raw {
			raw[i] &= 1<<bits - 1
		}
	case d == tensor.I16:
		for i := 0; i < len(raw); i += 2 {
			raw[i], raw[i+1] = raw[i]&(1<<bits-1), 0
		}
	case d != tensor.U8:
		x := make([]float32, len(raw)/size)
		for i := range x {
			if x[i] = 0.05 + 0.1*r.Float32(); zeros {
				x[i] = float32(r.IntN(1 << bits))
			}
		}
		if err := tensor.FromFloat32(raw, x, d); err != nil {
			panic(err) // scales and zero points are floats
		}
	}
}

// A CodedBackend is a device's products of matrices as they are stored.
type CodedBackend struct {
	Name string
	// MatMul is C[T][n0:n1] = A[T][K] W[n0:n1][K]^T, with a at distance K.
	MatMul func(w *scheme.Matrix, c []float32, ldc int, a []float32, t, n0, n1 int)
	// Quantized writes what the activations of a row become for a matrix to dst.
	Quantized func(w *scheme.Matrix, dst, a []float32)
	// FewTokens is the T up to which a token has the bits that it has alone.
	FewTokens int
}

// ValidateCoded holds the products of one coding to float64 on the same
// activations, and returns the first fault. The error allowed is that of integer
// products, relative to the largest code times its scale.
func ValidateCoded(b CodedBackend, c Coding) error {
	const n = 37
	r := rand.New(rand.NewPCG(13, 14))
	for _, k := range []int{256, 512, 1152} {
		w, err := RandomMatrix(r, c, n, k)
		if err != nil {
			return err
		}
		weights, q := make([]float32, n*k), make([]float32, k)
		w.DecodeRows(weights, 0, n)
		most := max(largest(weights), 0.15*math.Exp2(float64(c.Params["bits"])))
		for _, tokens := range tokenCounts() {
			a, got := ordinary(r, tokens*k), make([]float32, tokens*n)
			b.MatMul(w, got, n, a, tokens, 0, n)
			if last := tokens - 1; tokens <= b.FewTokens {
				one := make([]float32, n)
				b.MatMul(w, one, n, a[last*k:], 1, 0, n)
				for i, v := range one {
					if !sameBits(v, got[last*n+i]) {
						return fmt.Errorf("%s of %s: K=%d: row %d gives the last of %d tokens %g, and %g alone", c.Name, b.Name, k, i, tokens, got[last*n+i], v)
					}
				}
			}
			for i, v := range got {
				t, row := i/n, weights[i%n*k:i%n*k+k]
				b.Quantized(w, q, a[t*k:t*k+k])
				size := 0.0
				for _, x := range q {
					size += math.Abs(float64(x))
				}
				want := exactDot(0, row, q).value
				if e := math.Abs(float64(v) - want); !(e <= 2*integerTolerance*size*most) {
					return fmt.Errorf("%s of %s: T=%d K=%d: token %d of row %d is %g, want %g", c.Name, b.Name, tokens, k, t, i%n, v, want)
				}
			}
		}
	}
	return nil
}
