package kerneltest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/nstf/nstf/kernels/ops"
)

// A pointwise kernel computes out[i] from out[i], x[i] and y[i]. Its plain
// program is the reference rounded, so floor alone is its tolerance.
type pointwise struct {
	name  string
	floor float64
	has   func(b *Backend) bool
	run   func(b *Backend, out, x, y []float32)
	exact func(out, x, y float64) answer
}

func pointwiseOperations() []operation {
	var ops []operation
	for _, p := range append(arithmetic(), activations()...) {
		ops = append(ops, operation{p.name, p.has, p.problems})
	}
	return ops
}

// sized is an answer whose error is measured against itself.
func sized(v float64) answer { return answer{v, math.Abs(v)} }

func arithmetic() []pointwise {
	const a, limit = 0.7, 30
	a32 := float64(float32(a))
	return []pointwise{
		{"Axpy", 2, func(b *Backend) bool { return b.Axpy != nil },
			func(b *Backend, out, x, _ []float32) { b.Axpy(out, a, x) },
			func(o, x, _ float64) answer { return answer{o + a32*x, math.Abs(o) + math.Abs(a32*x)} }},
		{"Scale", 1, func(b *Backend) bool { return b.Scale != nil },
			func(b *Backend, out, _, _ []float32) { b.Scale(out, a) },
			func(o, _, _ float64) answer { return sized(o * a32) }},
		{"Add", 1, func(b *Backend) bool { return b.Add != nil },
			func(b *Backend, out, x, _ []float32) { b.Add(out, x) },
			func(o, x, _ float64) answer { return sized(o + x) }},
		{"Mul", 1, func(b *Backend) bool { return b.Mul != nil },
			func(b *Backend, out, x, _ []float32) { b.Mul(out, x) },
			func(o, x, _ float64) answer { return sized(o * x) }},
		{"MulAdd", 2, func(b *Backend) bool { return b.MulAdd != nil },
			func(b *Backend, out, x, y []float32) { b.MulAdd(out, x, y) },
			func(o, x, y float64) answer { return answer{o + x*y, math.Abs(o) + math.Abs(x*y)} }},
		{"SigmoidMul", 6, func(b *Backend) bool { return b.SigmoidMul != nil },
			func(b *Backend, out, _, y []float32) { b.SigmoidMul(out, slices.Clone(y)) },
			func(o, _, y float64) answer { return smooth(sigmoidTimes(o, y)) }},
		{"SoftCap", 4, func(b *Backend) bool { return b.SoftCap != nil },
			func(b *Backend, out, _, _ []float32) { b.SoftCap(out, limit) },
			func(o, _, _ float64) answer {
				if math.IsInf(o, 0) {
					return sized(math.Copysign(limit, o))
				}
				e := math.Expm1(2 * min(o/limit, 50))
				return smooth(limit * e / (e + 2))
			}},
		{"SiLUMul", 6, func(b *Backend) bool { return b.SiLUMul != nil },
			func(b *Backend, out, x, y []float32) { b.SiLUMul(out, x, y) },
			func(_, x, y float64) answer { return smooth(sigmoidTimes(x, x) * y) }},
		swiGLU("SwiGLU", ops.Gating{Alpha: 1.702, Limit: 0.9, Offset: 1}),
		swiGLU("SwiGLU unlimited", ops.Gating{Offset: -0.5}),
		xielu("XIELU", ops.XIELU{Positive: 0.8, Negative: 0.7, Beta: 0.5, Eps: -1e-6}),
		xielu("XIELU cut", ops.XIELU{Positive: 0.25, Negative: 2, Beta: 0.5, Eps: -0.75}),
	}
}

func xielu(name string, o ops.XIELU) pointwise {
	beta, eps := float64(o.Beta), float64(o.Eps)
	return pointwise{name, 6, func(b *Backend) bool { return b.XIELU != nil },
		func(b *Backend, out, x, _ []float32) { b.XIELU(o, out, x) },
		func(_, x, _ float64) answer {
			curve := float64(o.Positive) * x * x
			if !(x > 0) {
				curve = float64(o.Negative) * (math.Expm1(min(x, eps)) - x)
			}
			return answer{curve + beta*x, math.Abs(curve) + math.Abs(beta*x)}
		}}
}

