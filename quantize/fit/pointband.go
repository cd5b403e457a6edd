package fit

import (
	"github.com/nstf/nstf/formats/tensor"
	"github.com/nstf/nstf/kernels/cpu"
)

// A metric says what errors of a vector cost together: e' Q e, with Q = M' D M
// of the vector's columns.
type metric struct {
	m       [vector][vector]float32 // below the diagonal of ones
	q       [vector][vector]float32
	weights [vector]float32 // its diagonal
	coupled bool
}

// metricOf returns the metric of the 8 columns from c on that answer one
// another by m, rows at distance ld, under weights w; without m, w alone.
func metricOf(w, m []float32, ld, c int) (out metric) {
	for i := range vector {
		out.q[i][i] = w[c+i]
	}
	out.coupled = m != nil
	for i := 0; out.coupled && i < vector; i++ {
		copy(out.m[i][:i], m[(c+i)*ld+c:])
		for j := range i + 1 {
			var sum float32
			for k := i; k < vector; k++ { // the diagonal of m is 1
				row := m[(c+k)*ld+c:]
				sum += float32(w[c+k] * float32(row[i]*row[j]))
			}
			out.q[i][j], out.q[j][i] = sum, sum
		}
	}
	for i := range vector {
		out.weights[i] = out.q[i][i]
	}
	return out
}

// cost returns e' Q e.
func (q *metric) cost(e *[vector]float32) (sum float32) {
	for i := range q.q {
		sum += float32(e[i] * q.gradient(e, i))
	}
	return sum
}

// target returns what a vector aims at, whose columns weigh w and with what
// errors before it owe to them are z: x with M (x - y) = z - y + (M - 1) (w - y),
// so that whatever y is chosen costs (x - y)' Q (x - y).
func (q *metric) target(w, z *[vector]float32) (x [vector]float32) {
	if !q.coupled {
		return *z
	}
	for i := range x { // M (x - w) = z - w
		x[i] = z[i] - w[i]
		for j, m := range q.m[i][:i] {
			x[i] -= float32(m * x[j])
		}
	}
	for i := range x {
		x[i] += w[i]
	}
	return x
}

func (q *metric) gradient(e *[vector]float32, i int) (sum float32) {
	for j, v := range e {
		sum += float32(q.q[i][j] * v)
	}
	return sum
}

// choosePoints finds scales for points: those of groups by rounding weights one
// by one, then by the points nearest at about such scales, and the block's from
// the largest.
func (s *search) choosePoints(x []cpu.Lane, w []float32) {
	n := len(w) / s.group
	var ideal [16]cpu.Lane
	var top, low, high cpu.Lane
	for g := range n {
		xs, ws := s.part(x, w, g)
		rough := s.scales(xs, ws, 1)
		s.fitPoints(&ideal[g], &rough, xs, ws)
		for l, v := range ideal[g] {
			top[l] = max(top[l], v)
		}
	}
	s.set.LaneRange(&low, &high, x)
	for l, v := range top {
		s.d[l] = finiteHalf(v / (31 * s.points.unit))
		d := tensor.F16ToF32(s.d[l]) * s.points.unit
		if max(high[l], -low[l]) < d*s.points.levels[0] {
			s.d[l] = 0 // f16 has nothing small enough
		}
		inv := inverse(d)
		for g := range n {
			s.sc[g][l] = clamp(round((float32(ideal[g][l]*inv)-1)/2), 0, 15)
		}
	}
}

// fitPoints returns the scale of each row that suits the points nearest at
// about the rough one best.
func (s *search) fitPoints(out, rough *cpu.Lane, x []cpu.Lane, w []float32) {
	var targets [4]target
	steps := [...]float32{0.85, 0.93, 1, 1.08}
	for l := range s.count {
		for v := range len(x) / vector {
			var xv [vector]float32
			column(&xv, x[v*vector:], l)
			s.points.aim(&targets[v], &xv, (*[vector]float32)(w[v*vector:]))
		}
		var gain float32
		for _, step := range steps {
			var product, power float32
			for v := range len(x) / vector {
				_, p, q := s.points.nearest(&targets[v], float32(rough[l]*step))
				product += p
				power += q
			}
			if product > 0 && power > 0 && float32(product*product)/power > gain {
				out[l], gain = product/power, float32(product*product)/power
			}
		}
	}
}

