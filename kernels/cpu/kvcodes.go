package cpu

import (
	"math"
	"sync"

	"github.com/nstf/nstf/formats/scheme"
)

// Keys and values in 5, 4 and 3 bits. Each vector is turned by Hadamard transforms
// first, so that no number stands out of its neighbours, then 32 numbers at a time
// share a scale in half precision, whose sign is its own:
//
//	number i = scale * codes[i] / 128
//
// with codes of [kvLevels]. 32 codes of b bits take 4b bytes, the code of number i
// in these bits: for 5, nibble i/16 of byte i%16, and above it bit i%8 of byte
// 16+i/8; for 4, nibble i/16 of byte i%16; for 3, bits 2(i/8) and 2(i/8)+1 of byte
// i%8, and above them bit i%8 of byte 8+i/8. Bytes of a key lie [KVPositions]
// apart, so that a position has its own, which others may be stored beside.
const (
	codedGroup = 32
	// turnMost is the longest transform.
	turnMost = 512
)

// Of keys and values in codes, blocks from the first on and those before the one that a row
// is in are in half precision for it, turned all the same. What that gains:
// docs/attention.md.
const (
	KVFirst  = 2 // blocks from the first on
	KVNewest = 2 // blocks before the row's own, which is too
)

// NewestFrom returns the first of the newest positions that the row of one sees in half
// precision.
func NewestFrom(pos int64) int64 { return max(pos/KVPositions-KVNewest, 0) * KVPositions }

// Bits returns the bits of a stored number, scales aside.
func (f KVFormat) Bits() int { return kvForms()[f].bits }

// Coded reports whether numbers are turned and stored as codes, of 5 bits or fewer.
func (f KVFormat) Coded() bool { return kvForms()[f].bits < 8 }

// codedBytes is what the codes of so many numbers take, of a key or a value.
func (f KVFormat) codedBytes(n int) int { return codedGroups(n) * 4 * f.Bits() }

func codedGroups(n int) int { return (n + codedGroup - 1) / codedGroup }

// turnLength returns the length of the transforms of keys of d numbers and values of
// v: the largest power of two that divides both, up to turnMost. A head of 80 is
// five transforms of 16, one of an odd length is not turned. Latents, whose value is
// the beginning of their key, are turned alike in both.
func turnLength(d, v int) int {
	n := 1
	for n < turnMost && (d|v)%(2*n) == 0 {
		n *= 2
	}
	return n
}

// Turn turns vectors of attention over keys of d numbers and values of v, where the
// format has them turned: queries, before [Set.Attend], and what [Set.Combine] gives,
// which it turns back. It is its own inverse but for rounding. len(x) is a multiple of
// d or of v.
func (f KVFormat) Turn(x []float32, d, v int) {
	if !f.Coded() {
		return
	}
	n := turnLength(d, v)
	if n == 1 {
		return
	}
	for at := 0; at < len(x); at += n {
		scheme.Hadamard(x[at : at+n])
	}
}

// StoreTurned writes a key and a value that the format has turned to position row of a block
// of [KVF16], in place of codes: queries and sums are those of the codes.
func (s *Set) StoreTurned(f KVFormat, b *KVBlock, row int, key, value []float32) {
	var room [2 * turnMost]float32
	both := append(append(room[:0], key...), value...)
	k, v := both[:len(key)], both[len(key):]
	f.Turn(k, len(key), len(value))
	f.Turn(v, len(key), len(value))
	s.StoreKV(KVF16, b, row, k, v)
}

// kvLevels returns the numbers that codes of so many bits stand for. Those of 4 and 3
// bits are the best for groups of 32 normal numbers, whose largest is the first, by
// Lloyd's iteration, with a scale chosen as here.
func kvLevels(bits int) (levels [32]int8) {
	switch bits {
	case 5:
		for i := range levels {
			levels[i] = int8(8*i - 128)
		}
	case 4:
		copy(levels[:], []int8{-127, -103, -82, -65, -49, -35, -22, -10, 1, 13, 25, 38, 52, 68, 86, 110})
	case 3:
		copy(levels[:], []int8{-127, -81, -49, -22, 1, 26, 55, 95})
	}
	return levels
}

// Levels returns the numbers that codes stand for, times 128 over the scale, in the
// order of codes; nil where there are no codes.
func (f KVFormat) Levels() []int8 {
	if !f.Coded() {
		return nil
	}
	levels := kvLevels(f.Bits())
	return levels[:1<<f.Bits()]
}

// A kvCoder finds codes.
type kvCoder struct {
	bits   int
	levels [32]int8
	// nearest[128+x] is the code of the level nearest to x, the lower of two.
	nearest [256]byte
}

