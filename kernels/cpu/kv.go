package cpu

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/tensor"
)

// A KVFormat is how keys and values of attention are stored.
type KVFormat uint8

const (
	// KVF32 stores float32.
	KVF32 KVFormat = iota
	// KVF16 stores IEEE half precision, rounded to nearest: numbers beyond
	// 65504 become infinite.
	KVF16
	// KVQ8 stores a signed byte a number and float32 scales: one for each 32
	// numbers of a key, one for a value. A scale is the largest magnitude divided
	// by 127, in a key at least 2^-20 of the largest of its scales. A vector with
	// an infinity or a NaN is NaN throughout. Magnitudes under 2^-96 count as 0.
	KVQ8
	// KVQ5, KVQ4 and KVQ3 turn vectors by Hadamard transforms and store codes of 5, 4
	// and 3 bits, 32 of which share a scale in half precision: 5.5, 4.5 and 3.5 bits a
	// number. See kvcodes.go, docs/attention.md.
	KVQ5
	KVQ4
	KVQ3
	kvFormatEnd
)

// A kvForm is the facts of a format.
type kvForm struct {
	name string
	bits int // of a stored number, scales aside
}

func kvForms() [kvFormatEnd]kvForm {
	return [...]kvForm{{"f32", 32}, {"f16", 16}, {"q8", 8}, {"q5", 5}, {"q4", 4}, {"q3", 3}}
}

// KVFormatNames returns the spellings of all formats, that of the most bits first.
func KVFormatNames() []string {
	var names []string
	for _, f := range kvForms() {
		names = append(names, f.name)
	}
	return names
}

// String returns the spelling that ParseKVFormat reads.
func (f KVFormat) String() string {
	if f < kvFormatEnd {
		return kvForms()[f].name
	}
	return "KVFormat(?)"
}

// ParseKVFormat reads one of [KVFormatNames]; any other is an UnsupportedError that
// lists them.
func ParseKVFormat(name string) (KVFormat, error) {
	names := KVFormatNames()
	if f := slices.Index(names, name); f >= 0 {
		return KVFormat(f), nil
	}
	return 0, formats.Unsupportedf("", "", "cache format %q (known: %s)", name, strings.Join(names, ", "))
}

// A KVFormats is how the blocks of a model store keys and values: one format for all of
// them, or one for each, those included that keep none.
type KVFormats []KVFormat

// Of returns a block's format.
func (f KVFormats) Of(block int) KVFormat {
	if len(f) == 1 {
		return f[0]
	}
	return f[block]
}

// String returns a spelling that ParseKVFormats reads.
func (f KVFormats) String() string {
	var runs []string
	for i, n := 0, 0; i < len(f); i += n {
		for n = 1; i+n < len(f) && f[i+n] == f[i]; n++ {
		}
		run := f[i].String()
		if len(f) > 1 && n > 1 {
			run = fmt.Sprintf("%s*%d", run, n)
		}
		runs = append(runs, run)
	}
	return strings.Join(runs, ",")
}

// mostKVFormats is the most blocks that a list of formats names.
const mostKVFormats = 1 << 16

// ParseKVFormats reads one of [KVFormatNames] for all blocks, or a list with commas that
// names one for each: "q5*2,q4" is that of three. Errors are UnsupportedErrors.
func ParseKVFormats(list string) (KVFormats, error) {
	var all KVFormats
	for _, run := range strings.Split(list, ",") {
		name, times, repeated := strings.Cut(run, "*")
		f, err := ParseKVFormat(name)
		if err != nil {
			return nil, err
		}
		n := 1
		if repeated {
			if n, err = strconv.Atoi(times); err != nil || n < 1 || n > mostKVFormats-len(all) {
				return nil, formats.Unsupportedf("", "", "cache format %q: %q is no number of blocks", list, times)
			}
		}
		for range n {
			all = append(all, f)
		}
	}
	return all, nil
}

// For returns the formats of a model of so many blocks, or an UnsupportedError where they
// name fewer or more.
func (f KVFormats) For(blocks int) (KVFormats, error) {
	if len(f) != 1 && len(f) != blocks {
		return nil, formats.Unsupportedf("", "", "cache format %q names %d blocks, the model has %d", f.String(), len(f), blocks)
	}
	return f, nil
}

// KVPositions is the positions of a [KVBlock].
const KVPositions = 64

