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

// BenchmarkCorrected multiplies one token with enough matrices to leave the
// caches, with and without corrections.
func BenchmarkCorrected(b *testing.B) {
	const n, k = 4096, 4096
	for _, code := range []string{"tcq2", "tcq3", "q4_k", "q8_0"} {
		for _, rank := range []int64{0, 32, 64} {
			b.Run(fmt.Sprintf("%s/rank%d", code, rank), func(b *testing.B) {
				rng := rand.New(rand.NewPCG(1, 1))
				e := &Engine{set: kernels.Best(), pool: kernels.NewPool(2), local: make([]local, 2)}
				defer e.pool.Close()
				e.part = e.bindParts()
				var list []*matrix
				for i := range 12 {
					name, params := code, map[string]int64(nil)
					if code[:3] == "tcq" {
						name, params = "tcq", scheme.TCQ{Bits: int(code[3] - '0'), Codebook: 1, RotateIn: 128, RotateOut: 128, Seed: int64(i)}.Params()
					}
					t := randomFactor(b, rng, "q", name, params, n, k)
					if rank > 0 {
						var err error
						t, err = form.New("w", form.Corrected, []int64{n, k}, nil, t,
							randomFactor(b, rng, "a", "q8_0", nil, n, rank), randomFactor(b, rng, "b", "q8_0", nil, rank, k))
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
}
