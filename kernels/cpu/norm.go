package cpu

import "math"

// RMSNorm computes dst[i] = x[i] / sqrt(mean(x*x) + eps) * (w[i] + offset), the
// mean in float64. offset is 1 where the checkpoint stores w - 1 (Gemma), else
// 0. dst may be x.
func (s *Set) RMSNorm(dst, x, w []float32, eps, offset float32) {
	want(len(dst) == len(x) && len(w) == len(x), "RMSNorm", len(dst), len(x), len(w))
	var sum float64
	for _, v := range x {
		sum += float64(v) * float64(v) // exact product: 48 bits
	}
	r := float32(1 / math.Sqrt(sum/float64(len(x))+float64(eps)))
	for i, v := range x {
		dst[i] = float32(v*r) * (w[i] + offset)
	}
}

// LayerNorm computes dst[i] = (x[i] - mean) / sqrt(variance + eps) * w[i] + b[i],
// mean and (population) variance in float64, the variance around the mean. A
// nil b is no bias. dst may be x.
func (s *Set) LayerNorm(dst, x, w, b []float32, eps float32) {
	want(len(dst) == len(x) && len(w) == len(x) && (b == nil || len(b) == len(x)),
		"LayerNorm", len(dst), len(x), len(w), len(b))
	var sum float64
	for _, v := range x {
		sum += float64(v)
	}
	mean := sum / float64(len(x))
	sum = 0
	for _, v := range x {
		d := float64(v) - mean
		sum += float64(d * d)
	}
	r := 1 / math.Sqrt(sum/float64(len(x))+float64(eps))
	for i, v := range x {
		y := float64((float64(v)-mean)*r) * float64(w[i])
		if b != nil {
			y += float64(b[i])
		}
		dst[i] = float32(y)
	}
}
