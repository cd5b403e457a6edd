package cpu

import (
	"encoding/binary"

	"github.com/nstf/nstf/formats/tensor"
)

// The generic dot products keep eight partial sums, as one AVX2 register does:
// faster than one, and with a smaller error. Products are converted explicitly
// so that no compiler fuses them and every machine gives the same bits.

func dotRowsF32Generic(y, w []float32, ld int, x []float32) {
	for n := range y {
		y[n] = dotGeneric(w[n*ld:n*ld+len(x)], x)
	}
}

func dotGeneric(a, b []float32) float32 {
	var s [8]float32
	dotOnto(&s, a, b)
	return sum8(&s)
}

// dotOnto adds the products to partial sums, of which those of a whole row are taken
// in the order of its eights however it is cut into pieces of whole eights.
func dotOnto(s *[8]float32, a, b []float32) {
	for len(a) >= 8 && len(b) >= 8 {
		s[0] += float32(a[0] * b[0])
		s[1] += float32(a[1] * b[1])
		s[2] += float32(a[2] * b[2])
		s[3] += float32(a[3] * b[3])
		s[4] += float32(a[4] * b[4])
		s[5] += float32(a[5] * b[5])
		s[6] += float32(a[6] * b[6])
		s[7] += float32(a[7] * b[7])
		a, b = a[8:], b[8:]
	}
	for i, v := range a {
		s[i] += float32(v * b[i])
	}
}

func sum8(s *[8]float32) float32 {
	return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]))
}

func dotRowsBF16Generic(y []float32, w []byte, ld int, x []float32) {
	var row [256]float32
	for n := range y {
		var sums [8]float32
		for i := 0; i < len(x); i += len(row) {
			part := x[i:min(i+len(row), len(x))]
			decodeBF16Generic(row[:len(part)], w[2*(n*ld+i):])
			dotOnto(&sums, row[:len(part)], part)
		}
		y[n] = sum8(&sums)
	}
}

func dotRowsF16Generic(y []float32, w []byte, ld int, x []float32) {
	var row [256]float32
	for n := range y {
		var sums [8]float32
		for i := 0; i < len(x); i += len(row) {
			part := x[i:min(i+len(row), len(x))]
			decodeF16Generic(row[:len(part)], w[2*(n*ld+i):])
			dotOnto(&sums, row[:len(part)], part)
		}
		y[n] = sum8(&sums)
	}
}

func decodeBF16Generic(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = tensor.BF16ToF32(binary.LittleEndian.Uint16(src[2*i:]))
	}
}

func decodeF16Generic(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = f16ToFloat(binary.LittleEndian.Uint16(src[2*i:]))
	}
}

func encodeBF16Generic(dst []byte, src []float32) {
	for i, v := range src {
		binary.LittleEndian.PutUint16(dst[2*i:], tensor.F32ToBF16(v))
	}
}

func encodeF16Generic(dst []byte, src []float32) {
	for i, v := range src {
		binary.LittleEndian.PutUint16(dst[2*i:], floatToF16(v))
	}
}
