package kerneltest

import (
	"fmt"
	"math"
	"math/rand/v2"
)

func normOperations() []operation {
	return []operation{
		{"Softmax", func(b *Backend) bool { return b.Softmax != nil }, softmaxProblems},
		{"RMSNorm", func(b *Backend) bool { return b.RMSNorm != nil }, rmsProblems},
		{"LayerNorm", func(b *Backend) bool { return b.LayerNorm != nil }, layerProblems},
		{"RopeHalf", func(b *Backend) bool { return b.RopeHalf != nil }, func(r *rand.Rand, add func(problem)) {
			ropeProblems(r, add, func(i, h int) (int, int) { return i, i + h },
				func(b *Backend) func(x, cos, sin []float32) { return b.RopeHalf })
		}},
		{"RopeInterleaved", func(b *Backend) bool { return b.RopeInterleaved != nil }, func(r *rand.Rand, add func(problem)) {
			ropeProblems(r, add, func(i, _ int) (int, int) { return 2 * i, 2*i + 1 },
				func(b *Backend) func(x, cos, sin []float32) { return b.RopeInterleaved })
		}},
	}
}

func softmaxProblems(r *rand.Rand, add func(problem)) {
	inf := float32(math.Inf(-1))
	masked := kind{"masked", func(r *rand.Rand, x []float32) {
		normal(r, x)
		for i := range x {
			if r.IntN(3) > 0 && i > 0 {
				x[i] = inf
			}
		}
	}}
	all := kind{"all masked", func(_ *rand.Rand, x []float32) {
		for i := range x {
			x[i] = inf
		}
	}}
	both := kind{"masked but a NaN", func(r *rand.Rand, x []float32) {
		all.fill(r, x)
		if len(x) > 0 {
			x[r.IntN(len(x))] = float32(math.NaN())
		}
	}}
	far := kind{"far apart", func(r *rand.Rand, x []float32) {
		for i := range x {
			x[i] = float32(r.NormFloat64() * 60)
		}
	}}
	for _, kd := range append(kinds(), masked, all, both, far) {
		for _, n := range lengths() {
			x := kd.vector(r, n)
			add(problem{
				name: fmt.Sprintf("%s n=%d", kd.name, n), out: x, floor: 4,
				run:   func(b *Backend, out []float32) { b.Softmax(out) },
				exact: func() []answer { return exactSoftmax(x) },
				plain: func(int) []float32 { return plainSoftmax(x) },
			})
		}
	}
}

// exactSoftmax is the definition; a row masked throughout gives zeros.
func exactSoftmax(x []float32) []answer {
	e, top, sum := make([]answer, len(x)), math.Inf(-1), 0.0
	for _, v := range x {
		top = max(top, float64(v)) // NaN if any is
	}
	if math.IsInf(top, -1) {
		return e
	}
	for _, v := range x {
		sum += math.Exp(float64(v) - top)
	}
	for i, v := range x {
		d := float64(v) - top
		e[i] = answer{value: math.Exp(d) / sum}
		e[i].size = e[i].value * (1 + min(-d, 200)) // x - max is rounded too
	}
	return e
}

func plainSoftmax(x []float32) []float32 {
	y, top, sum := make([]float32, len(x)), float32(math.Inf(-1)), float32(0)
	for _, v := range x {
		top = max(top, v)
	}
	for i, v := range x {
		y[i] = float32(math.Exp(float64(v - top)))
		sum += y[i]
	}
	for i := range y {
		y[i] /= sum
	}
	return y
}

func rmsProblems(r *rand.Rand, add func(problem)) {
	const eps = 1e-6
	for _, kd := range kinds() {
		for _, n := range lengths()[1:] {
			x, w, offset := kd.vector(r, n), ordinary(r, n), float32(n%2)
			add(problem{
				name: fmt.Sprintf("%s n=%d offset=%g", kd.name, n, offset), out: make([]float32, n), floor: 4,
				run: func(b *Backend, out []float32) { b.RMSNorm(out, x, w, eps, offset) },
				exact: func() []answer {
					e, sum := make([]answer, n), 0.0
					for _, v := range x {
						sum += float64(v) * float64(v)
					}
					for i, v := range x {
						y := float64(v) / math.Sqrt(sum/float64(n)+float64(float32(eps)))
						e[i].value = y * (float64(w[i]) + float64(offset))
						e[i].size = math.Abs(y) * (math.Abs(float64(w[i])) + float64(offset))
					}
					return e
				},
				plain: func(int) []float32 { return plainRMS(x, w, eps, offset) },
			})
		}
	}
}