// turnPoints is [band.turn] for points.
func (b *band) turnPoints(d, m []float32, ld int) (loss cpu.Lane) {
	z, e := b.tries[0], b.tries[1]
	var top float32 // what b.w was divided by
	for _, v := range d[:min(len(d), len(b.w))] {
		top = max(top, v)
	}
	for first := 0; first < len(z); first += b.group {
		if m != nil {
			for t := first; t < first+b.group; t += lanes {
				b.set.LaneAnswer((*[lanes]cpu.Lane)(z[t:]), e[:first], m[t*ld:], ld)
			}
		}
		b.nearSteps(first / b.group)
		for c := first; c < first+b.group; c += vector {
			if m != nil {
				answerWithin(z, e, m, ld, first, c)
			}
			q := metricOf(b.w, m, ld, c)
			for l := range b.count {
				loss[l] += float32(top * b.codePoints(&q, c, l))
			}
		}
	}
	return loss
}

// answerWithin adds to the vector at c what it owes to errors from first on.
func answerWithin(z, e []cpu.Lane, m []float32, ld, first, c int) {
	for j := c; j < c+vector; j++ {
		for i := first; i < c; i++ {
			a := m[j*ld+i]
			to, from := &z[j], &e[i]
			for l, v := range from {
				to[l] += float32(a * v)
			}
		}
	}
}

// nearSteps chooses the whole scale of a group once more, among the nearest,
// when what it aims at is known.
func (b *band) nearSteps(g int) {
	x, w := b.part(b.tries[0], b.w, g)
	for l := range b.count {
		d := tensor.F16ToF32(b.search.d[l])
		var products, powers [3]float32
		for v := 0; v < len(w); v += vector {
			var xv [vector]float32
			var t target
			column(&xv, x[v:], l)
			b.points.aim(&t, &xv, (*[vector]float32)(w[v:]))
			for i := range products {
				_, p, q := b.points.nearest(&t, b.points.scale(d, clamp(b.sc[g][l]+float32(i-1), 0, 15)))
				products[i] += p
				powers[i] += q
			}
		}
		at, best := b.sc[g][l], float32(0)
		for i := range products {
			s := clamp(at+float32(i-1), 0, 15)
			scale := b.points.scale(d, s)
			if gain := float32(scale * (float32(2*products[i]) - float32(scale*powers[i]))); i == 0 || gain > best {
				best, b.sc[g][l] = gain, s
			}
		}
	}
}

// codePoints chooses the points of the vector at column c of row l and returns
// what they cost. Where errors of its columns answer one another, the points
// are looked for once more, at what the first leave.
func (b *band) codePoints(q *metric, c, l int) float32 {
	p, out := b.points, &b.rows[l]
	scale := p.scale(tensor.F16ToF32(b.search.d[l]), b.sc[c/b.group][l])
	var w, z, y, left [vector]float32
	var t target
	column(&w, b.tries[1][c:], l)
	column(&z, b.tries[0][c:], l)
	x := q.target(&w, &z)
	aim := x
	least := float32(-1)
	for range 2 {
		p.aim(&t, &aim, &q.weights)
		codes, _, _ := p.nearest(&t, scale)
		var now, e [vector]float32
		p.value(&now, codes, t.signs, scale)
		for j, v := range x {
			e[j] = v - now[j]
		}
		if cost := q.cost(&e); least < 0 || cost < least {
			least, y, left = cost, now, e
			copy(out.at[c/p.width:], codes[:vector/p.width])
			out.signs[c/vector] = t.signs
		}
		if !q.coupled {
			break
		}
		for j, own := range q.weights {
			if own > 0 {
				aim[j] = now[j] + q.gradient(&left, j)/own
			}
		}
	}
	for j, v := range y {
		b.tries[0][c+j][l], b.tries[1][c+j][l] = x[j], w[j]-v
	}
	return least
}
