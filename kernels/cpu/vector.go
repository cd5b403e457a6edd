package cpu

// Axpy computes dst[i] += a * x[i].
func (s *Set) Axpy(dst []float32, a float32, x []float32) {
	want(len(dst) == len(x), "Axpy", len(dst), len(x))
	s.axpy(dst, a, x)
}

// AccumRows computes dst[d] += sum over t of p[t] * v[t*stride+d], t ascending:
// attention's sum of values, weighted by p, over len(p) rows of len(dst).
func (s *Set) AccumRows(dst, p, v []float32, stride int) {
	want(rowsFit(len(v), len(p), stride, len(dst)), "AccumRows", len(dst), len(p), len(v), stride)
	s.accumRows(dst, p, v, stride)
}

// Scale computes x[i] *= a.
func (s *Set) Scale(x []float32, a float32) { s.scale(x, a) }

// Add computes dst[i] += x[i].
func (s *Set) Add(dst, x []float32) {
	want(len(dst) == len(x), "Add", len(dst), len(x))
	s.add(dst, x)
}

// Mul computes dst[i] *= x[i].
func (s *Set) Mul(dst, x []float32) {
	want(len(dst) == len(x), "Mul", len(dst), len(x))
	s.mul(dst, x)
}

func axpyGeneric(dst []float32, a float32, x []float32) {
	for i, v := range x {
		dst[i] += float32(a * v)
	}
}

func accumRowsGeneric(dst, p, v []float32, ld int) {
	for t, a := range p {
		axpyGeneric(dst, a, v[t*ld:t*ld+len(dst)])
	}
}

func scaleGeneric(x []float32, a float32) {
	for i := range x {
		x[i] *= a
	}
}

func addGeneric(dst, x []float32) {
	for i, v := range x {
		dst[i] += v
	}
}

func mulGeneric(dst, x []float32) {
	for i, v := range x {
		dst[i] *= v
	}
}