func plainRMS(x, w []float32, eps, offset float32) []float32 {
	y, sum := make([]float32, len(x)), float32(0)
	for _, v := range x {
		sum += float32(v * v)
	}
	root := float32(math.Sqrt(float64(sum/float32(len(x)) + eps)))
	for i, v := range x {
		y[i] = v / root * (w[i] + offset)
	}
	return y
}

func layerProblems(r *rand.Rand, add func(problem)) {
	const eps = 1e-5
	shifted := kind{"far from zero", func(r *rand.Rand, x []float32) {
		for i := range x {
			x[i] = float32(1000 + r.NormFloat64())
		}
	}}
	for _, kd := range append(kinds(), shifted) {
		for _, n := range lengths()[1:] {
			x, w, bias := kd.vector(r, n), ordinary(r, n), ordinary(r, n)
			if n%3 == 0 {
				bias = nil
			}
			add(problem{
				name: fmt.Sprintf("%s n=%d bias=%v", kd.name, n, bias != nil), out: make([]float32, n), floor: 1,
				run:   func(b *Backend, out []float32) { b.LayerNorm(out, x, w, bias, eps) },
				exact: func() []answer { return exactLayer(x, w, bias, eps) },
				// Float64 throughout is asked of LayerNorm: the plain program adds nothing.
				plain: func(int) []float32 {
					y := make([]float32, n)
					for i, e := range exactLayer(x, w, bias, eps) {
						y[i] = float32(e.value)
					}
					return y
				},
			})
		}
	}
}

// exactLayer sums around the first element, another order than a kernel would.
func exactLayer(x, w, bias []float32, eps float32) []answer {
	var sum, squares float64
	first, n := float64(x[0]), float64(len(x))
	for _, v := range x {
		sum += float64(v) - first
	}
	mean := first + sum/n
	for _, v := range x {
		squares += (float64(v) - mean) * (float64(v) - mean)
	}
	e := make([]answer, len(x))
	for i, v := range x {
		y := (float64(v) - mean) / math.Sqrt(squares/n+float64(eps)) * float64(w[i])
		e[i] = answer{y, math.Abs(y) + 1e-9*math.Abs(mean)}
		if bias != nil {
			e[i].value += float64(bias[i])
			e[i].size += math.Abs(float64(bias[i]))
		}
	}
	return e
}

func ropeProblems(r *rand.Rand, add func(problem), pair func(i, half int) (int, int), of func(b *Backend) func(x, cos, sin []float32)) {
	for _, kd := range kinds() {
		for _, n := range lengths() {
			h := n / 2
			if n%3 == 0 {
				h /= 2 // partial: the rest stays
			}
			x, cos, sin := kd.vector(r, n), ordinary(r, h), ordinary(r, h)
			rotate := func(set func(i int, a, b, c, d float32)) {
				for i := range h {
					p, q := pair(i, h)
					set(p, x[p], cos[i], x[q], -sin[i])
					set(q, x[q], cos[i], x[p], sin[i])
				}
			}
			add(problem{
				name: fmt.Sprintf("%s D=%d pairs=%d", kd.name, n, h), out: x, floor: 1,
				skip: func(i int) bool { return i >= 2*h },
				run:  func(b *Backend, out []float32) { of(b)(out, cos, sin) },
				exact: func() []answer {
					e := make([]answer, n)
					rotate(func(i int, a, b, c, d float32) { e[i] = exactDot(0, []float32{a, c}, []float32{b, d}) })
					return e
				},
				plain: func(int) []float32 {
					y := make([]float32, n)
					rotate(func(i int, a, b, c, d float32) { y[i] = float32(a*b) + float32(c*d) })
					return y
				},
			})
		}
	}
}
