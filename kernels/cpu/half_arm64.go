//go:build !noasm

package cpu

// decodeF16NEON computes
//
//	for i := range dst {
//		dst[i] = the F16 value of src[2*i:]
//	}
//
//go:noescape
func decodeF16NEON(dst []float32, src []byte)

// decodeBF16NEON is decodeF16NEON for bfloat16.
//
//go:noescape
func decodeBF16NEON(dst []float32, src []byte)

// encodeF16NEON computes
//
//	for i, f := range src {
//		dst[2*i:] = f rounded to nearest, ties to even, as F16
//	}
//
//go:noescape
func encodeF16NEON(dst []byte, src []float32)

// encodeBF16NEON is encodeF16NEON for bfloat16.
//
//go:noescape
func encodeBF16NEON(dst []byte, src []float32)
