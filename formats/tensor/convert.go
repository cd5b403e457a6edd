package tensor

import (
	"encoding/binary"
	"fmt"
	"math"
)

// ToFloat32 converts len(dst) packed little-endian elements of src to
// float32. Every float type of 32 bits or fewer converts exactly; f64 and
// wide integers round to nearest even, booleans become 0 or 1.
//
// Packed types fill bytes from the low bits on: f4 the low nibble first, f6
// four codes in three bytes. It fails where src has not exactly the bytes of
// len(dst) elements, and for c64, which is not a real number.
func ToFloat32(dst []float32, src []byte, d DType) error {
	if err := checkLen(len(dst), len(src), d); err != nil {
		return err
	}
	if f := decoders[d]; f != nil {
		f(dst, src)
		return nil
	}
	return fmt.Errorf("%v does not convert to f32", d)
}

// FromFloat32 is the inverse: it rounds to nearest, ties to even.
//
// A magnitude beyond the range becomes infinite in f16 and bf16 and the
// largest finite value in the types of 8 bits and fewer; infinities stay
// where the type has them and saturate elsewhere; NaN stays NaN, and fails
// for f6 and f4, which have none. Integer types are refused.
func FromFloat32(dst []byte, src []float32, d DType) error {
	if err := checkLen(len(src), len(dst), d); err != nil {
		return err
	}
	if d == F6E2M3 || d == F6E3M2 || d == F4E2M1 {
		for i, x := range src {
			if x != x {
				return fmt.Errorf("element %d is NaN, which %v cannot hold", i, d)
			}
		}
	}
	if f := encoders[d]; f != nil {
		f(dst, src)
		return nil
	}
	return fmt.Errorf("f32 does not convert to %v", d)
}

func checkLen(elements, size int, d DType) error {
	if d.Bits() == 0 {
		return fmt.Errorf("%v has no size", d)
	}
	// Not Size: a shape would be allocated for every row. A slice in memory
	// is too short for its bits to overflow.
	if want := (elements*d.Bits() + 7) / 8; size != want {
		return fmt.Errorf("%d elements of %v take %d bytes, not %d", elements, d, want, size)
	}
	return nil
}

var le = binary.LittleEndian

// decoders and encoders are indexed by type; the lengths are checked.
var decoders = [numDTypes]func(dst []float32, src []byte){
	F64: func(dst []float32, src []byte) {
		for i := range dst {
			dst[i] = float32(math.Float64frombits(le.Uint64(src[8*i:])))
		}
	},
	F32: decodeF32,
	F16: decodeF16,
	BF16: func(dst []float32, src []byte) {
		src = src[:2*len(dst)]
		for i := range dst {
			dst[i] = math.Float32frombits(uint32(src[2*i])<<16 | uint32(src[2*i+1])<<24)
		}
	},
	F8E4M3:  func(dst []float32, src []byte) { lookup(dst, src, f8e4m3Values) },
	F8E5M2:  func(dst []float32, src []byte) { lookup(dst, src, f8e5m2Values) },
	F8E4M3Z: func(dst []float32, src []byte) { lookup(dst, src, f8e4m3zValues) },
	F8E5M2Z: func(dst []float32, src []byte) { lookup(dst, src, f8e5m2zValues) },
	F8E8M0: func(dst []float32, src []byte) {
		for i := range dst {
			dst[i] = F8E8M0ToF32(src[i])
		}
	},
	F6E2M3: func(dst []float32, src []byte) { unpack6(dst, src, f6e2m3Values) },
	F6E3M2: func(dst []float32, src []byte) { unpack6(dst, src, f6e3m2Values) },
	F4E2M1: func(dst []float32, src []byte) {
		for i := range dst {
			dst[i] = f4e2m1Values[src[i/2]>>(4*(i&1))&15]
		}
	},
	I64: func(dst []float32, src []byte) {
		for i := range dst {
			dst[i] = float32(int64(le.Uint64(src[8*i:])))
		}
	},
	I32: func(dst []float32, src []byte) {
		for i := range dst {
			dst[i] = float32(int32(le.Uint32(src[4*i:])))
		}
	},
	I16: func(dst []float32, src []byte) {
		for i := range dst {
			dst[i] = float32(int16(le.Uint16(src[2*i:])))
		}
	},
	I8: func(dst []float32, src []byte) {
		for i := range dst {
			dst[i] = float32(int8(src[i]))
		}
	},
	U64: func(dst []float32, src []byte) {
		for i := range dst {
			dst[i] = float32(le.Uint64(src[8*i:]))
		}
	},
	U32: func(dst []float32, src []byte) {
		for i := range dst {
			dst[i] = float32(le.Uint32(src[4*i:]))
		}
	},
	U16: func(dst []float32, src []byte) {
		for i := range dst {
			dst[i] = float32(le.Uint16(src[2*i:]))
		}
	},
	U8: func(dst []float32, src []byte) {
		for i := range dst {
			dst[i] = float32(src[i])
		}
	},
	Bool: func(dst []float32, src []byte) {
		for i := range dst {
			dst[i] = 0
			if src[i] != 0 {
				dst[i] = 1
			}
		}
	},
}

