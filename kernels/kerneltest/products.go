package kerneltest

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
)

func productOperations() []operation {
	return []operation{
		{"Dot", func(b *Backend) bool { return b.Dot != nil }, dotProblems},
		{"DotRows", func(b *Backend) bool { return b.DotRows != nil }, rowProblems},
		{"MatVecF32", func(b *Backend) bool { return b.MatVecF32 != nil }, matVecF32Problems},
		{"MatVecBF16", func(b *Backend) bool { return b.MatVecBF16 != nil }, matVecBF16Problems},
		{"MatVecF16", func(b *Backend) bool { return b.MatVecF16 != nil }, matVecF16Problems},
		{"Gemm", func(b *Backend) bool { return b.Gemm != nil }, gemmProblems},
		{"AccumRows", func(b *Backend) bool { return b.AccumRows != nil }, accumProblems},
	}
}

// exactDot adds products to start in float64.
func exactDot(start float32, a, b []float32) answer {
	e := answer{float64(start), math.Abs(float64(start))}
	for i, v := range a {
		p := float64(v) * float64(b[i])
		e.value += p
		e.size += math.Abs(p)
	}
	return e
}

// plainDot is the plain float32 program, begun an eighth of the way further
// each turn.
func plainDot(turn int, start float32, a, b []float32) float32 {
	for i := range a {
		j := (i + turn*len(a)/turns) % len(a)
		start += float32(a[j] * b[j])
	}
	return start
}

// matVec is a matrix-vector problem over w already in float32, of stride ld.
func matVec(name string, w []float32, ld, n int, x []float32, run func(b *Backend, out []float32)) problem {
	k := len(x)
	return problem{
		name: name, out: make([]float32, n), floor: 1, run: run,
		exact: func() []answer {
			e := make([]answer, n)
			for i := range e {
				e[i] = exactDot(0, w[i*ld:i*ld+k], x)
			}
			return e
		},
		plain: func(turn int) []float32 {
			y := make([]float32, n)
			for i := range y {
				y[i] = plainDot(turn, 0, w[i*ld:i*ld+k], x)
			}
			return y
		},
	}
}

func dotProblems(r *rand.Rand, add func(problem)) {
	for _, kd := range kinds() {
		for _, k := range lengths() {
			a, x := kd.vector(r, k), ordinary(r, k)
			add(matVec(fmt.Sprintf("%s K=%d", kd.name, k), a, k, 1, x,
				func(b *Backend, out []float32) { out[0] = b.Dot(a, x) }))
		}
	}
}

// rowCounts cross the groups of rows that kernels take at once.
func rowCounts() []int { return []int{0, 1, 2, 3, 4, 5, 7, 8, 9} }

func rowProblems(r *rand.Rand, add func(problem)) {
	for _, k := range lengths() {
		for _, n := range rowCounts() {
			ld := k + n%3
			w, x := ordinary(r, max(n-1, 0)*ld+k), ordinary(r, k)
			add(matVec(fmt.Sprintf("N=%d K=%d stride=%d", n, k, ld), w, ld, n, x,
				func(b *Backend, out []float32) { b.DotRows(out, w, ld, x) }))
		}
	}
}

func matVecF32Problems(r *rand.Rand, add func(problem)) {
	matVecProblems(r, add, func(w []float32) (decoded []float32, run func(b *Backend, y, x []float32)) {
		return w, func(b *Backend, y, x []float32) { b.MatVecF32(y, w, x) }
	})
}

func matVecBF16Problems(r *rand.Rand, add func(problem)) {
	matVecProblems(r, add, func(w []float32) ([]float32, func(b *Backend, y, x []float32)) {
		raw := make([]byte, 2*len(w)+1)[1:] // odd address
		decoded := make([]float32, len(w))
		for i, v := range w {
			h := uint16(math.Float32bits(v) >> 16)
			binary.LittleEndian.PutUint16(raw[2*i:], h)
			decoded[i] = math.Float32frombits(uint32(h) << 16)
		}
		return decoded, func(b *Backend, y, x []float32) { b.MatVecBF16(y, raw, x) }
	})
}

