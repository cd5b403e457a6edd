package kerneltest

import (
	"slices"

	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/kernels/ops"
)

// Processor gives a level's kernels to the table. The backend has work space: one
// goroutine at a time uses it.
func Processor(s *cpu.Set) Backend {
	var scratch cpu.GemmScratch
	activate := map[string]func(dst, x []float32){}
	for _, a := range []ops.Activation{ops.SiLU, ops.GELU, ops.GELUTanh, ops.QuickGELU, ops.ReLU, ops.ReLU2} {
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
		Axpy: s.Axpy, AccumRows: s.AccumRows, Scale: s.Scale, Add: s.Add, Mul: s.Mul, MulAdd: s.MulAdd, DeltaStep: s.DeltaStep, DeltaStepByChannel: s.DeltaStepByChannel, ScanStep: s.ScanStep,
		DecodeF16: s.DecodeF16, DecodeBF16: s.DecodeBF16, EncodeF16: s.EncodeF16, EncodeBF16: s.EncodeBF16,
		Softmax: s.Softmax, SoftCap: s.SoftCap, RMSNorm: s.RMSNorm, LayerNorm: s.LayerNorm,
		RopeHalf: s.RopeHalf, RopeInterleaved: s.RopeInterleaved,
		PanelF32: s.PanelF32, PanelF16: s.PanelF16, PanelQ8: s.PanelQ8, Attend: attend(s),
		Activate: activate, SiLUMul: s.SiLUMul, SwiGLU: s.SwiGLU, XIELU: s.XIELU, SigmoidMul: s.SigmoidMul,
	}
}

// attend stores an attention's keys and values and attends, in parts where it
// says so.
func attend(s *cpu.Set) func(a *Attention) func(out []float32) {
	return func(a *Attention) func(out []float32) {
		format, err := cpu.ParseKVFormat(a.Format)
		if err != nil {
			panic(err)
		}
		shape := cpu.Attention{Format: format, Dim: a.Dim, Value: a.Value, Group: a.Group, Scale: a.Scale, Softcap: a.Softcap}
		var blocks []cpu.KVBlock
		positions := len(a.Keys) / a.Dim
		for p := range positions {
			if p%cpu.KVPositions == 0 {
				blocks = append(blocks, cpu.NewKVBlocks(format, 1, a.Dim, a.values())...)
			}
			s.StoreKV(format, &blocks[len(blocks)-1], p%cpu.KVPositions, a.Keys[p*a.Dim:(p+1)*a.Dim], a.Values[p*a.values():(p+1)*a.values()])
		}
		reach := make([]cpu.Reach, len(a.Reach))
		for i, r := range a.Reach {
			reach[i] = cpu.Reach{Lo: r[0], Hi: r[1]}
		}
		step, r := a.Split, len(reach)*a.Group
		if step == 0 {
			step = positions
		}
		var parts []cpu.Partial
		for from := 0; from < positions; from += step {
			parts = append(parts, shape.Partial(make([]float32, shape.PartialFloats(r)), r))
		}
		var scratch cpu.AttendScratch
		q := slices.Clone(a.Q)
		format.Turn(q, a.Dim, a.values())
		return func(out []float32) {
			for i, part := range parts {
				s.Attend(part, &shape, blocks, q, reach, i*step, min((i+1)*step, positions), &scratch)
			}
			for i := range r {
				s.Combine(out[i*a.values():(i+1)*a.values()], &shape, parts, i, a.sink(i))
			}
		}
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
			s.Quantize(&a, x, k, t, k, s.Integer(scheme).Group())
			s.Integer(scheme).MatMul(c, ldc, w, &a, n0, n1, &scratch)
		},
		Quantized: func(scheme string, dst, x []float32) {
			s.Quantize(&one, x, len(x), 1, len(x), s.Integer(scheme).Group())
			one.Decode(dst, 0)
		},
	}
}

// CodedProcessor gives a level's products with stored matrices to the table, and what
// executors do where it has none: rows are decoded for the float32 product. The
// backend has work space: one goroutine at a time uses it.
func CodedProcessor(s *cpu.Set) CodedBackend {
	var a, one cpu.Activations
	var scratch cpu.IntegerScratch
	var float cpu.GemmScratch
	return CodedBackend{
		Name: s.Level().String(), FewTokens: cpu.FewTokens,
		MatMul: func(w *scheme.Matrix, c []float32, ldc int, x []float32, t, n0, n1 int) {
			k := int(w.K)
			if coded := s.Coded(w); coded != nil {
				s.Quantize(&a, x, k, t, k, coded.Group())
				coded.MatMul(c, ldc, &a, n0, n1, &scratch)
			} else if dots := s.Dots(w); t <= cpu.FewTokens && dots != nil {
				dots(c[n0:], ldc, x, k, t, n0, n1, &float)
			} else {
				s.Gemm(c, ldc, x, k, t, n0, n1, k, s.Rows(w), &float)
			}
		},
		Quantized: func(w *scheme.Matrix, dst, x []float32) {
			coded := s.Coded(w)
			if coded == nil {
				copy(dst, x)
				return
			}
			s.Quantize(&one, x, len(x), 1, len(x), coded.Group())
			one.Decode(dst, 0)
		},
	}
}