var encoders = [numDTypes]func(dst []byte, src []float32){
	F64: func(dst []byte, src []float32) {
		for i, x := range src {
			le.PutUint64(dst[8*i:], math.Float64bits(float64(x)))
		}
	},
	F32: encodeF32,
	F16: func(dst []byte, src []float32) {
		for i, x := range src {
			le.PutUint16(dst[2*i:], F32ToF16(x))
		}
	},
	BF16: func(dst []byte, src []float32) {
		for i, x := range src {
			le.PutUint16(dst[2*i:], F32ToBF16(x))
		}
	},
	F8E4M3:  func(dst []byte, src []float32) { encodeMini(dst, src, &f8e4m3) },
	F8E5M2:  func(dst []byte, src []float32) { encodeMini(dst, src, &f8e5m2) },
	F8E4M3Z: func(dst []byte, src []float32) { encodeMini(dst, src, &f8e4m3z) },
	F8E5M2Z: func(dst []byte, src []float32) { encodeMini(dst, src, &f8e5m2z) },
	F8E8M0: func(dst []byte, src []float32) {
		for i, x := range src {
			dst[i] = F32ToF8E8M0(x)
		}
	},
	F6E2M3: func(dst []byte, src []float32) { pack6(dst, src, &f6e2m3) },
	F6E3M2: func(dst []byte, src []float32) { pack6(dst, src, &f6e3m2) },
	F4E2M1: func(dst []byte, src []float32) {
		clear(dst)
		for i, x := range src {
			dst[i/2] |= f4e2m1.encode(x) << (4 * (i & 1))
		}
	},
}

func decodeF32(dst []float32, src []byte) {
	if view, ok := Float32s(src); ok {
		copy(dst, view)
		return
	}
	for i := range dst {
		dst[i] = math.Float32frombits(le.Uint32(src[4*i:]))
	}
}

func encodeF32(dst []byte, src []float32) {
	if view, ok := Float32s(dst); ok {
		copy(view, src)
		return
	}
	for i, x := range src {
		le.PutUint32(dst[4*i:], math.Float32bits(x))
	}
}

func lookup(dst []float32, src []byte, values *[256]float32) {
	src = src[:len(dst)]
	for i := range dst {
		dst[i] = values[src[i]]
	}
}

func encodeMini(dst []byte, src []float32, f *minifloat) {
	for i, x := range src {
		dst[i] = f.encode(x)
	}
}

// unpack6 reads a stream of 6-bit codes, low bits first.
func unpack6(dst []float32, src []byte, values *[256]float32) {
	for i := range dst {
		at, shift := 6*i/8, 6*i%8
		c := uint16(src[at]) >> shift
		if shift > 2 {
			c |= uint16(src[at+1]) << (8 - shift)
		}
		dst[i] = values[c&63]
	}
}

func pack6(dst []byte, src []float32, f *minifloat) {
	clear(dst)
	for i, x := range src {
		at, shift := 6*i/8, 6*i%8
		c := uint16(f.encode(x)) << shift
		dst[at] |= byte(c)
		if shift > 2 {
			dst[at+1] |= byte(c >> 8)
		}
	}
}