func matVecF16Problems(r *rand.Rand, add func(problem)) {
	matVecProblems(r, add, func(w []float32) ([]float32, func(b *Backend, y, x []float32)) {
		raw := make([]byte, 2*len(w)+1)[1:]
		decoded := make([]float32, len(w))
		for i, v := range w {
			h := nearestHalf(v)
			binary.LittleEndian.PutUint16(raw[2*i:], h)
			decoded[i] = float32(halfValue(h))
		}
		return decoded, func(b *Backend, y, x []float32) { b.MatVecF16(y, raw, x) }
	})
}

// matVecProblems asks store for the weights as they come back from storage and
// for the call that uses them.
func matVecProblems(r *rand.Rand, add func(problem), store func(w []float32) ([]float32, func(b *Backend, y, x []float32))) {
	for _, kd := range kinds() {
		for i, k := range lengths() {
			n := rowCounts()[i%len(rowCounts())]
			w, x := kd.vector(r, n*k), ordinary(r, k)
			decoded, run := store(w)
			add(matVec(fmt.Sprintf("%s N=%d K=%d", kd.name, n, k), decoded, k, n, x,
				func(b *Backend, out []float32) { run(b, out, x) }))
		}
	}
}

func gemmProblems(r *rand.Rand, add func(problem)) {
	for _, t := range []int{0, 1, 2, 4, 5, 6, 7, 11, 12, 13, 25} {
		for _, n := range []int{1, 8, 15, 16, 33, 70, 130} {
			for _, k := range []int{1, 7, 8, 33, 256, 301} {
				gemmProblem(r, add, kinds()[0], t, n/3, n, k, n%2 == 0)
			}
		}
	}
	for _, kd := range kinds() {
		gemmProblem(r, add, kd, 5, 0, 33, 40, false)
		gemmProblem(r, add, kd, 3, 0, 9, 40, true)
	}
	gemmProblem(r, add, kinds()[0], 13, 0, 40, 20000, true) // a panel larger than the scratch aims at
}

func gemmProblem(r *rand.Rand, add func(problem), kd kind, t, n0, n1, k int, sum bool) {
	lda, ldc := k+3, n1+5
	a, w := kd.vector(r, max(t-1, 0)*lda+min(t, 1)*k), ordinary(r, n1*k)
	out := make([]float32, max(t-1, 0)*ldc+min(t, 1)*n1)
	normal(r, out)
	start := func(i int) float32 {
		if sum {
			return out[i]
		}
		return 0
	}
	each := func(f func(i int, a, w []float32)) {
		for i := range out {
			if n := i % ldc; n >= n0 && n < n1 {
				f(i, a[i/ldc*lda:i/ldc*lda+k], w[n*k:n*k+k])
			}
		}
	}
	add(problem{
		name:  fmt.Sprintf("%s T=%d N=%d:%d K=%d add=%v", kd.name, t, n0, n1, k, sum),
		out:   out,
		floor: 1,
		skip:  func(i int) bool { return i%ldc < n0 || i%ldc >= n1 },
		run: func(b *Backend, c []float32) {
			b.Gemm(c, ldc, a, lda, t, n0, n1, k, func(dst []float32, row int) { copy(dst, w[row*k:row*k+k]) }, sum)
		},
		exact: func() []answer {
			e := make([]answer, len(out))
			each(func(i int, a, w []float32) { e[i] = exactDot(start(i), a, w) })
			return e
		},
		plain: func(turn int) []float32 {
			y := make([]float32, len(out))
			each(func(i int, a, w []float32) { y[i] = plainDot(turn, start(i), a, w) })
			return y
		},
	})
}

func accumProblems(r *rand.Rand, add func(problem)) {
	for _, kd := range kinds() {
		for i, d := range lengths() {
			t, ld := i%7, d+i%3
			v, p := kd.vector(r, max(t-1, 0)*ld+d), ordinary(r, t)
			out := ordinary(r, d)
			column := func(i int) []float32 {
				c := make([]float32, t)
				for j := range c {
					c[j] = v[j*ld+i]
				}
				return c
			}
			add(problem{
				name: fmt.Sprintf("%s T=%d D=%d stride=%d", kd.name, t, d, ld), out: out, floor: 1,
				run: func(b *Backend, out []float32) { b.AccumRows(out, p, v, ld) },
				exact: func() []answer {
					e := make([]answer, d)
					for i := range e {
						e[i] = exactDot(out[i], p, column(i))
					}
					return e
				},
				plain: func(turn int) []float32 {
					y := make([]float32, d)
					for i := range y {
						y[i] = plainDot(turn, out[i], p, column(i))
					}
					return y
				},
			})
		}
	}
}
