package cpu

import "math"

// A panelKernel multiplies a fixed number of rows: see panelF32Generic.
type panelKernel[B any] struct {
	rows int
	run  func(c []float32, ldc int, a []float32, lda int, b B, ldb, n, k int, add bool)
}

// panelKernels are the products of attention. Each list goes from many rows to
// one; the first element of b's type is what keys and values are stored in.
type panelKernels struct {
	f32 []panelKernel[[]float32]
	f16 []panelKernel[[]byte]
	q8  []panelKernel[[]byte]

	scatterF16 func(dst []byte, ld int, src []float32)
	scatterQ8  func(dst []byte, ld int, src []float32, inverse float32)
	maxBits    func(x []float32) uint32
	expPart    func(x []float32, scale, top float32) (newTop, sum float32)
	expPages   func(x []float32, sums *[scoreBlocks]float32, scale, top float32) (newTop float32) // of scoreStride scores
	// Of 3, 4 and 5 bits: see levelsByFeature and levelsInOrder.
	keyLevels, valueLevels [3]levelsKernel
}

// PanelF32 computes C[M][N] = A[M][K] B[K][N], or adds the product to what c
// holds: each element sums its K products in order, fused where the level can,
// beginning with zero or with c. Rows lie at the distances ldc, lda and ldb,
// in elements; n is a multiple of 16. An element's bits depend on nothing but
// its row of A and its column of B. Unlike Gemm it packs nothing: it is made
// for few rows and a B that is read once, as attention does.
func (s *Set) PanelF32(c []float32, ldc int, a []float32, lda int, b []float32, ldb, m, n, k int, add bool) {
	wantPanel("PanelF32", len(c), ldc, len(a), lda, len(b), ldb, m, n, k)
	runPanel(s.panel.f32, c, ldc, a, lda, b, ldb, m, n, k, add)
}

// PanelF16 is PanelF32 with B in little-endian half precision.
func (s *Set) PanelF16(c []float32, ldc int, a []float32, lda int, b []byte, ldb, m, n, k int, add bool) {
	wantPanel("PanelF16", len(c), ldc, len(a), lda, len(b)/2, ldb, m, n, k)
	runPanel(s.panel.f16, c, ldc, a, lda, b, ldb, m, n, k, add)
}

// PanelQ8 is PanelF32 with B in signed bytes.
func (s *Set) PanelQ8(c []float32, ldc int, a []float32, lda int, b []byte, ldb, m, n, k int, add bool) {
	wantPanel("PanelQ8", len(c), ldc, len(a), lda, len(b), ldb, m, n, k)
	runPanel(s.panel.q8, c, ldc, a, lda, b, ldb, m, n, k, add)
}

func wantPanel(name string, c, ldc, a, lda, b, ldb, m, n, k int) {
	want(m >= 0 && n >= 0 && n%16 == 0 && k >= 0 && rowsFit(c, m, ldc, n) && rowsFit(a, m, lda, k) && rowsFit(b, k, ldb, n),
		name, c, ldc, a, lda, b, ldb, m, n, k)
}

// runPanel takes as many rows at a time as there is a kernel for.
func runPanel[B []byte | []float32](kernels []panelKernel[B], c []float32, ldc int, a []float32, lda int, b B, ldb, m, n, k int, add bool) {
	i := 0
	for _, p := range kernels {
		for ; m-i >= p.rows; i += p.rows {
			p.run(c[i*ldc:], ldc, a[i*lda:], lda, b, ldb, n, k, add)
		}
	}
}

// panelF32Generic takes one row of a, and products unfused.
func panelF32Generic(c []float32, _ int, a []float32, _ int, b []float32, ldb, n, k int, add bool) {
	c = c[:n]
	if !add {
		clear(c)
	}
	for p, f := range a[:k] {
		axpyGeneric(c, f, b[p*ldb:p*ldb+n])
	}
}

func panelF16Generic(c []float32, _ int, a []float32, _ int, b []byte, ldb, n, k int, add bool) {
	var piece [64]float32
	c = c[:n]
	if !add {
		clear(c)
	}
	for p, f := range a[:k] {
		for j := 0; j < n; j += len(piece) {
			part := piece[:min(len(piece), n-j)]
			decodeF16Generic(part, b[2*(p*ldb+j):])
			axpyGeneric(c[j:j+len(part)], f, part)
		}
	}
}

func panelQ8Generic(c []float32, _ int, a []float32, _ int, b []byte, ldb, n, k int, add bool) {
	c = c[:n]
	if !add {
		clear(c)
	}
	for p, f := range a[:k] {
		for j, q := range b[p*ldb : p*ldb+n] {
			c[j] += float32(f * float32(int8(q)))
		}
	}
}

func scatterF16Generic(dst []byte, ld int, src []float32) {
	for i, f := range src {
		h := floatToF16(f)
		dst[2*i*ld], dst[2*i*ld+1] = byte(h), byte(h>>8)
	}
}

func scatterQ8Generic(dst []byte, ld int, src []float32, inverse float32) {
	for i, f := range src {
		dst[i*ld] = byte(int8(math.RoundToEven(float64(f * inverse))))
	}
}

func maxBitsGeneric(x []float32) uint32 {
	var m uint32
	for _, f := range x {
		m = max(m, math.Float32bits(f)&0x7fffffff)
	}
	return m
}

func expPartGeneric(x []float32, scale, top float32) (newTop, sum float32) {
	for i := range x {
		x[i] *= scale
		if x[i] > top {
			top = x[i]
		}
	}
	return top, expSumGeneric(x, top)
}

// expPagesBy is expPart of scoreBlocks blocks, whose sums are apart.
func expPagesBy(expPart func(x []float32, scale, top float32) (float32, float32)) func(x []float32, sums *[scoreBlocks]float32, scale, top float32) float32 {
	return func(x []float32, sums *[scoreBlocks]float32, scale, top float32) float32 {
		top, _ = expPart(x[:scoreStride], scale, top)
		for b := range sums {
			var sum float64
			for _, v := range x[b*KVPositions:][:KVPositions] {
				sum += float64(v)
			}
			sums[b] = float32(sum)
		}
		return top
	}
}

func genericPanel() panelKernels {
	return panelKernels{
		f32: []panelKernel[[]float32]{{1, panelF32Generic}},
		f16: []panelKernel[[]byte]{{1, panelF16Generic}},
		q8:  []panelKernel[[]byte]{{1, panelQ8Generic}},

		scatterF16: scatterF16Generic,
		scatterQ8:  scatterQ8Generic,
		maxBits:    maxBitsGeneric,
		expPart:    expPartGeneric,
		expPages:   expPagesBy(expPartGeneric),

		keyLevels:   [...]levelsKernel{levelsByFeature(3), levelsByFeature(4), levelsByFeature(5)},
		valueLevels: [...]levelsKernel{levelsInOrder(3), levelsInOrder(4), levelsInOrder(5)},
	}
}