// A KVBlock is the keys and values of one head at KVPositions positions. Keys
// are stored by feature, [D][64], values of V numbers by position, [64][P] with P =
// [KVWidth](V), so that both products of attention run along rows. Numbers lie
// in floats or in bytes, by the format; the scales are those of KVQ8. Why so:
// docs/decisions/0007-keys-by-feature.md. Codes of fewer bits are in keys and values too.
type KVBlock struct {
	keyFloats, valueFloats []float32
	keys, values           []byte
	// valueScales [64]. keyScales [ceil(D/32)][64]: the last row is the scale of
	// the last 32 numbers, those before are scales divided by the next row's, so
	// that a sum over 32 numbers is brought to the scale of the next and goes on.
	keyScales, valueScales []float32
	coded                  coded
}

// keyGroup is how many numbers of a key share a scale. Keys have numbers that
// are large in every position; measured on a trained model, a scale for each 32
// leaves two thirds of the divergence that one for 64 causes, nine tenths of
// which comes from the keys.
const keyGroup = 32

func keyGroups(d int) int { return (d + keyGroup - 1) / keyGroup }

// KVWidth returns the numbers that a value of d takes, d rounded up to 16.
func KVWidth(d int) int { return (d + 15) &^ 15 }

// BlockBytes returns the size of a block of keys of d numbers and values of v; both
// are under 2^30.
func (f KVFormat) BlockBytes(d, v int) int64 {
	n := KVPositions * (int64(d) + int64(KVWidth(v)))
	switch f {
	case KVF16:
		return 2 * n
	case KVQ8:
		return n + 4*KVPositions*int64(1+keyGroups(d))
	case KVQ5, KVQ4, KVQ3:
		return KVPositions * int64(f.codedBytes(d)+f.codedBytes(v)+2*(codedGroups(d)+codedGroups(v)))
	}
	return 4 * n
}

// Copy takes over the content of another block of the same format and size.
func (b *KVBlock) Copy(from *KVBlock) {
	copy(b.keyFloats, from.keyFloats)
	copy(b.valueFloats, from.valueFloats)
	copy(b.keys, from.keys)
	copy(b.values, from.values)
	copy(b.keyScales, from.keyScales)
	copy(b.valueScales, from.valueScales)
	copy(b.coded.keyScales, from.coded.keyScales)
	copy(b.coded.valueScales, from.coded.valueScales)
}

// NewKVBlocks returns a block for each of some heads, with keys of d numbers and
// values of width, in one piece of memory.
func NewKVBlocks(f KVFormat, heads, d, width int) []KVBlock {
	blocks := make([]KVBlock, heads)
	k, v := KVPositions*d, KVPositions*KVWidth(width)
	if f == KVF32 {
		all := make([]float32, heads*(k+v))
		for i := range blocks {
			blocks[i].keyFloats, all = all[:k:k], all[k:]
			blocks[i].valueFloats, all = all[:v:v], all[v:]
		}
		return blocks
	}
	switch {
	case f == KVF16:
		k, v = 2*k, 2*v
	case f.Coded():
		k, v = KVPositions*f.codedBytes(d), KVPositions*f.codedBytes(width)
	}
	all := make([]byte, heads*(k+v))
	for i := range blocks {
		blocks[i].keys, all = all[:k:k], all[k:]
		blocks[i].values, all = all[:v:v], all[v:]
	}
	if f == KVQ8 {
		k := keyGroups(d) * KVPositions
		scales := make([]float32, heads*(k+KVPositions))
		for i := range blocks {
			blocks[i].keyScales, scales = scales[:k:k], scales[k:]
			blocks[i].valueScales, scales = scales[:KVPositions:KVPositions], scales[KVPositions:]
		}
	}
	if f.Coded() {
		k, v := 2*KVPositions*codedGroups(d), 2*KVPositions*codedGroups(width)
		scales := make([]byte, heads*(k+v))
		for i := range blocks {
			blocks[i].coded.keyScales, scales = scales[:k:k], scales[k:]
			blocks[i].coded.valueScales, scales = scales[:v:v], scales[v:]
		}
	}
	return blocks
}

