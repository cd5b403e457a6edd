package hip

import (
	"fmt"
	"slices"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
)

// DecodeTypes are the types that Decode writes, by DECODE_TYPE of number.hip.
var DecodeTypes = []tensor.DType{tensor.F32, tensor.F16, tensor.BF16}

// A Decode writes a matrix, or rows of it, as numbers. It reads parts as the scheme's page stores them, not as a
// Weight lies, and the scales of blocks, or of rows and columns of trellis codes, as float32 numbers of their own,
// which may be others than those of the parts: who multiplies with what it writes may train them.
type Decode struct {
	Format Format
	Type   tensor.DType // one of DecodeTypes
	N, K   int          // what is written; trellis codes are decoded whole
	Y      Address      // Type[N][K], at a multiple of 16 bytes
	From   Address      // the first part, at a multiple of 4 bytes

	// Of blocks.
	Table Address // what DecodeTable returned, at a multiple of 16 bytes
	Rows  Address // i64[N], the rows that are wanted; 0: all
	Of    int     // rows of the matrix; of one that it lacks NaN is written
	D, M  Address // f32[blocks of the matrix]; 0: the scheme's blocks have none

	// Of trellis codes.
	Units   Address // f32[N/16]
	In, Out Address // f32[K], f32[N]; 0: none
}

// decodeThreads is the size of a block of decode.hip; decodeColumns and decodeRows are those of decodetcq.hip.
const (
	decodeThreads = 256
	decodeSquare  = 128
)

// Decodes reports why Decode does not read a format, nil where it does.
func (f Format) Decodes() error {
	s, _ := scheme.ByName(f.Scheme)
	if f.Rotated() || s != nil && s.BlockBytes > 0 {
		return nil
	}
	return formats.Unsupportedf("", "", "numbers of scheme %q by a kernel", f.Scheme)
}

// DecodeSize returns the stored blocks of a block of threads, the weights and the bytes of each, 0 for trellis codes.
func (f Format) DecodeSize() (together, weights, bytes int) {
	a := f.arrangement()
	if f.Rotated() || a == nil {
		return 0, 0, 0
	}
	return decodeThreads * f.unit / a.weights, a.weights, a.bytes()
}

// Calls returns the launch.
func (o *Decode) Calls(t Target) []Call {
	f := &o.Format
	if f.Rotated() {
		s := scheme.NewTCQSigns(f.Seed)
		return []Call{{
			Unit:   Unit{"decodetcq.hip", fmt.Sprintf("%s TCQ_IN=%d TCQ_OUT=%d DECODE_TYPE=%d", f.defines, f.In, f.Hadamard.Out, slices.Index(DecodeTypes, o.Type))},
			Symbol: "nstf_decode_tcq", Block: [3]uint32{decodeThreads, 1, 1},
			Grid: [3]uint32{uint32(ceil(o.K, decodeSquare)), uint32(ceil(o.N, decodeSquare)), 1},
			Args: []Arg{Ptr(o.Y), Ptr(o.From), Ptr(o.Units), Ptr(o.In), Ptr(o.Out), I64(int64(o.N)), I32(o.K),
				I64(int64(s[0])), I64(int64(s[1])), I64(int64(s[2])), I64(int64(s[3]))},
		}}
	}
	together, weights, bytes := f.DecodeSize()
	across := o.K / weights
	blocks := int64(o.N) * int64(across)
	turns := (blocks + int64(together) - 1) / int64(together)
	return []Call{{
		Unit: Unit{"decode.hip", fmt.Sprintf("%s DECODE_BLOCKS=%d DECODE_WEIGHTS=%d DECODE_BYTES=%d DECODE_TYPE=%d",
			f.defines, together, weights, bytes, slices.Index(DecodeTypes, o.Type))},
		Symbol: "nstf_decode_" + f.Name(), Block: [3]uint32{decodeThreads, 1, 1},
		Grid: [3]uint32{uint32(max(1, min(turns, int64(8*t.Units)))), 1, 1},
		Args: []Arg{Ptr(o.Y), Ptr(o.From), Ptr(o.Table), Ptr(o.Table + Address(16*bytes)), Ptr(o.Rows), I64(int64(o.Of)), I64(blocks), I32(across), Ptr(o.D), Ptr(o.M)},
	}}
}

// DecodeTable returns what Decode reads to arrange blocks: 16 bytes for each byte of an arranged block, the source bit
// of each of its bits, then 8 bytes for each, the place and the mask of decode.hip. Nil for trellis codes.
func (f Format) DecodeTable() []byte {
	together, _, bytes := f.DecodeSize()
	if bytes == 0 {
		return nil
	}
	s, _ := scheme.ByName(f.Scheme)
	keep, set := onesForScales(s, bytes)
	table := f.Table()
	before := 0
	for _, p := range f.arrangement().planes {
		size := len(p) / 8
		for j := range size {
			bits := p[8*j : 8*j+8]
			var stay, ones byte
			for i, bit := range bits {
				stay |= keep[bit/8] >> (bit % 8) & 1 << i
				ones |= set[bit/8] >> (bit % 8) & 1 << i
			}
			place := before*together + j
			table = append(table, byte(place), byte(place>>8), byte(size), byte(size>>8), byte(together8(bits)), stay, ones, 0)
		}
		before += size
	}
	return table
}

// together8 returns how many bits of a byte come from consecutive places of one byte: 1, 2, 4 or 8.
func together8(bits []uint16) int {
	for n := 8; n > 1; n /= 2 {
		whole := true
		for i, bit := range bits {
			from := bits[i/n*n]
			whole = whole && bit == from+uint16(i%n) && from/8 == bit/8
		}
		if whole {
			return n
		}
	}
	return 1
}

// onesForScales returns masks that put 1 in the place of a stored block's binary16 scales.
func onesForScales(s *scheme.Scheme, bytes int) (keep, set []byte) {
	keep, set = make([]byte, bytes), make([]byte, bytes)
	for i := range keep {
		keep[i] = 0xff
	}
	switch s.Scale {
	case scheme.ScaleF16:
		for _, at := range s.ScaleAt {
			keep[at], keep[at+1], set[at+1] = 0, 0, 0x3c
		}
	case scheme.ScaleNibbles:
		for i, nibble := range []byte{0, 0, 0xc, 0x3} {
			at := s.ScaleAt[0] + 2*i + 1
			keep[at], set[at] = 0x0f, nibble<<4
		}
	}
	return keep, set
}
