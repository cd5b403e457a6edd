package kerneltest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// deltaProblems take a head one position on: the output is S, then what becomes of v.
func deltaProblems(r *rand.Rand, add func(problem)) {
	deltaSteps(r, add, func(dk int) []float32 { return slices.Repeat([]float32{r.Float32()}, dk) },
		func(b *Backend, memory, q, k, v, fade []float32, rate float32) {
			b.DeltaStep(memory, q, k, v, fade[0], rate)
		})
}

// deltaByChannelProblems are the same where every row of S fades by itself.
func deltaByChannelProblems(r *rand.Rand, add func(problem)) {
	deltaSteps(r, add, func(dk int) []float32 {
		fade := make([]float32, dk)
		for i := range fade {
			fade[i] = r.Float32()
		}
		return fade
	}, func(b *Backend, memory, q, k, v, fade []float32, rate float32) {
		b.DeltaStepByChannel(memory, q, k, v, fade, rate)
	})
}

func deltaSteps(r *rand.Rand, add func(problem), fades func(dk int) []float32, run func(b *Backend, memory, q, k, v, fade []float32, rate float32)) {
	for _, kd := range kinds() {
		for _, dv := range lengths()[1:] {
			dk := 1 + dv%7
			if dv == 128 {
				dk = 128
			}
			s, v := kd.vector(r, dk*dv), kd.vector(r, dv)
			q, k := ordinary(r, dk), ordinary(r, dk)
			for i := range k { // of length 1, as they are there
				q[i], k[i] = q[i]/float32(dk), k[i]/float32(dk)
			}
			q, k = input(q), input(k)
			fade, rate := input(fades(dk)), r.Float32()
			out := append(append([]float32(nil), s...), v...)
			add(problem{
				name: fmt.Sprintf("%s dk=%d dv=%d", kd.name, dk, dv), out: out, floor: 8,
				run: func(b *Backend, out []float32) {
					run(b, out[:dk*dv], q, k, out[dk*dv:], fade, rate)
				},
				exact: func() []answer { return exactDelta(s, q, k, v, fade, float64(rate)) },
				plain: func(int) []float32 { return plainDelta(s, q, k, v, fade, rate) },
			})
		}
	}
}

func exactDelta(s, q, k, v, fade []float32, rate float64) []answer {
	dv, out := len(v), make([]answer, len(s)+len(v))
	for j := range dv {
		told, size := 0.0, math.Abs(float64(v[j]))
		for i := range k {
			x := float64(fade[i]) * float64(k[i]) * float64(s[i*dv+j])
			told += x
			size += math.Abs(x)
		}
		u, o := rate*(float64(v[j])-told), &out[len(s)+j]
		for i := range k {
			n, was := &out[i*dv+j], float64(fade[i])*float64(s[i*dv+j])
			n.value = was + float64(k[i])*u
			n.size = math.Abs(was) + math.Abs(float64(k[i]))*rate*size
			o.value += float64(q[i]) * n.value
			o.size += math.Abs(float64(q[i])) * n.size
		}
	}
	return out
}

func plainDelta(s, q, k, v, fade []float32, rate float32) []float32 {
	dv, out := len(v), make([]float32, len(s)+len(v))
	for j := range dv {
		told, sum := float32(0), float32(0)
		for i := range k {
			told += float32(k[i] * float32(fade[i]*s[i*dv+j]))
		}
		u := rate * (v[j] - told)
		for i := range k {
			out[i*dv+j] = float32(fade[i]*s[i*dv+j]) + float32(k[i]*u)
			sum += float32(q[i] * out[i*dv+j])
		}
		out[len(s)+j] = sum
	}
	return out
}

// scanProblems take a head of a state space one position on: the output is S, then what
// becomes of v.
func scanProblems(r *rand.Rand, add func(problem)) {
	for _, kd := range kinds() {
		for _, dv := range lengths()[1:] {
			n := 1 + dv%7
			if dv == 128 {
				n = 128
			}
			s, v, q, k := kd.vector(r, n*dv), kd.vector(r, dv), input(ordinary(r, n)), input(ordinary(r, n))
			fade, rate, skip := r.Float32(), r.Float32(), r.Float32()
			out := append(append([]float32(nil), s...), v...)
			add(problem{
				name: fmt.Sprintf("%s n=%d dv=%d", kd.name, n, dv), out: out, floor: 8,
				run: func(b *Backend, out []float32) {
					b.ScanStep(out[:n*dv], q, k, out[n*dv:], fade, rate, skip)
				},
				exact: func() []answer { return exactScan(s, q, k, v, float64(fade), float64(rate), float64(skip)) },
				plain: func(int) []float32 { return plainScan(s, q, k, v, fade, rate, skip) },
			})
		}
	}
}

func exactScan(s, q, k, v []float32, fade, rate, skip float64) []answer {
	dv, out := len(v), make([]answer, len(s)+len(v))
	for j := range dv {
		o, x := &out[len(s)+j], float64(v[j])
		o.value, o.size = skip*x, math.Abs(skip*x)
		for i := range k {
			n, was, told := &out[i*dv+j], fade*float64(s[i*dv+j]), float64(k[i])*rate*x
			n.value, n.size = was+told, math.Abs(was)+math.Abs(told)
			o.value += float64(q[i]) * n.value
			o.size += math.Abs(float64(q[i])) * n.size
		}
	}
	return out
}

func plainScan(s, q, k, v []float32, fade, rate, skip float32) []float32 {
	dv, out := len(v), make([]float32, len(s)+len(v))
	for j := range dv {
		u, sum := rate*v[j], skip*v[j]
		for i := range k {
			out[i*dv+j] = float32(fade*s[i*dv+j]) + float32(k[i]*u)
			sum += float32(q[i] * out[i*dv+j])
		}
		out[len(s)+j] = sum
	}
	return out
}
