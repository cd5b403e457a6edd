package cpu

import (
	"encoding/binary"
	"math"

	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
)

// An Affine is a matrix of the scheme affine (docs/schemes/affine.md) for products
// with quantized activations: w = S*q - S*zero, with S of 32 weights, or of 16 where
// codes have 7 bits or more. The error is that of [Integer], relative to the largest
// S*q instead of the largest weight. It is immutable.
type Affine struct {
	product       *product
	n, k          int
	bits          int
	group, groups int // weights of a stored group, groups of a row
	codes         []byte
	scales, zeros numbers
	middle        float32   // the zero point where none are stored
	index         [8]uint32 // groups of eight neighbouring scales of a product
}

// numbers are stored numbers of one type.
type numbers struct {
	data  []byte
	dtype tensor.DType
}

// Affine returns the kernels for an opened matrix, nil where weights name their
// groups, where groups are no multiples of 32, or 16, and where this level has no
// assembly.
func (s *Set) Affine(m *scheme.Matrix) *Affine {
	p := m.Params
	a := &Affine{n: int(m.N), k: int(m.K), bits: int(p["bits"]), group: int(p["group"]), codes: m.Data(0)}
	form := coarseGroup
	if a.bits >= 7 {
		form = fineGroup
	}
	a.product = s.product(form, true)
	if p["index"] != 0 || a.group%form != 0 && a.group < a.k || a.product.strip[1] == nil {
		return nil
	}
	a.groups = (a.k + a.group - 1) / a.group
	for i := range a.index {
		a.index[i] = uint32(i * form / a.group)
	}
	a.scales = numbers{m.Data(1), typeOf(p["scale"])}
	a.middle = float32(int(1) << (a.bits - 1))
	if p["zero"] != 0 {
		a.zeros = numbers{m.Data(2), typeOf(p["zero"])}
	}
	return a
}

// typeOf returns the element type of a plain scheme's id.
func typeOf(id int64) tensor.DType {
	for _, s := range scheme.Table() {
		if int64(s.ID) == id {
			return s.DType
		}
	}
	return tensor.Invalid
}

func (a *Affine) codeBytes() int { return (a.k*a.bits + 7) / 8 }

func (a *Affine) rowBytes() int {
	return a.codeBytes() + a.groups*(a.scales.dtype.Bits()+a.zeros.dtype.Bits())/8
}

// multiply computes rows first+n0 to first+n1.
func (a *Affine) multiply(c []float32, ldc int, x *Activations, first, n0, n1 int, sc *IntegerScratch) {
	want(x.group == a.product.group, "Affine", x.group)
	if x.t == 0 || n0 == n1 {
		return
	}
	sc.affine = affineRows{a, first}
	if x.many && a.product.tile != nil {
		a.product.many(c, ldc, &sc.affine, x, n0, n1, sc)
		return
	}
	a.product.few(c, ldc, &sc.affine, x, n0, n1, sc)
}

// affineRows are the rows of an Affine from one on.
type affineRows struct {
	*Affine
	first int
}

// unpackRow unpacks row n, padding its end.
func (a *affineRows) unpackRow(dst []byte, n int, sc *IntegerScratch) {
	n += a.first
	size, runs := a.codeBytes(), len(dst)/unpackedBytes
	codes := a.codes[n*size : (n+1)*size]
	whole := a.k / recordValues
	if n == a.n-1 && a.bits != 4 && a.bits != 8 {
		whole = max(whole-1, 0) // codes of other widths are read eight bytes at a time
	}
	a.spread(dst, codes, whole)
	for i := whole; i < runs; i++ {
		a.spreadLast(dst[i*unpackedBytes:][:recordValues], codes, i*recordValues)
	}
	a.putScales(dst, n, runs, sc)
	if a.product.set.signed && a.product.group == fineGroup {
		signRuns(dst)
	}
}

