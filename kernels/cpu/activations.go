package cpu

import (
	"encoding/binary"
	"math"
)

// Activations are rows of activations x[T][K], quantized to int8 for the
// integer kernels:
//
//	d = max|x| / 127 over 32 neighbours, q = round(x * (127 / max|x|)), ties to even
//
// so that x is d*q within d/2. A block whose largest magnitude is below 2^-100
// counts as zeros; one with a NaN or an infinity gets d = NaN, and every output
// of its row becomes NaN.
//
// What it costs (TestActivationError), as the root mean square error by that of
// x: 0.54 % for Gaussian values, 0.38 % for uniform ones, 0.42 % where one value
// in 10 is a thousand times the rest, 1.3 % where one in 100 is a hundred times
// the rest. One scale for 256 values instead of 32, as llama.cpp has it for
// k-quants, costs 0.69 % and 2.3 % on the first and the last, and saves no time:
// scales of weights and of activations are multiplied eight or sixteen at once.
//
// The zero value is ready. Fill it with Reset and QuantizeRow, or Quantize. It
// keeps its memory from one use to the next, and may be read by any number of
// goroutines while nobody fills it.
type Activations struct {
	t, k    int
	records int    // of a row
	buf     []byte // [records][T][recordBytes]: a run of all tokens lies together
}

// A record is 256 activations of a row, the last one padded with zeros. All
// numbers are little-endian and everything lies at multiples of 32 bytes:
// first the int8 values, then for its 8 groups of 32 and its 16 groups of 16
// what kernels want to know of them.
const (
	recordValues = 256
	recordBytes  = 512

	atScale   = 256 // float32[8]: d
	atSum     = 288 // float32[8]: d * sum of q, of groups of 32
	atSum16   = 320 // float32[16]: d * sum of q, of groups of 16
	atShift   = 384 // int32[8]: -128 * sum of q, of groups of 32
	atShift16 = 416 // int32[16]: -128 * sum of q, of groups of 16
)

// smallest is the least magnitude that is not taken for zero: below, 127/max
// would leave float32's range.
const smallest = 0x1p-100

// Reset prepares room for t rows of k activations, whose contents are undefined
// until QuantizeRow has filled each. It allocates only to grow.
func (a *Activations) Reset(t, k int) {
	want(t >= 0 && k > 0, "Activations.Reset", t, k)
	a.t, a.k = t, k
	a.records = (k + recordValues - 1) / recordValues
	size := t * a.records * recordBytes
	if size > cap(a.buf) {
		a.buf = make([]byte, max(size, 2*cap(a.buf)))
	}
	a.buf = a.buf[:size]
}

// T returns the number of rows.
func (a *Activations) T() int { return a.t }

// K returns the activations of a row.
func (a *Activations) K() int { return a.k }

// Bytes returns the memory held.
func (a *Activations) Bytes() int { return cap(a.buf) }

// at returns the memory from record i of row t on.
func (a *Activations) at(t, i int) []byte { return a.buf[(i*a.t+t)*recordBytes:] }

// Quantize sets a to the t rows of x, at distance ldx, of k values each.
func (s *Set) Quantize(a *Activations, x []float32, ldx, t, k int) {
	want(rowsFit(len(x), t, ldx, k), "Quantize", len(x), ldx, t, k)
	a.Reset(t, k)
	for i := range t {
		s.QuantizeRow(a, i, x[i*ldx:i*ldx+k])
	}
}

// QuantizeRow sets row t of a, whose K values are x. Different rows may be set
// by different goroutines at once.
func (s *Set) QuantizeRow(a *Activations, t int, x []float32) {
	want(0 <= t && t < a.t && len(x) == a.k, "QuantizeRow", t, a.t, len(x), a.k)
	for i := range a.records {
		dst := (*[recordBytes]byte)(a.at(t, i))
		if len(x) >= recordValues {
			s.quantize(dst, (*[recordValues]float32)(x))
			x = x[recordValues:]
			continue
		}
		var last [recordValues]float32
		copy(last[:], x)
		s.quantize(dst, &last)
	}
}

// Decode writes the K values that row t stands for, d*q, to dst.
func (a *Activations) Decode(dst []float32, t int) {
	want(0 <= t && t < a.t && len(dst) == a.k, "Activations.Decode", t, a.t, len(dst), a.k)
	for i := range dst {
		r := a.at(t, i/recordValues)
		j := i % recordValues
		d := math.Float32frombits(binary.LittleEndian.Uint32(r[atScale+j/32*4:]))
		dst[i] = d * float32(int8(r[j]))
	}
}

// quantizeGeneric fills one record.
func quantizeGeneric(r *[recordBytes]byte, x *[recordValues]float32) {
	le := binary.LittleEndian
	for g := range 8 {
		d, inverse := scaleOf(x[32*g : 32*g+32])
		var sums [2]int32
		for j, v := range x[32*g : 32*g+32] {
			q := int8(math.RoundToEven(float64(float32(v * inverse))))
			r[32*g+j] = byte(q)
			sums[j>>4] += int32(q)
		}
		sum := sums[0] + sums[1]
		le.PutUint32(r[atScale+4*g:], math.Float32bits(d))
		le.PutUint32(r[atSum+4*g:], math.Float32bits(d*float32(sum)))
		le.PutUint32(r[atShift+4*g:], uint32(-128*sum))
		for h, part := range sums {
			le.PutUint32(r[atSum16+8*g+4*h:], math.Float32bits(d*float32(part)))
			le.PutUint32(r[atShift16+8*g+4*h:], uint32(-128*part))
		}
	}
	clear(r[atShift16+64:])
}

// scaleOf returns the scale of a block and what to multiply its values by, both
// zero for a block of zeros.
func scaleOf(x []float32) (d, inverse float32) {
	var top uint32 // magnitudes compare like their bits, NaN above all
	for _, v := range x {
		top = max(top, math.Float32bits(v)&0x7fffffff)
	}
	most := math.Float32frombits(top)
	switch {
	case top >= 0x7f800000:
		return float32(math.NaN()), 0
	case most < smallest:
		return 0, 0
	}
	return most * (1. / 127), 127 / most
}
