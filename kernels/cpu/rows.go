package cpu

import (
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
)

// Rows returns the decoder of an opened matrix for [Set.Gemm], with this level's
// assembly for weights that are floats of 16, 8 or 4 bits (fp8, nf4). It decodes to
// the bits of the scheme's reference.
func (s *Set) Rows(m *scheme.Matrix) RowDecoder {
	k := int(m.K)
	switch {
	case m.Scheme.DType == tensor.F16 || m.Scheme.DType == tensor.BF16:
		decode := s.decodeF16
		if m.Scheme.DType == tensor.BF16 {
			decode = s.decodeBF16
		}
		data := m.Data(0)
		return func(dst []float32, row int) { decode(dst[:k], data[2*row*k:2*(row+1)*k]) }
	case m.Scheme.Name == "fp8" && s.decodeF8E4M3 != nil:
		return s.newFloats8(m).decode
	case m.Scheme.Name == "nf4" && s.decodeLevels != nil && nf4Fits(m):
		return s.newFloats4(m).decode
	}
	return func(dst []float32, row int) { m.DecodeRow(dst, int64(row)) }
}

// Dots are products with the rows of a matrix by scales of their own: c[t][n] for t < T
// and n0 <= n < n1, of a[T][K], rows at distance ldc and lda; c[0] is token 0 of output
// n0. A token's
// bits are those that it has alone: one token is multiplied with weights as they are
// stored, several with rows that are decoded once, but for their scales.
type Dots func(c []float32, ldc int, a []float32, lda, t, n0, n1 int, scratch *GemmScratch)

// Rows returns the products with the rows from one on.
func (d Dots) Rows(row int) Dots {
	return func(c []float32, ldc int, a []float32, lda, t, n0, n1 int, scratch *GemmScratch) {
		d(c, ldc, a, lda, t, row+n0, row+n1, scratch)
	}
}

// Dots returns the products of an opened matrix with few tokens, nil where this level
// has none for the scheme. Sums are float32, as those of [Set.Gemm].
func (s *Set) Dots(m *scheme.Matrix) Dots {
	switch {
	case m.Scheme.Name == "fp8" && s.dotF8E4M3 != nil && m.Params["cols"]%16 == 0 && m.K%16 == 0:
		f := s.newFloats8(m)
		return dots(f.k, f.cols, s.dotFloats8, f)
	case m.Scheme.Name == "nf4" && s.dotLevels != nil && m.Params["block"]%16 == 0 && nf4Fits(m):
		f := s.newFloats4(m)
		return dots(f.k, f.block, s.dotFloats4, f)
	}
	return nil
}

// A blockRow is a row of a matrix whose blocks have factors.
type blockRow interface {
	// factors writes those of the row's blocks from one on.
	factorsOf(dst []float32, row, first int)
	// dot multiplies some of the row's values, whole blocks from one on, with x.
	dot(x []float32, row, from int, factors []float32, block int) float32
	// unscaled decodes the row without factors.
	unscaled(dst []float32, row int)
}

// dots multiplies rows of k values in blocks; the last one may be shorter. As many
// blocks as there is room for factors make a sum.
func dots(k, block int, product func(x, w, factors []float32, block int) float32, w blockRow) Dots {
	return func(c []float32, ldc int, a []float32, lda, t, n0, n1 int, sc *GemmScratch) {
		want(rowsFit(len(a), t, lda, k) && rowsFit(len(c), t, ldc, n1-n0), "Dots", len(c), ldc, len(a), lda, t, n0, n1, k)
		var factors [factorsAtOnce]float32
		if t > 1 {
			sc.rows = grown(sc.rows, k)
		}
		for n := n0; n < n1; n++ {
			if t > 1 {
				w.unscaled(sc.rows[:k], n)
			}
			for from := 0; from < k; {
				size, here := block, min((k-from)/block, factorsAtOnce)
				if here == 0 { // the rest of the row
					size, here = k-from, 1
				}
				w.factorsOf(factors[:here], n, from/block)
				to := from + here*size
				for i := range t {
					x, sum := a[i*lda+from:i*lda+to], float32(0)
					if t == 1 {
						sum = w.dot(x, n, from, factors[:here], size)
					} else {
						sum = product(x, sc.rows[from:to], factors[:here], size)
					}
					at := i*ldc + n - n0
					if from > 0 {
						sum += c[at]
					}
					c[at] = sum
				}
				from = to
			}
		}
	}
}

// factorsAtOnce is how many blocks of a row are scaled by one call.
const factorsAtOnce = 64

