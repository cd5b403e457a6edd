package cpu

import (
	"encoding/binary"
	"math"
)

// Activations are rows of activations x[T][K], quantized to int8 for the
// integer kernels, each value to the nearest q (ties to even) of x = d*q. They
// come in two forms, which [Integer.Group] tells apart:
//
//	32 neighbours share d = max|x| / 127
//	16 neighbours share d = max|x| / n, with the n of 127, 126 ... 120 that
//	   leaves the least sum of squares of x - d*q (the first of equals)
//
// so that x is d*q within d/2. A group whose largest magnitude is below 2^-100
// counts as zeros; one with a NaN or an infinity gets d = NaN, and every output
// of its row becomes NaN.
//
// What it costs (TestActivationError), as the root mean square error by that of
// x, in groups of 32 and of 16: 0.54 and 0.40 % for Gaussian values, 0.38 and
// 0.30 % for uniform ones, 0.42 and 0.27 % where one value in 10 is a thousand
// times the rest, 1.3 and 0.87 % where one in 100 is a hundred times the rest.
// One scale for 256 values, as llama.cpp has it for k-quants, costs 0.69 % and
// 2.3 % on the first and the last. Groups of 16 cost time where weights share
// scales by 32; docs/decisions/0010-finer-activations.md says who takes them.
//
// The zero value is ready. Fill it with Reset and QuantizeRow, or Quantize. It
// keeps its memory from one use to the next, and may be read by any number of
// goroutines while nobody fills it.
type Activations struct {
	t, k    int
	group   int    // 32 or 16
	many    bool   // for the kernels of many tokens
	pitch   int    // records from one run to the next
	records int    // of a row
	buf     []byte // [records][pitch][recordBytes]: a run of all tokens lies together
	ordered []byte // the same as eightsGeneric or sixteensGeneric orders it, for the kernels of few tokens
}

// A record is 256 activations of a row, the last one padded with zeros. All
// numbers are little-endian: first the int8 values, then for its 8 groups of 32,
// or its 16 groups of 16, what kernels want to know of them.
const (
	recordValues = 256
	recordBytes  = 512

	atScale = 256 // float32[8] or [16]: d
	atSum   = 288 // float32[8]: d * sum of q, of groups of 32
	atSum16 = 320 // float32[16]: d * sum of q, of groups of 16
	atShift = 384 // int32[8] or [16]: -128 * sum of q
)

// Groups of activations, and the divisors that those of 16 choose from.
const (
	coarseGroup = 32
	fineGroup   = 16
	divisors    = 8
)

// smallest is the least magnitude that is not taken for zero: below, 127/max
// would leave float32's range.
const smallest = 0x1p-100

// Reset prepares room for t rows of k activations in groups of 32 or 16, whose
// contents are undefined until QuantizeRow has filled each. They are multiplied by
// the kernels for many tokens, as a prompt's rows are, or by those for few, whatever
// t is; see [FewTokens]. It allocates only to grow.
func (a *Activations) Reset(t, k, group int, many bool) {
	want(t >= 0 && k > 0 && (group == coarseGroup || group == fineGroup), "Activations.Reset", t, k, group)
	a.t, a.k, a.group, a.many = t, k, group, many
	a.records = (k + recordValues - 1) / recordValues
	a.pitch = t
	if !many && t > 4 { // a power of two would have a token's runs share a few lines of L1
		a.pitch |= 1
	}
	size := a.pitch * a.records * recordBytes
	if size > cap(a.buf) {
		a.buf = make([]byte, max(size, 2*cap(a.buf)))
	}
	a.buf = a.buf[:size]
	if many {
		size = 0
	}
	a.ordered = grownBytes(a.ordered, size)
}

// T returns the number of rows.
func (a *Activations) T() int { return a.t }

// K returns the activations of a row.
func (a *Activations) K() int { return a.k }

// Group returns how many neighbours share a scale.
func (a *Activations) Group() int { return a.group }

