package cpu

import (
	"math"
	"strings"

	"github.com/nstf/nstf/formats"
)

// A KVFormat is how keys and values of attention are stored.
type KVFormat uint8

const (
	// KVF32 stores float32.
	KVF32 KVFormat = iota
	// KVF16 stores IEEE half precision, rounded to nearest: numbers beyond
	// 65504 become infinite.
	KVF16
	// KVQ8 stores a signed byte a number and a float32 scale for each head of
	// each position: the largest magnitude divided by 127. A vector with an
	// infinity or a NaN is NaN throughout.
	KVQ8
	kvFormatEnd
)

func kvFormatNames() [kvFormatEnd]string { return [...]string{"f32", "f16", "q8"} }

// String returns the spelling that ParseKVFormat reads.
func (f KVFormat) String() string {
	if f < kvFormatEnd {
		return kvFormatNames()[f]
	}
	return "KVFormat(?)"
}

// ParseKVFormat reads "f32", "f16" or "q8"; any other is an UnsupportedError
// that lists them.
func ParseKVFormat(name string) (KVFormat, error) {
	names := kvFormatNames()
	for f, s := range names {
		if s == name {
			return KVFormat(f), nil
		}
	}
	return 0, formats.Unsupportedf("", "", "cache format %q (known: %s)", name, strings.Join(names[:], ", "))
}

// KVPositions is the positions of a [KVBlock].
const KVPositions = 64

// A KVBlock is the keys and values of one head at KVPositions positions. Keys
// are stored by feature, [D][64], values by position, [64][P] with P =
// [KVWidth](D), so that both products of attention run along rows. Numbers lie
// in floats or in bytes, by the format; the scales are those of KVQ8.
type KVBlock struct {
	keyFloats, valueFloats []float32
	keys, values           []byte
	keyScales, valueScales []float32
}

// KVWidth returns the numbers that a value of d takes, d rounded up to 16.
func KVWidth(d int) int { return (d + 15) &^ 15 }

// BlockBytes returns the size of a block of d numbers a head; both factors are
// under 2^31.
func (f KVFormat) BlockBytes(d int) int64 {
	n := KVPositions * (int64(d) + int64(KVWidth(d)))
	switch f {
	case KVF16:
		return 2 * n
	case KVQ8:
		return n + 2*4*KVPositions
	}
	return 4 * n
}

// NewKVBlocks returns a block for each of some heads, in one piece of memory.
func NewKVBlocks(f KVFormat, heads, d int) []KVBlock {
	blocks := make([]KVBlock, heads)
	k, v := KVPositions*d, KVPositions*KVWidth(d)
	if f == KVF32 {
		all := make([]float32, heads*(k+v))
		for i := range blocks {
			blocks[i].keyFloats, all = all[:k:k], all[k:]
			blocks[i].valueFloats, all = all[:v:v], all[v:]
		}
		return blocks
	}
	if f == KVF16 {
		k, v = 2*k, 2*v
	}
	all := make([]byte, heads*(k+v))
	for i := range blocks {
		blocks[i].keys, all = all[:k:k], all[k:]
		blocks[i].values, all = all[:v:v], all[v:]
	}
	if f == KVQ8 {
		scales := make([]float32, 2*heads*KVPositions)
		for i := range blocks {
			blocks[i].keyScales, scales = scales[:KVPositions:KVPositions], scales[KVPositions:]
			blocks[i].valueScales, scales = scales[:KVPositions:KVPositions], scales[KVPositions:]
		}
	}
	return blocks
}

// StoreKV writes the key and the value, of the same length D, of position row of
// a block. Different positions may be written at once.
func (s *Set) StoreKV(f KVFormat, b *KVBlock, row int, key, value []float32) {
	d, width := len(key), KVWidth(len(key))
	want(len(value) == d && 0 <= row && row < KVPositions, "StoreKV", d, len(value), row)
	switch f {
	case KVF32:
		want(len(b.keyFloats) == KVPositions*d, "StoreKV", len(b.keyFloats), d)
		for i, v := range key {
			b.keyFloats[i*KVPositions+row] = v
		}
		copy(b.valueFloats[row*width:], value)
	case KVF16:
		want(len(b.keys) == 2*KVPositions*d, "StoreKV", len(b.keys), d)
		s.panel.scatterF16(b.keys[2*row:], KVPositions, key)
		s.encodeF16(b.values[2*row*width:2*(row*width+d)], value)
	case KVQ8:
		want(len(b.keys) == KVPositions*d, "StoreKV", len(b.keys), d)
		b.keyScales[row] = s.storeQ8(b.keys[row:], KVPositions, key)
		b.valueScales[row] = s.storeQ8(b.values[row*width:], 1, value)
	}
}

// storeQ8 writes x as bytes at distance ld and returns their scale.
func (s *Set) storeQ8(dst []byte, ld int, x []float32) (scale float32) {
	const tiny = 0x1p-120 // under it 127/most would be infinite
	most := math.Float32frombits(s.panel.maxBits(x))
	switch {
	case !(most <= math.MaxFloat32):
		s.panel.scatterQ8(dst, ld, x, 0) // what the bytes are does not matter
		return float32(math.NaN())
	case most < tiny:
		s.panel.scatterQ8(dst, ld, x, 0)
		return 0
	}
	s.panel.scatterQ8(dst, ld, x, 127/most)
	return most / 127
}