// StoreKV writes the key and the value of position row of a block. Different
// positions may be written at once.
func (s *Set) StoreKV(f KVFormat, b *KVBlock, row int, key, value []float32) {
	d, width := len(key), KVWidth(len(value))
	want(0 <= row && row < KVPositions, "StoreKV", row)
	switch f {
	case KVF32:
		want(len(b.keyFloats) == KVPositions*d && len(b.valueFloats) == KVPositions*width, "StoreKV", len(b.keyFloats), d, len(b.valueFloats), width)
		for i, v := range key {
			b.keyFloats[i*KVPositions+row] = v
		}
		copy(b.valueFloats[row*width:], value)
	case KVF16:
		want(len(b.keys) == 2*KVPositions*d && len(b.values) == 2*KVPositions*width, "StoreKV", len(b.keys), d, len(b.values), width)
		s.panel.scatterF16(b.keys[2*row:], KVPositions, key)
		s.encodeF16(b.values[2*row*width:2*(row*width+len(value))], value)
	case KVQ8:
		want(len(b.keys) == KVPositions*d && len(b.values) == KVPositions*width, "StoreKV", len(b.keys), d, len(b.values), width)
		s.storeKeyQ8(b, row, key)
		b.valueScales[row] = s.storeValueQ8(b.values[row*width:], value)
	default:
		want(len(b.keys) == KVPositions*f.codedBytes(d) && len(b.values) == KVPositions*f.codedBytes(len(value)), "StoreKV", len(b.keys), d, len(b.values), len(value))
		b.storeCoded(f, row, key, value)
	}
}

// tinyQ8 is the magnitude under which numbers count as 0: 127 divided by 2^-20
// of it is finite.
const tinyQ8 = 0x1p-96

// largest returns the largest magnitude, 0 for none to speak of, and whether it
// is a number.
func (s *Set) largest(x []float32) (m float32, finite bool) {
	m = math.Float32frombits(s.panel.maxBits(x))
	if m < tinyQ8 {
		m = 0
	}
	return m, m <= math.MaxFloat32
}

func (s *Set) storeValueQ8(dst []byte, x []float32) (scale float32) {
	m, finite := s.largest(x)
	if m == 0 || !finite {
		s.panel.scatterQ8(dst, 1, x, 0) // what the bytes of NaNs are does not matter
		if finite {
			return 0
		}
		return float32(math.NaN())
	}
	s.panel.scatterQ8(dst, 1, x, 127/m)
	return m / 127
}

func (s *Set) storeKeyQ8(b *KVBlock, row int, x []float32) {
	all, finite := s.largest(x)
	before := float32(0)
	for g := range keyGroups(len(x)) {
		part, dst := x[g*keyGroup:min((g+1)*keyGroup, len(x))], b.keys[g*keyGroup*KVPositions+row:]
		m, inverse := float32(0), float32(0)
		if all > 0 && finite {
			m, _ = s.largest(part)
			m = max(m, all*0x1p-20)
			inverse = 127 / m
		}
		s.panel.scatterQ8(dst, KVPositions, part, inverse)
		if g > 0 {
			b.keyScales[(g-1)*KVPositions+row] = ratio(before, m)
		}
		before = m
	}
	last := &b.keyScales[(keyGroups(len(x))-1)*KVPositions+row]
	if *last = before / 127; !finite {
		*last = float32(math.NaN())
	}
}

// ratio is a/b, 1 where both are 0.
func ratio(a, b float32) float32 {
	if b == 0 {
		return 1
	}
	return a / b
}

// parts are the pieces of memory of a block, as bytes in the machine's order. A piece
// may be empty.
func (b *KVBlock) parts() [8][]byte {
	view := func(x []float32) []byte {
		p, ok := tensor.Float32Bytes(x)
		if !ok { // neither is the form of files then
			p = nil
		}
		return p
	}
	return [8][]byte{view(b.keyFloats), view(b.valueFloats), b.keys, b.values, view(b.keyScales), view(b.valueScales), b.coded.keyScales, b.coded.valueScales}
}

// AppendTo appends a block's content, BlockBytes of it, to dst.
func (b *KVBlock) AppendTo(dst []byte) []byte {
	for _, p := range b.parts() {
		dst = append(dst, p...)
	}
	return dst
}

// Set takes over what AppendTo wrote of a block of the same format and size, and
// returns what follows it. It panics where src is shorter.
func (b *KVBlock) Set(src []byte) []byte {
	for _, p := range b.parts() {
		copy(p, src[:len(p)])
		src = src[len(p):]
	}
	return src
}