// spread widens codes of whole runs to bytes.
func (a *Affine) spread(dst, codes []byte, runs int) {
	s := a.product.set
	switch {
	case runs == 0:
	case a.bits == 8 && s.spreadBytes != nil:
		s.spreadBytes(dst, codes, runs)
	case a.bits == 4 && s.spreadNibbles != nil:
		s.spreadNibbles(dst, codes, runs)
	case s.spreadBits != nil:
		s.spreadBits(dst, codes, runs, a.bits)
	default:
		for i := range runs {
			a.spreadLast(dst[i*unpackedBytes:][:recordValues], codes, i*recordValues)
		}
	}
}

// spreadLast widens the codes from weight k on, and zeros where there are none.
func (a *Affine) spreadLast(dst, codes []byte, k int) {
	here := min(a.k-k, recordValues)
	clear(dst[here:])
	scheme.UnpackCodes(dst[:here], codes[k*a.bits/8:(k*a.bits+here*a.bits+7)/8], a.bits)
}

// putScales writes S and M of every run.
func (a *Affine) putScales(dst []byte, n, runs int, sc *IntegerScratch) {
	const more = 8 // numbers that spreadScales reads at once
	sc.group = [2][]float32{grown(sc.group[0], a.groups+more), grown(sc.group[1], a.groups+more)}
	s, z := sc.group[0][:a.groups], sc.group[1][:a.groups]
	set := a.product.set
	set.floats(s, &a.scales, n*a.groups)
	if a.zeros.data == nil {
		for g, v := range s {
			z[g] = v * a.middle
		}
	} else {
		set.floats(z, &a.zeros, n*a.groups)
		for g, v := range s {
			z[g] *= v
		}
	}
	form := a.product.group
	parts, share := recordValues/form, max(a.group/form, 1) // of a run, of a stored group
	if a.groups == 1 {
		share = runs * parts
	}
	if set.spreadScales != nil && (share%8 == 0 || 8%share == 0) {
		step, every := max(8/share, 1), max(share/8, 1)
		set.spreadScales(dst, sc.group[0], sc.group[1], &a.index, step, every, runs, parts)
		return
	}
	g, left := 0, share
	bits, zero := math.Float32bits(s[0]), math.Float32bits(z[0])
	for i := range runs {
		r := dst[i*unpackedBytes+recordValues:][:8*parts]
		lower, upper := r[:4*parts], r[4*parts:8*parts]
		for p := 0; p < len(lower); p += 4 {
			if left == 0 && g+1 < a.groups {
				g, left = g+1, share
				bits, zero = math.Float32bits(s[g]), math.Float32bits(z[g])
			}
			left--
			binary.LittleEndian.PutUint32(lower[p:p+4], bits)
			binary.LittleEndian.PutUint32(upper[p:p+4], zero)
		}
	}
}

// floats widens len(dst) stored numbers from one on.
func (s *Set) floats(dst []float32, n *numbers, from int) {
	size := n.dtype.Bits() / 8
	src := n.data[from*size : (from+len(dst))*size]
	switch n.dtype {
	case tensor.F16:
		s.decodeF16(dst, src)
	case tensor.BF16:
		s.decodeBF16(dst, src)
	default:
		if err := tensor.ToFloat32(dst, src, n.dtype); err != nil {
			panic(err) // the scheme allows no other types
		}
	}
}

// signRuns turns codes in groups of 16, which may be above 127, into signed bytes, and
// M into that of theirs.
func signRuns(dst []byte) {
	const scales = 4 * recordValues / fineGroup // bytes
	le := binary.LittleEndian
	for ; len(dst) > 0; dst = dst[unpackedBytes:] {
		for i := 0; i < recordValues; i += 8 {
			le.PutUint64(dst[i:], le.Uint64(dst[i:])^bytesOf128)
		}
		for at := recordValues; at < recordValues+scales; at += 4 {
			m := dst[at+scales:]
			s := math.Float32frombits(le.Uint32(dst[at:]))
			le.PutUint32(m, math.Float32bits(math.Float32frombits(le.Uint32(m))-float32(128*s)))
		}
	}
}
