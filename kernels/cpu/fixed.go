package cpu

import "math"

// FixedBlock is the number of columns of a [Fixed].
const FixedBlock = 256

// A Fixed is a block of a float32 matrix in words of 16 bits, a factor of
// [Set.FixedAdd]:
//
//	x[n][k] ~ q[n][k] * unit[n]
//
// Rows are scaled so that no product of two of them leaves 32 bits: products
// are whole numbers then, and every level gives the same bits. A row's error is
// 6e-6 of its length for each column, 1e-4 of an average value. The zero value
// is ready; memory is kept.
type Fixed struct {
	n, k int
	// Two columns a word, the lower in the lower half. Left: [n][FixedBlock/2], with
	// leftRest more rows that tiles may read. Right: [n/nr][pairs][nr] for the
	// level's nr.
	words []uint32
	units []float32
	most  float32 // of units
	right bool
}

const (
	fixedWords = FixedBlock / 2
	// The largest length and value of a row in units: 46009^2 with what rounding
	// adds to a length is less than 2^31.
	fixedLength = 46000
	fixedMost   = 32766
	leftRest    = 7
)

// pairs returns the columns by twos, with zeros behind them to a multiple of 4.
func (f *Fixed) pairs() int { return (f.k + 7) / 8 * 4 }

// A fixedKernel rounds rows and multiplies tiles.
type fixedKernel struct {
	least, mr, nr int
	fix           func(words []uint32, x, unit []float32) // see fixGeneric
	// c[i*ldc+j] += units[i] * (scales[j] * sum over k < 2*pairs of a[i][k] * w[k][j])
	// for i < m and j < nr; pairs is a multiple of 4.
	tile func(m int, a, w []uint32, pairs int, c []float32, ldc int, units, scales []float32)
}

// FixLeft sets f to the left factor x[n][k], rows at distance ld, k <=
// FixedBlock.
func (s *Set) FixLeft(f *Fixed, x []float32, ld, n, k int) {
	want(k > 0 && k <= FixedBlock && rowsFit(len(x), n, ld, k), "FixLeft", len(x), ld, n, k)
	f.n, f.k, f.right = n, k, false
	f.words, f.units = resized(f.words, (n+leftRest)*fixedWords), resized(f.units, n)
	var row [FixedBlock]float32
	for i := range n {
		from := row[:]
		if k == FixedBlock {
			from = x[i*ld : i*ld+k]
		} else {
			copy(from[:k], x[i*ld:])
		}
		s.fixed.fix(f.words[i*fixedWords:], from, f.units[i:])
	}
	f.most = 0
	for _, u := range f.units {
		f.most = max(f.most, u)
	}
}

// FixedError returns the standard error that rounding leaves in an element of
// a's product with b, for their longest rows.
func FixedError(a, b *Fixed) float64 {
	// Each word is off by 1/sqrt(12) of a unit, times a length of the other.
	return math.Sqrt(2.0/12) * fixedLength * float64(a.most) * float64(b.most)
}

// FixRight sets f to the right factor of the same numbers as a left one.
func (s *Set) FixRight(f, left *Fixed) {
	want(!left.right, "FixRight", left.n, left.k)
	n, nr, pairs := left.n, s.fixed.nr, left.pairs()
	whole := (n + nr - 1) / nr * nr
	f.n, f.k, f.most, f.right = n, left.k, left.most, true
	f.words, f.units = resized(f.words, whole*pairs), resized(f.units, whole)
	clear(f.units[copy(f.units, left.units):])
	for j := 0; j < n; j += nr {
		sideBySide(f.words[j*pairs:(j+nr)*pairs], nr, left.words[j*fixedWords:], min(nr, n-j))
	}
}

// sideBySide writes dst[p*nr+j] = src[j*fixedWords+p] for j < n, zeros for the
// others up to nr, a multiple of 4.
func sideBySide(dst []uint32, nr int, src []uint32, n int) {
	if n < nr {
		clear(dst)
	}
	pairs := len(dst) / nr
	for ; n >= 4; n -= 4 {
		a, b, c, d := src[:pairs], src[fixedWords:][:pairs], src[2*fixedWords:][:pairs], src[3*fixedWords:][:pairs]
		for p, v := range a {
			to := (*[4]uint32)(dst[p*nr:])
			to[0], to[1], to[2], to[3] = v, b[p], c[p], d[p]
		}
		dst, src = dst[4:], src[4*fixedWords:]
	}
	for j := range n {
		for p, v := range src[j*fixedWords:][:pairs] {
			dst[p*nr+j] = v
		}
	}
}

