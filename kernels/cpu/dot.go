package cpu

// Dot returns the sum over k of a[k]*b[k]. The slices have the same length.
func (s *Set) Dot(a, b []float32) float32 {
	want(len(a) == len(b), "Dot", len(a), len(b))
	return s.dot(a, b)
}

// DotRows computes y[n] = sum over k of w[n*stride+k] * x[k]: one row of w per
// element of y, K = len(x) values from each. It is Dot for each row, bit for
// bit. Attention scores are DotRows of a query with the rows of the key cache.
func (s *Set) DotRows(y, w []float32, stride int, x []float32) {
	want(rowsFit(len(w), len(y), stride, len(x)), "DotRows", len(y), len(w), stride, len(x))
	s.dotRowsF32(y, w, stride, x)
}

// MatVecF32 computes y[N] = W[N][K] x[K] with N = len(y) and K = len(x).
func (s *Set) MatVecF32(y, w, x []float32) {
	want(len(w) == len(y)*len(x), "MatVecF32", len(y), len(w), len(x))
	s.dotRowsF32(y, w, len(x), x)
}

// MatVecBF16 computes y[N] = W[N][K] x[K] where w holds little-endian bfloat16.
// Products and sums are float32; the weights are never stored expanded. Decode
// is bound by reading w: 2 bytes a weight.
func (s *Set) MatVecBF16(y []float32, w []byte, x []float32) {
	want(len(w) == 2*len(y)*len(x), "MatVecBF16", len(y), len(w), len(x))
	s.dotRowsBF16(y, w, len(x), x)
}

// MatVecF16 is MatVecBF16 for IEEE half precision.
func (s *Set) MatVecF16(y []float32, w []byte, x []float32) {
	want(len(w) == 2*len(y)*len(x), "MatVecF16", len(y), len(w), len(x))
	s.dotRowsF16(y, w, len(x), x)
}

// rowsFit reports whether n rows of k elements at distance stride lie within
// have elements.
func rowsFit(have, n, stride, k int) bool {
	return n == 0 || stride >= k && (n-1)*stride+k <= have
}
