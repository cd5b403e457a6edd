package cpu

import "math"

// Softmax replaces x by exp(x - max) / sum. A masked score is -Inf and gets
// exactly 0; a row that is masked throughout becomes zeros, not NaN; a NaN or
// +Inf anywhere makes the whole row NaN. The relative error of an element is at most
// 2^-21 (1 + max - x), and twice that of a plain float32 sum.
func (s *Set) Softmax(x []float32) {
	if len(x) == 0 {
		return
	}
	m := s.maximum(x)
	if math.IsInf(float64(m), -1) && allMasked(x) {
		clear(x)
		return
	}
	s.scale(x, 1/s.expSum(x, m))
}

func allMasked(x []float32) bool {
	for _, v := range x {
		if !math.IsInf(float64(v), -1) {
			return false
		}
	}
	return true
}

// SoftCap replaces x by limit * tanh(x / limit), with a relative error of at most
// 2^-21; results under 1e-30 may be off by as much. limit is positive.
func (s *Set) SoftCap(x []float32, limit float32) { s.softCap(x, limit) }

func softCapGeneric(x []float32, limit float32) {
	for i, v := range x {
		x[i] = float32(float64(limit) * math.Tanh(float64(v)/float64(limit)))
	}
}

func maximumGeneric(x []float32) float32 {
	m := x[0]
	for _, v := range x[1:] {
		if v > m {
			m = v
		}
	}
	return m
}

func expSumGeneric(x []float32, shift float32) float32 {
	var sum float64
	for i, v := range x {
		e := float32(exp64(float64(v - shift)))
		x[i] = e
		sum += float64(e)
	}
	return float32(sum)
}

func logAddGeneric(dst, x []float32) {
	for i, v := range x {
		dst[i] += float32(math.Log(float64(v)))
	}
}

// exp64 is the exponential, within 1e-9 relative, for float32 results: e^x =
// 2^n e^f with n integer and |f| <= ln(2)/2, e^f by its Taylor series to the
// eighth power. Beyond the range of float32 it saturates to values that round
// to 0 and Inf there.
func exp64(x float64) float64 {
	switch {
	case x != x:
		return x
	case x < -110:
		return 0
	case x > 90:
		return math.Inf(1)
	}
	n := math.Floor(float64(x*math.Log2E) + 0.5)
	f := x - float64(n*math.Ln2)
	p := float64(f*(1.0/40320)) + 1.0/5040
	p = float64(p*f) + 1.0/720
	p = float64(p*f) + 1.0/120
	p = float64(p*f) + 1.0/24
	p = float64(p*f) + 1.0/6
	p = float64(p*f) + 0.5
	p = float64(p*f) + 1
	p = float64(p*f) + 1
	return p * math.Float64frombits(uint64(int64(n)+1023)<<52)
}