var kvCoders = [...]func() *kvCoder{
	sync.OnceValue(func() *kvCoder { return newKVCoder(3) }),
	sync.OnceValue(func() *kvCoder { return newKVCoder(4) }),
	sync.OnceValue(func() *kvCoder { return newKVCoder(5) }),
}

func newKVCoder(bits int) *kvCoder {
	c := &kvCoder{bits: bits, levels: kvLevels(bits)}
	code := 0
	for x := range 256 {
		for code+1 < 1<<bits && int(c.levels[code])+int(c.levels[code+1]) < 2*(x-128) {
			code++
		}
		c.nearest[x] = byte(code)
	}
	return c
}

// coded is the memory of a block of codes: of keys [group][4*bits][64] and their scales
// [group][64], of values [64][group][4*bits] and theirs [group][64], scales in half
// precision.
type coded struct{ keyScales, valueScales []byte }

// storeCoded stores one position.
func (b *KVBlock) storeCoded(f KVFormat, row int, key, value []float32) {
	c, n := kvCoders[f.Bits()-3](), turnLength(len(key), len(value))
	c.vector(b.keys[row:], KVPositions, b.coded.keyScales[2*row:], key, n)
	c.vector(b.values[row*f.codedBytes(len(value)):], 1, b.coded.valueScales[2*row:], value, n)
}

// vector turns a vector by transforms of n and stores its groups in bytes ld apart.
// Scales are KVPositions apart.
func (c *kvCoder) vector(dst []byte, ld int, scales []byte, x []float32, n int) {
	var room [turnMost]float32
	step := max(n, codedGroup)
	for at := 0; at < len(x); at += step {
		part := room[:min(step, len(x)-at)]
		copy(part, x[at:])
		for i := 0; n > 1 && i < len(part); i += n {
			scheme.Hadamard(part[i : i+n])
		}
		for i := 0; i < len(part); i += codedGroup {
			g := (at + i) / codedGroup
			h := c.encode(dst[g*4*c.bits*ld:], ld, part[i:min(i+codedGroup, len(part))])
			scales[2*g*KVPositions], scales[2*g*KVPositions+1] = byte(h), byte(h>>8)
		}
	}
}

// kvTries are the places of a group's largest number, as shares of the outermost level,
// of which the best is taken.
func kvTries() [5]float32 { return [...]float32{1.2, 1.1, 1, 0.92, 0.85} }

// encode chooses a scale, stores the codes of a group of up to 32 numbers, the bytes ld
// apart, and returns the scale: of several ways to round, the one whose best scale leaves the least
// squared error. Numbers under 2^-24 count as 0; where one is no number, all are none.
func (c *kvCoder) encode(dst []byte, ld int, x []float32) (scale uint16) {
	most := x[0]
	for _, v := range x {
		if !(abs32(v) <= abs32(most)) {
			most = v
		}
		if v-v != 0 {
			return 0x7e00
		}
	}
	var codes, best [codedGroup]byte
	var terms [codedGroup]float32
	if abs32(most) < 0x1p-24 {
		for i := range best {
			best[i] = c.nearest[128]
		}
		c.pack(dst, ld, &best)
		return 0
	}
	var gain, factor float32
	for _, try := range kvTries() {
		inverse := try * float32(c.levels[0]) / most
		var qq float32
		for i, v := range x {
			at := float32(v*inverse) + 128.5
			code := c.nearest[int(min(max(at, 0), 255))]
			q := float32(c.levels[code])
			codes[i] = code
			terms[i] = float32(v * q)
			qq += float32(q * q) // a whole number under 2^24
		}
		xq := sumByHalves(terms)
		if f := xq / qq; float32(f*xq) > gain {
			gain, factor, best = float32(f*xq), f, codes
		}
	}
	c.pack(dst, ld, &best)
	return floatToF16(factor * 128)
}

// sumByHalves adds the upper half to the lower until one is left, as lanes of a GPU do.
func sumByHalves(x [codedGroup]float32) float32 {
	for n := codedGroup / 2; n > 0; n /= 2 {
		for i := range n {
			x[i] += x[i+n]
		}
	}
	return x[0]
}

func abs32(v float32) float32 { return math.Float32frombits(math.Float32bits(v) &^ (1 << 31)) }

