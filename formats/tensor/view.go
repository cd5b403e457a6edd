package tensor

import "unsafe"

// Float32s views little-endian float32 bytes as a slice without a copy, or
// returns false where p is not 4-aligned or not a multiple of 4 long, or the
// machine is big-endian.
func Float32s(p []byte) ([]float32, bool) {
	if len(p)%4 != 0 || !littleEndian() {
		return nil, false
	}
	if len(p) == 0 {
		return nil, true
	}
	q := unsafe.Pointer(unsafe.SliceData(p))
	if uintptr(q)%4 != 0 {
		return nil, false
	}
	return unsafe.Slice((*float32)(q), len(p)/4), true
}

// Float32Bytes views a slice as its little-endian bytes without a copy, or returns
// false where the machine is big-endian.
func Float32Bytes(x []float32) ([]byte, bool) {
	if !littleEndian() {
		return nil, false
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x)), true
}

// Float64s is [Float32s] for float64, of bytes that are 8-aligned.
func Float64s(p []byte) ([]float64, bool) {
	if len(p)%8 != 0 || !littleEndian() {
		return nil, false
	}
	if len(p) == 0 {
		return nil, true
	}
	q := unsafe.Pointer(unsafe.SliceData(p))
	if uintptr(q)%8 != 0 {
		return nil, false
	}
	return unsafe.Slice((*float64)(q), len(p)/8), true
}

// Float64Bytes is [Float32Bytes] for float64.
func Float64Bytes(x []float64) ([]byte, bool) {
	if !littleEndian() {
		return nil, false
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 8*len(x)), true
}

func littleEndian() bool {
	x := uint16(1)
	return *(*byte)(unsafe.Pointer(&x)) == 1
}