// swiGLU is the product of a gate and what it opens, changed by o.
func swiGLU(name string, o ops.Gating) pointwise {
	alpha, limit, offset := float64(o.Alpha), float64(o.Limit), float64(o.Offset)
	if alpha == 0 {
		alpha = 1
	}
	if limit == 0 {
		limit = math.Inf(1)
	}
	return pointwise{name, 8, func(b *Backend) bool { return b.SwiGLU != nil },
		func(b *Backend, out, x, y []float32) { b.SwiGLU(o, out, x, y) },
		func(_, x, y float64) answer {
			g, u := min(x, limit), min(max(y, -limit), limit)
			opened := argumentRounded(sigmoidTimes(g, alpha*g), alpha*g)
			return answer{opened.value * (u + offset), opened.size * (math.Abs(u) + math.Abs(offset))}
		}}
}

func activations() []pointwise {
	of := func(name string, floor float64, f func(x float64) answer) pointwise {
		return pointwise{name, floor,
			func(b *Backend) bool { return b.Activate[name] != nil },
			func(b *Backend, out, x, _ []float32) { b.Activate[name](out, x) },
			func(_, x, _ float64) answer { return f(x) }}
	}
	return []pointwise{
		of("silu", 6, func(x float64) answer { return smooth(sigmoidTimes(x, x)) }),
		of("gelu", 6, func(x float64) answer { return smooth(x * math.Erfc(-x/math.Sqrt2) / 2) }),
		of("gelu_tanh", 6, func(x float64) answer {
			z := 2 * math.Sqrt(2/math.Pi) * (x + 0.044715*x*x*x)
			return argumentRounded(sigmoidTimes(x, z), z)
		}),
		of("quick_gelu", 6, func(x float64) answer { return argumentRounded(sigmoidTimes(x, 1.702*x), 1.702*x) }),
		of("relu2", 2, func(x float64) answer { return sized(max(x, 0) * max(x, 0)) }),
		of("relu", 0, func(x float64) answer { return sized(max(x, 0)) }),
	}
}

// smooth is sized for results that may be off by 1e-30, which a size of 1e-24
// stands for.
func smooth(v float64) answer { return answer{v, max(math.Abs(v), 1e-24)} }

// sigmoidTimes is x / (1 + exp(-z)).
func sigmoidTimes(x, z float64) float64 { return x / (1 + math.Exp(-z)) }

// argumentRounded allows for the rounding of z, whose absolute error becomes a
// relative one of the exponential.
func argumentRounded(v, z float64) answer {
	return answer{v, smooth(v).size * (1 + min(math.Abs(z), 1000))}
}

func (p pointwise) problems(r *rand.Rand, add func(problem)) {
	fills := append(kinds(), kind{"wide", func(r *rand.Rand, x []float32) {
		normal(r, x)
		for i := range x {
			x[i] *= float32(math.Exp(6*r.Float64() - 3))
		}
	}}, kind{"huge", func(r *rand.Rand, x []float32) {
		normal(r, x)
		for i := range x {
			x[i] *= 1e5
		}
	}})
	for _, kd := range fills {
		for _, n := range lengths() {
			out, x, y := kd.vector(r, n), kd.vector(r, n), ordinary(r, n)
			add(problem{
				name: fmt.Sprintf("%s n=%d", kd.name, n), out: out, floor: p.floor,
				run: func(b *Backend, out []float32) { p.run(b, out, x, y) },
				exact: func() []answer {
					e := make([]answer, n)
					for i := range e {
						e[i] = p.exact(float64(out[i]), float64(x[i]), float64(y[i]))
					}
					return e
				},
				plain: func(int) []float32 {
					v := make([]float32, n)
					for i := range v {
						v[i] = float32(p.exact(float64(out[i]), float64(x[i]), float64(y[i])).value)
					}
					return v
				},
			})
		}
	}
}