// pack writes 32 codes, the bytes ld apart.
func (c *kvCoder) pack(dst []byte, ld int, codes *[codedGroup]byte) {
	low, width := 16, 4 // bytes of the lower bits, and how many bits of a code these are
	if c.bits == 3 {
		low, width = 8, 2
	}
	for i := range low {
		var v byte
		for j := i; j < codedGroup; j += low {
			v |= codes[j] & (1<<width - 1) << (j / low * width)
		}
		dst[i*ld] = v
	}
	for i := 0; c.bits > width && i < codedGroup/8; i++ {
		var v byte
		for j := range 8 {
			v |= codes[8*i+j] >> width << j
		}
		dst[(low+i)*ld] = v
	}
}

// codeAt reads code i of a group packed by pack.
func codeAt(src []byte, ld, bits, i int) byte {
	switch bits {
	case 3:
		return src[i%8*ld]>>(2*(i/8))&3 | src[(8+i/8)*ld]>>(i%8)&1<<2
	case 4:
		return src[i%16*ld] >> (4 * (i / 16)) & 15
	}
	return src[i%16*ld]>>(4*(i/16))&15 | src[(16+i/8)*ld]>>(i%8)&1<<4
}

// A levelsKernel spreads groups of codes to the levels that they stand for.
type levelsKernel func(dst, src []byte, groups int, levels *[32]int8)

// levelsByFeature is the reference of what spreads keys: groups of 32 rows of 64
// levels, from 4*bits rows of 64 bytes each.
func levelsByFeature(bits int) levelsKernel {
	return func(dst, src []byte, groups int, levels *[32]int8) {
		for g := range groups {
			for i := range codedGroup {
				for p := range KVPositions {
					dst[(g*codedGroup+i)*KVPositions+p] = byte(levels[codeAt(src[g*4*bits*KVPositions+p:], KVPositions, bits, i)])
				}
			}
		}
	}
}

// levelsInOrder is the reference of what spreads values: groups of 32 levels, from
// 4*bits bytes each.
func levelsInOrder(bits int) levelsKernel {
	return func(dst, src []byte, groups int, levels *[32]int8) {
		for g := range groups {
			for i := range codedGroup {
				dst[g*codedGroup+i] = byte(levels[codeAt(src[g*4*bits:], 1, bits, i)])
			}
		}
	}
}

// scoreCoded multiplies the queries with a block of keys.
func (w *attending) scoreCoded(b *KVBlock, c []float32) {
	d, r, coder := w.a.Dim, len(w.out.Top), kvCoders[w.a.Format.Bits()-3]()
	groups := codedGroups(d)
	w.panel.keyLevels[coder.bits-3](w.sc.levels, b.keys, groups, &coder.levels)
	scales := w.sc.scales[:groups*KVPositions]
	w.scalesOf(scales, b.coded.keyScales)
	for g := range groups {
		lo, scale := g*codedGroup, scales[g*KVPositions:][:KVPositions]
		w.PanelQ8(w.sc.part, KVPositions, w.q[lo:], d, w.sc.levels[lo*KVPositions:], KVPositions, r, KVPositions, min(codedGroup, d-lo), false)
		for i := range r {
			row, part := c[i*scoreStride:][:KVPositions], w.sc.part[i*KVPositions:][:KVPositions]
			if g == 0 {
				clear(row)
			}
			w.mulAdd(row, part, scale)
		}
	}
}

// scalesOf decodes scales, by 128 smaller: so much levels are larger than numbers.
func (w *attending) scalesOf(dst []float32, src []byte) {
	w.decodeF16(dst, src)
	w.scale(dst, 1./128)
}

// spreadValues brings a block's values where accumulateCoded reads them.
func (w *attending) spreadValues(b *KVBlock) {
	coder, groups := kvCoders[w.a.Format.Bits()-3](), codedGroups(w.a.values())
	w.panel.valueLevels[coder.bits-3](w.sc.levels, b.values, KVPositions*groups, &coder.levels)
	w.scalesOf(w.sc.scales[:groups*KVPositions], b.coded.valueScales)
}

// accumulateCoded adds the values at positions r of the block that was spread, weighted
// by rows p.
func (w *attending) accumulateCoded(c, p []float32, rows int, r Reach) {
	width, k := w.a.width(), r.Hi-r.Lo
	groups := codedGroups(w.a.values())
	for g := range groups {
		lo, scale := g*codedGroup, w.sc.scales[g*KVPositions:][r.Lo:r.Hi]
		for i := range rows {
			part := w.sc.part[i*KVPositions:][:k]
			copy(part, p[i*scoreStride:])
			w.mul(part, scale)
		}
		w.PanelQ8(c[lo:], width, w.sc.part, KVPositions, w.sc.levels[r.Lo*groups*codedGroup+lo:], groups*codedGroup, rows, min(codedGroup, width-lo), k, true)
	}
}
