package cpu

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/form"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
	kernels "github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/runtime/device"
)

// randomFactor has random bytes, its scales about 0.2.
func randomFactor(b *testing.B, rng *rand.Rand, name, to string, params map[string]int64, n, k int64) formats.Tensor {
	b.Helper()
	s, _ := scheme.ByName(to)
	specs, err := s.Parts([]int64{n, k}, params)
	if err != nil {
		b.Fatal(err)
	}
	var parts []tensor.Blob
	for _, spec := range specs {
		raw := make([]byte, spec.Bytes)
		for i := range raw {
			raw[i] = byte(rng.Uint32())
		}
		for i := 0; to == "q8_0" && i < len(raw); i += 34 {
			raw[i], raw[i+1] = 0, 0x20
		}
		for i := 1; spec.DType == tensor.F16 && i < len(raw); i += 2 {
			raw[i] = 0x30
		}
		parts = append(parts, tensor.BytesBlob(raw))
	}
	t, err := scheme.New(name, s, []int64{n, k}, params, parts...)
	if err != nil {
		b.Fatal(err)
	}
	return t
}

// coded is a random matrix in a scheme.
func coded(b *testing.B, rng *rand.Rand, name, to string, n, k int64) formats.Tensor {
	if to[:3] != "tcq" {
		return randomFactor(b, rng, name, to, nil, n, k)
	}
	q := scheme.TCQ{Bits: int(to[3] - '0'), Codebook: 1, RotateIn: int(min(k, 128)), RotateOut: int(min(n, 128)), Seed: 1}
	return randomFactor(b, rng, name, "tcq", q.Params(), n, k)
}

// BenchmarkCorrected multiplies one token with enough matrices to leave the
// caches, with and without corrections.
func BenchmarkCorrected(b *testing.B) {
	const n, k = 4096, 4096
	for _, c := range []struct {
		code, factors string
		rank          int64
	}{
		{"tcq2", "", 0}, {"tcq2", "q8_0", 32}, {"tcq2", "q8_0", 64}, {"tcq2", "tcq2", 16}, {"tcq2", "tcq2", 64},
		{"q4_k", "", 0}, {"q4_k", "q8_0", 32}, {"q4_k", "q8_0", 64}, {"q8_0", "", 0}, {"q8_0", "q8_0", 64},
	} {
		b.Run(fmt.Sprintf("%s/rank%d%s", c.code, c.rank, c.factors), func(b *testing.B) {
			rng := rand.New(rand.NewPCG(1, 1))
			e := &Engine{set: kernels.Best(), pool: kernels.NewPool(2), local: make([]local, 2)}
			defer e.pool.Close()
			e.part = e.bindParts()
			var list []*matrix
			for range 12 {
				t := coded(b, rng, "q", c.code, n, k)
				if c.rank > 0 {
					var err error
					t, err = form.New("w", form.Corrected, []int64{n, k}, nil, t, coded(b, rng, "a", c.factors, n, c.rank), coded(b, rng, "b", c.factors, c.rank, k))
					if err != nil {
						b.Fatal(err)
					}
				}
				l := &loader{set: e.set, memory: &device.Memory{}}
				list = append(list, l.open(t))
				if l.err != nil {
					b.Fatal(l.err)
				}
			}
			x, y := make([]float32, k), make([]float32, n)
			for i := range x {
				x[i] = float32(rng.NormFloat64())
			}
			i := 0
			for b.Loop() {
				e.multiply(1, x, []target{{list[i%len(list)], y}})
				i++
			}
		})
	}
}