// Bytes returns the memory held.
func (a *Activations) Bytes() int { return cap(a.buf) + cap(a.ordered) }

// at returns the memory from record i of row t on.
func (a *Activations) at(t, i int) []byte { return a.buf[(i*a.pitch+t)*recordBytes:] }

// orderedAt is at of the other order.
func (a *Activations) orderedAt(t, i int) []byte { return a.ordered[(i*a.pitch+t)*recordBytes:] }

// Quantize sets a to the t rows of x, at distance ldx, of k values each, in
// groups of 32 or 16, for the kernels of many tokens where t exceeds [FewTokens].
func (s *Set) Quantize(a *Activations, x []float32, ldx, t, k, group int) {
	want(rowsFit(len(x), t, ldx, k), "Quantize", len(x), ldx, t, k)
	a.Reset(t, k, group, t > FewTokens)
	for i := range t {
		s.QuantizeRow(a, i, x[i*ldx:i*ldx+k])
	}
}

// QuantizeRow sets row t of a, whose K values are x. Different rows may be set
// by different goroutines at once.
func (s *Set) QuantizeRow(a *Activations, t int, x []float32) {
	want(0 <= t && t < a.t && len(x) == a.k, "QuantizeRow", t, a.t, len(x), a.k)
	quantize, order := s.quantize, s.eights
	if a.group == fineGroup {
		quantize, order = s.quantizeFine, s.sixteens
	}
	for i := range a.records {
		dst := (*[recordBytes]byte)(a.at(t, i))
		if len(x) >= recordValues {
			quantize(dst, (*[recordValues]float32)(x))
			x = x[recordValues:]
		} else {
			var last [recordValues]float32
			copy(last[:], x)
			quantize(dst, &last)
		}
		if len(a.ordered) > 0 {
			order((*[recordBytes]byte)(a.orderedAt(t, i)), dst)
		}
	}
}

// Decode writes the K values that row t stands for, d*q, to dst.
func (a *Activations) Decode(dst []float32, t int) {
	want(0 <= t && t < a.t && len(dst) == a.k, "Activations.Decode", t, a.t, len(dst), a.k)
	for i := range dst {
		r := a.at(t, i/recordValues)
		j := i % recordValues
		d := math.Float32frombits(binary.LittleEndian.Uint32(r[atScale+j/a.group*4:]))
		dst[i] = d * float32(int8(r[j]))
	}
}

// quantizeGeneric fills one record in groups of 32.
func quantizeGeneric(r *[recordBytes]byte, x *[recordValues]float32) {
	clear(r[recordValues:])
	for g := range 8 {
		d, inverse := scaleOf(x[32*g : 32*g+32])
		sum := roundTo(r[32*g:32*g+32], x[32*g:32*g+32], inverse)
		putFloat(r, atScale+4*g, d)
		putFloat(r, atSum+4*g, d*float32(sum))
		binary.LittleEndian.PutUint32(r[atShift+4*g:], uint32(-128*sum))
	}
}

// quantizeFineGeneric fills one record in groups of 16.
func quantizeFineGeneric(r *[recordBytes]byte, x *[recordValues]float32) {
	clear(r[recordValues:])
	for g := range 16 {
		d, inverse := fineScaleOf((*[16]float32)(x[16*g:]))
		sum := roundTo(r[16*g:16*g+16], x[16*g:16*g+16], inverse)
		putFloat(r, atScale+4*g, d)
		putFloat(r, atSum16+4*g, d*float32(sum))
		binary.LittleEndian.PutUint32(r[atShift+4*g:], uint32(-128*sum))
	}
}

// A record in the other order: values 8j to 8j+7 of each group of 32 lie together, group
// after group, for j = 0 to 3, so that a kernel adds up all of a group in two lanes of 32
// bits. Then d and d times the sums, as in the record, and both again with d of odd
// groups a sixteenth, for codes that stay in the upper half of a byte.
const (
	atEightsScale = 256 // float32[8], and the sums behind them
	atEightsHigh  = 320
)

