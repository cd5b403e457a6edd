// Package tensor holds what a tensor is made of: element types, shapes with
// checked sizes, exact conversions to and from float32, and [Blob], a lazily
// read run of bytes in files or memory.
//
// It knows nothing of file formats or quantization schemes. Its conversions
// are specified bit for bit (round to nearest, ties to even; NaN stays NaN)
// and never change. All values are immutable and safe for concurrent use.
package tensor

import (
	"fmt"
	"math"
	"math/bits"
)

// A DType is the type of one stored element.
type DType uint8

// The element types. Packed says that several elements share a byte.
const (
	Invalid DType = iota
	F64
	F32
	F16
	BF16
	F8E4M3 // OCP FP8 E4M3 "fn": no infinities, max 448
	F8E5M2 // OCP FP8 E5M2: IEEE-like, max 57344
	F8E8M0 // OCP MX scale: a power of two, 0xFF is NaN
	F6E2M3 // OCP MX FP6, packed 4 in 3 bytes
	F6E3M2 // OCP MX FP6, packed 4 in 3 bytes
	F4E2M1 // OCP MX FP4, packed 2 in a byte
	I64
	I32
	I16
	I8
	U64
	U32
	U16
	U8
	Bool
	C64     // complex of two F32
	F8E4M3Z // "fnuz" variant: bias 8, no negative zero, max 240
	F8E5M2Z // "fnuz" variant: bias 16, max 57344
	numDTypes
)

var dtypes = [numDTypes]struct {
	name string
	bits int
}{
	Invalid: {"invalid", 0},
	F64:     {"f64", 64}, F32: {"f32", 32}, F16: {"f16", 16}, BF16: {"bf16", 16},
	F8E4M3: {"f8_e4m3", 8}, F8E5M2: {"f8_e5m2", 8}, F8E8M0: {"f8_e8m0", 8},
	F6E2M3: {"f6_e2m3", 6}, F6E3M2: {"f6_e3m2", 6}, F4E2M1: {"f4_e2m1", 4},
	I64: {"i64", 64}, I32: {"i32", 32}, I16: {"i16", 16}, I8: {"i8", 8},
	U64: {"u64", 64}, U32: {"u32", 32}, U16: {"u16", 16}, U8: {"u8", 8},
	Bool: {"bool", 8}, C64: {"c64", 64},
	F8E4M3Z: {"f8_e4m3fnuz", 8}, F8E5M2Z: {"f8_e5m2fnuz", 8},
}

// String returns the lower-case name that packages and reports use.
func (d DType) String() string {
	if d >= numDTypes {
		return fmt.Sprintf("dtype(%d)", uint8(d))
	}
	return dtypes[d].name
}

// Bits returns the stored bits of one element, 0 for an invalid type.
func (d DType) Bits() int {
	if d >= numDTypes {
		return 0
	}
	return dtypes[d].bits
}

// ParseDType is the inverse of String; it returns Invalid for an unknown name.
func ParseDType(name string) DType {
	for d := F64; d < numDTypes; d++ {
		if dtypes[d].name == name {
			return d
		}
	}
	return Invalid
}

// Elements multiplies a shape's dimensions. It fails on a negative dimension
// and where the product does not fit an int64.
func Elements(shape []int64) (int64, error) {
	n := uint64(1)
	for _, d := range shape {
		if d < 0 {
			return 0, fmt.Errorf("shape %v has a negative dimension", shape)
		}
		hi, lo := bits.Mul64(n, uint64(d))
		if hi != 0 || lo > math.MaxInt64 {
			return 0, fmt.Errorf("shape %v has more than 2^63 elements", shape)
		}
		n = lo
	}
	return int64(n), nil
}

// Size returns the bytes of a dense tensor of this type and shape, packed
// types rounded up to a whole byte once, at the end.
func Size(d DType, shape []int64) (int64, error) {
	n, err := Elements(shape)
	if err != nil {
		return 0, err
	}
	if d.Bits() == 0 {
		return 0, fmt.Errorf("%v has no size", d)
	}
	hi, lo := bits.Mul64(uint64(n), uint64(d.Bits()))
	if hi != 0 || lo > math.MaxInt64-7 {
		return 0, fmt.Errorf("shape %v of %v is larger than 2^60 bytes", shape, d)
	}
	return int64((lo + 7) / 8), nil
}
