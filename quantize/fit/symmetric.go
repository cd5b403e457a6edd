package fit

import (
	"math"

	"github.com/nstf/nstf/formats/tensor"
)

// The search for one scale: w ~ d*q with whole q in [low, high].
//
// A candidate scale sends the largest weight to a chosen code; rounding the
// others gives codes, and least squares gives the best scale for those codes.
// The candidates run over codes about both ends of the range, with both
// signs, so that the longer side of an uneven range can serve either sign,
// and clipping the largest weight is tried where it pays.

// round is the nearest whole number, ties to even, for |x| < 2^22. The inner
// conversion keeps a product that x is from fusing with the sum.
func round(x float32) float32 {
	const magic = 3 << 22
	return float32(float32(x)+magic) - magic
}

// clamp limits q to [low, high].
func clamp(q, low, high float32) float32 {
	if q < low {
		return low
	}
	if q > high {
		return high
	}
	return q
}

// extreme returns the weight of the largest magnitude.
func extreme(x []float32) float32 {
	var top, value float32
	for _, v := range x {
		a := v
		if a < 0 {
			a = -a
		}
		if a > top {
			top, value = a, v
		}
	}
	return value
}

// moments rounds x/d to codes and returns the sums of w*x*q and w*q*q.
func moments(x, w []float32, inv, low, high float32) (xq, qq float32) {
	w = w[:len(x)]
	for i, v := range x {
		q := clamp(round(v*inv), low, high)
		wq := w[i] * q
		xq += float32(wq * v)
		qq += float32(wq * q)
	}
	return xq, qq
}

// distortion is the weighted squared error of x coded with the scale d.
func distortion(x, w []float32, d, low, high float32) float32 {
	w = w[:len(x)]
	inv := inverse(d)
	var sum float32
	for i, v := range x {
		e := v - float32(d*clamp(round(v*inv), low, high))
		sum += float32(float32(w[i]*e) * e)
	}
	return sum
}

// inverse is 1/d, 0 where that is not finite: then every code is 0.
func inverse(d float32) float32 {
	if inv := 1 / d; inv-inv == 0 {
		return inv
	}
	return 0
}

// searchScale returns the best scale for x, a float32 not yet rounded to the
// type it is stored in. steps codes below each end of the range are tried.
func searchScale(x, w []float32, low, high float32, ends []float32) float32 {
	top := extreme(x)
	if top == 0 {
		return 0
	}
	var best, gain float32
	for _, end := range ends {
		for _, code := range [2]float32{low - end, high + end} {
			xq, qq := moments(x, w, code/top, low, high)
			if qq == 0 {
				continue
			}
			// The error is sum(w*x*x) - xq*xq/qq.
			if g := float32(xq*xq) / qq; g > gain {
				best, gain = xq/qq, g
			}
		}
	}
	return best
}

// refine repeats rounding and least squares from d on.
func refine(x, w []float32, d, low, high float32, times int) float32 {
	for range times {
		xq, qq := moments(x, w, inverse(d), low, high)
		if qq == 0 {
			break
		}
		d = xq / qq
	}
	return d
}

// storeHalf rounds d to f16 and looks at the neighbouring values, for the
// codes adapt to the rounded scale; it returns the best pattern and its value.
func storeHalf(x, w []float32, d, low, high float32, others ...float32) (uint16, float32) {
	best, bestValue, least := uint16(0), float32(0), float32(math.MaxFloat32)
	try := func(h uint16) {
		v := tensor.F16ToF32(h)
		if v-v != 0 {
			return
		}
		if e := distortion(x, w, v, low, high); e < least {
			best, bestValue, least = h, v, e
		}
	}
	h := tensor.F32ToF16(d)
	try(h)
	try(h + 1)
	if h&0x7FFF != 0 {
		try(h - 1)
	}
	for _, o := range others {
		try(tensor.F32ToF16(o))
	}
	return best, bestValue
}