// eightsGeneric writes src in the other order. What lies behind is left as it is.
func eightsGeneric(dst, src *[recordBytes]byte) {
	for j := range 4 {
		for g := range 8 {
			copy(dst[64*j+8*g:][:8], src[32*g+8*j:])
		}
	}
	copy(dst[atEightsScale:][:64], src[atScale:])
	copy(dst[atEightsHigh:][:64], src[atScale:])
	for g := 1; g < 8; g += 2 {
		d := math.Float32frombits(binary.LittleEndian.Uint32(src[atScale+4*g:]))
		putFloat(dst, atEightsHigh+4*g, d/16)
	}
}

// sixteensGeneric writes a record of groups of 16 in the order of a kernel that reads
// codes of groups g and 8+g from neighbouring words, and finds those of 4+g and 12+g in
// the same words: values of each group by fours, first and second four of groups 0 to 3
// and 8 to 11, of groups 4 to 7 and 12 to 15, then third and fourth four of both. Scales
// and sums are where they were. What lies behind is left as it is.
func sixteensGeneric(dst, src *[recordBytes]byte) {
	for j := range 4 {
		for lane := range 16 {
			group := lane/4 + 4*(j%2) + 8*(lane%2)
			four := 2*(j/2) + lane%4/2
			copy(dst[64*j+4*lane:][:4], src[16*group+4*four:])
		}
	}
	copy(dst[atScale:atShift], src[atScale:])
}

// roundTo writes q of one group and returns their sum.
func roundTo(dst []byte, x []float32, inverse float32) (sum int32) {
	if inverse == 0 {
		clear(dst)
		return 0
	}
	for j, v := range x {
		q := int8(math.RoundToEven(float64(float32(v * inverse))))
		dst[j] = byte(q)
		sum += int32(q)
	}
	return sum
}

func putFloat(r *[recordBytes]byte, at int, f float32) {
	binary.LittleEndian.PutUint32(r[at:], math.Float32bits(f))
}

// largestOf returns the largest magnitude of a group: 0 where the group counts as
// zeros, and not finite where it holds a NaN or an infinity.
func largestOf(x []float32) float32 {
	var top uint32 // magnitudes compare like their bits, NaN above all
	for _, v := range x {
		top = max(top, math.Float32bits(v)&0x7fffffff)
	}
	if most := math.Float32frombits(top); top >= 0x7f800000 || most >= smallest {
		return most
	}
	return 0
}

// scaleOf returns the scale of a group of 32 and what to multiply its values by,
// both zero for a group of zeros.
func scaleOf(x []float32) (d, inverse float32) {
	switch most := largestOf(x); {
	case most == 0:
		return 0, 0
	case most <= math.MaxFloat32:
		return most * (1. / 127), 127 / most
	}
	return float32(math.NaN()), 0
}

// fineScaleOf is scaleOf for groups of 16. The squares are added as the levels
// with vectors do it: j and j+8, then neighbours, then theirs, then the halves.
func fineScaleOf(x *[16]float32) (d, inverse float32) {
	most := largestOf(x[:])
	switch {
	case most == 0:
		return 0, 0
	case !(most <= math.MaxFloat32):
		return float32(math.NaN()), 0
	}
	least, best := float32(math.Inf(1)), float32(0)
	for n := float32(127); n > 127-divisors; n-- {
		inverse := n / most
		var s [8]float32
		for j := range s {
			a, b := apart(float32(x[j]*inverse)), apart(float32(x[j+8]*inverse))
			s[j] = float32(a*a) + float32(b*b)
		}
		lower, upper := (s[0]+s[1])+(s[2]+s[3]), (s[4]+s[5])+(s[6]+s[7])
		if e := (lower + upper) * (1 / (n * n)); e < least {
			least, best = e, n
		}
	}
	return most * (1 / best), best / most
}

// apart returns how far v is from the whole number that it is rounded to.
func apart(v float32) float32 { return v - float32(math.RoundToEven(float64(v))) }
