package cpu

import "math"

// normKernels are what is done to one row or one head.
type normKernels struct {
	// The sums of x[i]-mean and of its square, in float64.
	moments func(x []float32, mean float64) (sum, squares float64)
	// dst[i] = x[i] * r * (w[i] + offset)
	rmsApply func(dst, x, w []float32, r, offset float32)
	// dst[i] = (x[i]-mean) * r * w[i] + b[i], in float64; an empty b adds nothing.
	layerApply func(dst, x, w, b []float32, mean, r float64)

	ropeHalf, ropeInterleaved func(x, cos, sin []float32)
}

// RMSNorm computes dst[i] = x[i] / sqrt(mean(x*x) + eps) * (w[i] + offset), the
// mean in float64. offset is 1 where the checkpoint stores w - 1 (Gemma), else
// 0. dst may be x.
func (s *Set) RMSNorm(dst, x, w []float32, eps, offset float32) {
	want(len(dst) == len(x) && len(w) == len(x), "RMSNorm", len(dst), len(x), len(w))
	_, squares := s.norm.moments(x, 0)
	r := float32(1 / math.Sqrt(squares/float64(len(x))+float64(eps)))
	s.norm.rmsApply(dst, x, w, r, offset)
}

// LayerNorm computes dst[i] = (x[i] - mean) / sqrt(variance + eps) * w[i] + b[i],
// mean and (population) variance in float64, the variance around the mean. A
// nil b is no bias. dst may be x.
func (s *Set) LayerNorm(dst, x, w, b []float32, eps float32) {
	want(len(dst) == len(x) && len(w) == len(x) && (b == nil || len(b) == len(x)),
		"LayerNorm", len(dst), len(x), len(w), len(b))
	n := float64(len(x))
	sum, _ := s.norm.moments(x, 0)
	mean := sum / n
	_, squares := s.norm.moments(x, mean)
	s.norm.layerApply(dst, x, w, b, mean, 1/math.Sqrt(squares/n+float64(eps)))
}

func momentsGeneric(x []float32, mean float64) (sum, squares float64) {
	for _, v := range x {
		d := float64(v) - mean
		sum += d
		squares += float64(d * d)
	}
	return sum, squares
}

func rmsApplyGeneric(dst, x, w []float32, r, offset float32) {
	for i, v := range x {
		dst[i] = float32(v*r) * (w[i] + offset)
	}
}

func layerApplyGeneric(dst, x, w, b []float32, mean, r float64) {
	for i, v := range x {
		y := float64((float64(v)-mean)*r) * float64(w[i])
		if len(b) > 0 {
			y += float64(b[i])
		}
		dst[i] = float32(y)
	}
}

func genericNorms() normKernels {
	return normKernels{momentsGeneric, rmsApplyGeneric, layerApplyGeneric, ropeHalfGeneric, ropeInterleavedGeneric}
}
