package cpu

import (
	"math"

	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
)

// ActivationsLlamaCPP are activations rounded as llama.cpp's code for
// processors rounds them, to what ggml multiplies with weights of their type;
// products and sums are float32. It is made for comparing measurements with
// that project's, and as slow as [Options.Exact]; see docs/decisions/0011.
const ActivationsLlamaCPP = "llama.cpp"

// A rounding writes to dst what a format keeps of x.
type rounding func(dst, x []float32)

// peerRounding returns what llama.cpp does to activations before it multiplies
// them with weights of a scheme, nil for nothing: blocks of 256 weights meet
// type q8_K, those of 32 meet q8_0 or q8_1, half precision meets its own kind.
// What is no type of ggml's meets them as they are.
//
// Source: vec_dot_type in ggml-cpu.c, quantize_row_q8_K_ref and
// quantize_row_q8_0_ref in ggml-quants.c.
func peerRounding(s *scheme.Scheme) rounding {
	switch {
	case s.GGML < 0:
		return nil
	case s.DType == tensor.F16:
		return func(dst, x []float32) {
			for i, v := range x {
				dst[i] = half(v)
			}
		}
	case s.DType == tensor.BF16:
		return func(dst, x []float32) {
			for i, v := range x {
				dst[i] = tensor.BF16ToF32(tensor.F32ToBF16(v))
			}
		}
	case s.Block == 256:
		return func(dst, x []float32) { roundBlocks(dst, x, 256, func(d float32) float32 { return d }) }
	case s.Block == 32:
		return func(dst, x []float32) { roundBlocks(dst, x, 32, half) }
	}
	return nil
}

func half(v float32) float32 { return tensor.F16ToF32(tensor.F32ToF16(v)) }

// roundBlocks rounds x to 8 bits, n neighbours to a scale d = max|x|/127:
//
//	dst = keep(d) * round(x * (127 / max|x|)), ties to even
//
// keep is how the scale itself is stored.
func roundBlocks(dst, x []float32, n int, keep func(d float32) float32) {
	for len(x) > 0 {
		top := float32(0)
		for _, v := range x[:n] {
			top = max(top, float32(math.Abs(float64(v))))
		}
		d, inverse := keep(top/127), float32(0)
		if top > 0 {
			inverse = 127 / top
		}
		for i, v := range x[:n] {
			dst[i] = d * float32(math.RoundToEven(float64(v*inverse)))
		}
		dst, x = dst[n:], x[n:]
	}
}

// asPeer returns the input x[t][k] as llama.cpp would have it for these
// weights.
func (e *Engine) asPeer(t int, x []float32, m *matrix) []float32 {
	if m.round == nil {
		return x
	}
	p := &e.pass.peer
	p.m, p.source, p.rounded = m, x, fit(p.rounded, t*m.k)
	e.eachRow(t, e.part.round)
	return p.rounded
}

// peerWork is the rounding in progress.
type peerWork struct {
	m               *matrix
	source, rounded []float32
}

func (e *Engine) roundRow(row int) {
	p := &e.pass.peer
	from, to := row*p.m.k, (row+1)*p.m.k
	p.m.round(p.rounded[from:to], p.source[from:to])
}
