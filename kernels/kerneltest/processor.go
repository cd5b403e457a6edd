package kerneltest

import "github.com/nstf/nstf/kernels/cpu"

// Processor gives a level's kernels to the table. The backend has work space: one
// goroutine at a time uses it.
func Processor(s *cpu.Set) Backend {
	var scratch cpu.GemmScratch
	activate := map[string]func(dst, x []float32){}
	for _, a := range []cpu.Activation{cpu.SiLU, cpu.GELU, cpu.GELUTanh, cpu.QuickGELU, cpu.ReLU} {
		activate[a.String()] = func(dst, x []float32) { s.Activate(a, dst, x) }
	}
	return Backend{
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

// IntegerProcessor gives a level's integer kernels to the table. The backend has
// work space: one goroutine at a time uses it.
func IntegerProcessor(s *cpu.Set) IntegerBackend {
	var a, one cpu.Activations
	var scratch cpu.IntegerScratch
	return IntegerBackend{
		Name: s.Level().String(), Schemes: cpu.Integers(), FewTokens: cpu.FewTokens,
		MatMul: func(scheme string, c []float32, ldc int, w []byte, x []float32, t, n0, n1, k int) {
			s.Quantize(&a, x, k, t, k)
			s.Integer(scheme).MatMul(c, ldc, w, &a, n0, n1, &scratch)
		},
		Quantized: func(dst, x []float32) {
			s.Quantize(&one, x, len(x), 1, len(x))
			one.Decode(dst, 0)
		},
	}
}
