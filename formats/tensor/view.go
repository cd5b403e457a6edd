package tensor

import (
	"encoding/binary"
	"fmt"
	"unsafe"
)

// Float32s views little-endian float32 bytes as a slice without a copy, or
// returns false where p is not 4-aligned or not a multiple of 4 long, or the
// machine is big-endian.
func Float32s(p []byte) ([]float32, bool) { return numbers[float32](p) }

// Float32Bytes views a slice as its little-endian bytes without a copy, or returns
// false where the machine is big-endian.
func Float32Bytes(x []float32) ([]byte, bool) { return bytesOf(x) }

// Float64s is [Float32s] for float64, of bytes that are 8-aligned.
func Float64s(p []byte) ([]float64, bool) { return numbers[float64](p) }

// Float64Bytes is [Float32Bytes] for float64.
func Float64Bytes(x []float64) ([]byte, bool) { return bytesOf(x) }

// A Number is what bytes are viewed as, or read.
type Number interface{ float32 | float64 | uint32 }

// Numbers returns what little-endian bytes hold, whose length is that of whole numbers: a view
// where [Float32s] and its like give one, else a copy.
func Numbers[T Number](p []byte) []T {
	if x, ok := numbers[T](p); ok {
		return x
	}
	var one T
	x := make([]T, len(p)/int(unsafe.Sizeof(one)))
	if _, err := binary.Decode(p, binary.LittleEndian, x); err != nil {
		panic(fmt.Sprintf("tensor: %d bytes as numbers: %v", len(p), err))
	}
	return x
}

// NumbersBlob returns the little-endian bytes of numbers, which must not change afterwards.
func NumbersBlob[T Number](x []T) Blob {
	if p, ok := bytesOf(x); ok {
		return BytesBlob(p)
	}
	return Computed(int64(binary.Size(x)), func() ([]byte, error) { return binary.Append(nil, binary.LittleEndian, x) })
}

func numbers[T Number](p []byte) ([]T, bool) {
	var x T
	size := int(unsafe.Sizeof(x))
	if len(p)%size != 0 || !littleEndian() {
		return nil, false
	}
	if len(p) == 0 {
		return nil, true
	}
	q := unsafe.Pointer(unsafe.SliceData(p))
	if uintptr(q)%uintptr(size) != 0 {
		return nil, false
	}
	return unsafe.Slice((*T)(q), len(p)/size), true
}

func bytesOf[T Number](x []T) ([]byte, bool) {
	if !littleEndian() {
		return nil, false
	}
	var one T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), int(unsafe.Sizeof(one))*len(x)), true
}

func littleEndian() bool {
	x := uint16(1)
	return *(*byte)(unsafe.Pointer(&x)) == 1
}