// floats8 is a matrix of docs/schemes/fp8.md: a scale for each rectangle of weights.
type floats8 struct {
	set              *Set
	k, cols, perRect int
	wide             int // scales of a row
	codes            []byte
	scales           numbers
	values           *[256]float32
}

func (s *Set) newFloats8(m *scheme.Matrix) *floats8 {
	f := &floats8{set: s, k: int(m.K), cols: int(m.Params["cols"]), perRect: int(m.Params["rows"]), codes: m.Data(0),
		scales: numbers{m.Data(1), typeOf(m.Params["scale"])}, values: tensor.F8E4M3Values()}
	f.wide = (f.k + f.cols - 1) / f.cols
	return f
}

func (f *floats8) decode(dst []float32, row int) {
	src := f.codes[row*f.k : (row+1)*f.k]
	for c := range f.wide {
		var scale [1]float32
		f.set.floats(scale[:], &f.scales, row/f.perRect*f.wide+c)
		from, to := c*f.cols, min((c+1)*f.cols, f.k)
		y, q := dst[from:to], src[from:to]
		whole := len(y) &^ 15
		f.set.decodeF8E4M3(y[:whole], q, scale[0])
		for j := whole; j < len(y); j++ {
			y[j] = f.values[q[j]] * scale[0]
		}
	}
}

func (f *floats8) factorsOf(dst []float32, row, first int) {
	f.set.floats(dst, &f.scales, row/f.perRect*f.wide+first)
}

func (f *floats8) dot(x []float32, row, from int, factors []float32, block int) float32 {
	return f.set.dotF8E4M3(x, f.codes[row*f.k+from:], factors, block)
}

func (f *floats8) unscaled(dst []float32, row int) {
	f.set.decodeF8E4M3(dst, f.codes[row*f.k:(row+1)*f.k], 1)
}

// nf4Fits reports whether rows are whole blocks, which run over the whole tensor, of
// a multiple of 8.
func nf4Fits(m *scheme.Matrix) bool { return m.Params["block"]%8 == 0 && m.K%m.Params["block"] == 0 }

// floats4 is a matrix of docs/schemes/nf4.md: 16 levels and a magnitude for each
// block, stored as it is or as one of 256 levels of a second one.
type floats4 struct {
	set          *Set
	k, block     int
	codes        []byte
	levels       [16]float32
	absmax       numbers
	nested       int
	second       numbers
	secondLevels [256]float32
	offset       [1]float32
}

func (s *Set) newFloats4(m *scheme.Matrix) *floats4 {
	f := &floats4{set: s, k: int(m.K), block: int(m.Params["block"]), codes: m.Data(0), absmax: numbers{m.Data(2), tensor.F32}, nested: int(m.Params["nested"])}
	s.floats(f.levels[:], &numbers{m.Data(1), tensor.F32}, 0)
	if f.nested > 0 {
		f.second = numbers{m.Data(3), tensor.F32}
		s.floats(f.secondLevels[:], &numbers{m.Data(4), tensor.F32}, 0)
		s.floats(f.offset[:], &numbers{m.Data(5), tensor.F32}, 0)
	}
	return f
}

// factors writes the magnitudes of blocks from one on.
func (f *floats4) factors(dst []float32, first int) {
	if f.nested == 0 {
		f.set.floats(dst, &f.absmax, first)
		return
	}
	var top [1]float32
	for i := range dst {
		if b := first + i; i == 0 || b%f.nested == 0 {
			f.set.floats(top[:], &f.second, b/f.nested)
		}
		dst[i] = float32(f.secondLevels[f.absmax.data[first+i]]*top[0]) + f.offset[0]
	}
}

func (f *floats4) decode(dst []float32, row int) {
	var factors [factorsAtOnce]float32
	for at := 0; at < f.k; {
		n := min((f.k-at)/f.block, factorsAtOnce)
		f.factors(factors[:n], (row*f.k+at)/f.block)
		f.set.decodeLevels(dst[at:at+n*f.block], f.codes[(row*f.k+at)/2:], &f.levels, factors[:n], f.block)
		at += n * f.block
	}
}

func (f *floats4) factorsOf(dst []float32, row, first int) {
	f.factors(dst, row*f.k/f.block+first)
}

func (f *floats4) dot(x []float32, row, from int, factors []float32, block int) float32 {
	return f.set.dotLevels(x, f.codes[(row*f.k+from)/2:], &f.levels, factors, block)
}

func (f *floats4) unscaled(dst []float32, row int) {
	one := [1]float32{1}
	f.set.decodeLevels(dst, f.codes[row*f.k/2:], &f.levels, one[:], f.k)
}
