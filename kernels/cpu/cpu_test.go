package cpu_test

import (
	"runtime"
	"testing"

	"github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/kernels/kerneltest"
)

// backend gives a level's kernels to the common table.
func backend(s *cpu.Set) kerneltest.Backend {
	var scratch cpu.GemmScratch
	activate := map[string]func(dst, x []float32){}
	for _, a := range []cpu.Activation{cpu.SiLU, cpu.GELU, cpu.GELUTanh, cpu.QuickGELU, cpu.ReLU} {
		activate[a.String()] = func(dst, x []float32) { s.Activate(a, dst, x) }
	}
	return kerneltest.Backend{
		Name: s.Level().String(),
		Dot:  s.Dot, DotRows: s.DotRows,
		MatVecF32: s.MatVecF32, MatVecBF16: s.MatVecBF16, MatVecF16: s.MatVecF16,
		Gemm: func(c []float32, ldc int, a []float32, lda, t, n0, n1, k int, rows func([]float32, int), add bool) {
			if add {
				s.GemmAdd(c, ldc, a, lda, t, n0, n1, k, rows, &scratch)
			} else {
				s.Gemm(c, ldc, a, lda, t, n0, n1, k, rows, &scratch)
			}
		},
		Axpy: s.Axpy, AccumRows: s.AccumRows, Scale: s.Scale, Add: s.Add, Mul: s.Mul,
		DecodeF16: s.DecodeF16, DecodeBF16: s.DecodeBF16, EncodeF16: s.EncodeF16, EncodeBF16: s.EncodeBF16,
		Softmax: s.Softmax, SoftCap: s.SoftCap, RMSNorm: s.RMSNorm, LayerNorm: s.LayerNorm,
		RopeHalf: s.RopeHalf, RopeInterleaved: s.RopeInterleaved,
		Activate: activate, SiLUMul: s.SiLUMul,
	}
}

// family lists the levels of the architecture that this was built for.
func family() []cpu.Level {
	if runtime.GOARCH == "arm64" {
		return []cpu.Level{cpu.LevelGeneric, cpu.LevelNEON, cpu.LevelDotProd}
	}
	return []cpu.Level{cpu.LevelGeneric, cpu.LevelAVX2, cpu.LevelAVX512}
}

// eachLevel runs a test for every level of the family, skipping by name those
// that this machine or build lacks.
func eachLevel(t *testing.T, f func(t *testing.T, s *cpu.Set)) {
	for _, l := range family() {
		t.Run(l.String(), func(t *testing.T) {
			s, err := cpu.ForLevel(l)
			if err != nil {
				t.Skip(err)
			}
			f(t, s)
		})
	}
}

func TestKernels(t *testing.T) {
	eachLevel(t, func(t *testing.T, s *cpu.Set) { kerneltest.Test(t, backend(s)) })
}

func BenchmarkKernels(b *testing.B) {
	for _, l := range cpu.Levels() {
		s, err := cpu.ForLevel(l)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(l.String(), func(b *testing.B) { kerneltest.Bench(b, backend(s)) })
	}
}