// FixedAdd computes c[t][n] += a[t][k] b[n][k]', c's rows at distance ldc, with
// the same bits at every level. t is at least 5. Rows of c have room for n
// rounded up to a multiple of 32: zeros are added there.
func (s *Set) FixedAdd(c []float32, ldc int, a, b *Fixed) {
	g := &s.fixed
	nr, t := g.nr, a.n
	whole := (b.n + nr - 1) / nr * nr
	want(!a.right && b.right && a.k == b.k && t >= leastTokens && rowsFit(len(c), t, ldc, (b.n+31)/32*32),
		"FixedAdd", len(c), ldc, t, a.k, b.n, b.k)
	pairs := b.pairs()
	tiles := (t + g.mr - 1) / g.mr
	for j := 0; j < whole; j += nr {
		for i := range tiles {
			lo, hi := i*t/tiles, (i+1)*t/tiles // even heights, none under least
			g.tile(hi-lo, a.words[lo*fixedWords:], b.words[j*pairs:], pairs, c[lo*ldc+j:], ldc, a.units[lo:], b.units[j:])
		}
	}
}

// FixedWidth is how many rows of a right factor lie side by side: those of sets that differ
// in it cannot be exchanged.
func (s *Set) FixedWidth() int { return s.fixed.nr }

// Right returns the numbers of a right factor, which are not to be changed: words of two
// columns, and the units of its rows.
func (f *Fixed) Right() (words []uint32, units []float32) {
	want(f.right, "Right", f.n, f.k)
	return f.words, f.units
}

// RightSizes returns how many words and units [Fixed.Right] has of n rows of k columns.
func (s *Set) RightSizes(n, k int) (words, units int) {
	whole := (n + s.fixed.nr - 1) / s.fixed.nr * s.fixed.nr
	return whole * (&Fixed{k: k}).pairs(), whole
}

// RightOf returns the right factor of n rows of k columns that [Fixed.Right] gave the numbers
// of, in a set of the same FixedWidth. They are kept.
func (s *Set) RightOf(n, k int, words []uint32, units []float32) Fixed {
	w, u := s.RightSizes(n, k)
	want(n > 0 && k > 0 && k <= FixedBlock && len(words) == w && len(units) == u, "RightOf", n, k, len(words), len(units))
	f := Fixed{n: n, k: k, words: words, units: units, right: true}
	for _, v := range units {
		f.most = max(f.most, v)
	}
	return f
}

func resized[T any](x []T, n int) []T {
	if n <= cap(x) {
		return x[:n]
	}
	return make([]T, n)
}

func genericFixed() fixedKernel {
	return fixedKernel{least: 1, mr: 8, nr: 8, fix: fixGeneric, tile: fixedTileGeneric}
}

// fixGeneric rounds x[FixedBlock] to units of which the row's length is at most
// fixedLength and its largest value at most fixedMost. Without a finite unit the
// row is 0.
func fixGeneric(words []uint32, x, unit []float32) {
	var top float32
	for _, v := range x {
		top = max(top, float32(math.Abs(float64(v))))
	}
	inverse := 1 / top
	var sums [16]float32
	for i, v := range x {
		v = float32(v * inverse)
		sums[i%16] += float32(v * v)
	}
	for n := 8; n > 0; n /= 2 {
		for i := range n {
			sums[i] += sums[i+n]
		}
	}
	scale := float32(min(fixedLength/float32(math.Sqrt(float64(sums[0]))), fixedMost) * inverse)
	words = words[:fixedWords]
	if scale-scale != 0 {
		clear(words)
		unit[0] = 0
		return
	}
	for i := range words {
		low, high := int16(nearest(float32(x[2*i]*scale))), int16(nearest(float32(x[2*i+1]*scale)))
		words[i] = uint32(uint16(low)) | uint32(uint16(high))<<16
	}
	unit[0] = 1 / scale
}

func fixedTileGeneric(m int, a, w []uint32, pairs int, c []float32, ldc int, units, scales []float32) {
	for i := range m {
		var sums [8]int32
		for p, x := range a[i*fixedWords : i*fixedWords+pairs] {
			low, high := int32(int16(x)), int32(int16(x>>16))
			for j, v := range w[8*p : 8*p+8] {
				sums[j] += low*int32(int16(v)) + high*int32(int16(v>>16))
			}
		}
		for j, v := range sums {
			c[i*ldc+j] += float32(float32(float32(v)*scales[j]) * units[i])
		}
	}
}
