package gguf

import (
	"encoding/binary"
	"fmt"
	"math"
)

// A Value is one metadata value: uint8, int8, uint16, int16, uint32, int32,
// float32, bool, string, uint64, int64 or float64; a slice of one of those
// for an array; or []any of such slices for an array of arrays.
type Value any

// The metadata types, numbered as in the file.
const (
	typeUint8 = iota
	typeInt8
	typeUint16
	typeInt16
	typeUint32
	typeInt32
	typeFloat32
	typeBool
	typeString
	typeArray
	typeUint64
	typeInt64
	typeFloat64
)

const maxDepth = 4 // arrays within arrays

// widths are the bytes of each scalar type, 0 for strings and arrays.
var widths = [...]int64{1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8}

var typeNames = [...]string{"uint8", "int8", "uint16", "int16", "uint32", "int32",
	"float32", "bool", "string", "array", "uint64", "int64", "float64"}

// skipValue checks a value of the given type and moves behind it.
func (c *cursor) skipValue(key string, typ uint32, depth int) {
	switch {
	case typ >= uint32(len(widths)):
		c.failf(key, "metadata type %d does not exist", typ)
	case typ == typeString:
		c.skip(key, c.u64())
	case typ == typeBool:
		c.checkBools(key, 1)
	case typ == typeArray:
		c.skipArray(key, depth+1)
	default:
		c.skip(key, uint64(widths[typ]))
	}
}

func (c *cursor) skipArray(key string, depth int) {
	if depth > maxDepth {
		c.unsupportedf(key, "arrays nested more than %d deep", maxDepth)
		return
	}
	typ, n := c.u32(), c.u64()
	if c.err != nil {
		return
	}
	least := uint64(8) // a string's length
	switch {
	case typ >= uint32(len(widths)):
		c.failf(key, "array of metadata type %d, which does not exist", typ)
		return
	case typ == typeArray:
		least = 12
	case widths[typ] > 0:
		least = uint64(widths[typ])
	}
	if n > uint64(c.left())/least {
		c.failf(key, "array of %d %s values in %d bytes", n, typeNames[typ], c.left())
		return
	}
	switch {
	case typ == typeBool:
		c.checkBools(key, n)
	case widths[typ] > 0:
		c.skip(key, n*uint64(widths[typ]))
	default:
		for ; n > 0 && c.err == nil; n-- {
			c.skipValue(key, typ, depth)
		}
	}
}

// checkBools walks n bytes that must be 0 or 1.
func (c *cursor) checkBools(key string, n uint64) {
	for ; n > 0 && c.err == nil; n-- {
		if b := c.take(1); b != nil && b[0] > 1 {
			c.failf(key, "bool value %d is neither 0 nor 1", b[0])
		}
	}
}

// decodeValue decodes a value that skipValue has accepted and returns the
// bytes behind it.
func decodeValue(typ uint32, p []byte) (Value, []byte) {
	if typ == typeArray {
		inner, n := binary.LittleEndian.Uint32(p), binary.LittleEndian.Uint64(p[4:])
		return decodeArray(inner, int(n), p[12:])
	}
	if typ == typeString {
		n := binary.LittleEndian.Uint64(p)
		return string(p[8 : 8+n]), p[8+n:]
	}
	return decodeScalar(typ, p), p[widths[typ]:]
}

func decodeScalar(typ uint32, p []byte) Value {
	le := binary.LittleEndian
	switch typ {
	case typeUint8:
		return p[0]
	case typeInt8:
		return int8(p[0])
	case typeUint16:
		return le.Uint16(p)
	case typeInt16:
		return int16(le.Uint16(p))
	case typeUint32:
		return le.Uint32(p)
	case typeInt32:
		return int32(le.Uint32(p))
	case typeFloat32:
		return math.Float32frombits(le.Uint32(p))
	case typeBool:
		return p[0] != 0
	case typeUint64:
		return le.Uint64(p)
	case typeInt64:
		return int64(le.Uint64(p))
	case typeFloat64:
		return math.Float64frombits(le.Uint64(p))
	}
	panic(fmt.Sprintf("gguf: scalar type %d was not checked", typ))
}

func decodeArray(typ uint32, n int, p []byte) (Value, []byte) {
	switch typ {
	case typeString:
		out := make([]string, n)
		for i := range out {
			size := binary.LittleEndian.Uint64(p)
			out[i], p = string(p[8:8+size]), p[8+size:]
		}
		return out, p
	case typeArray:
		out := make([]any, n)
		for i := range out {
			out[i], p = decodeValue(typ, p)
		}
		return out, p
	}
	return decodeScalars(typ, n, p), p[int64(n)*widths[typ]:]
}

func decodeScalars(typ uint32, n int, p []byte) Value {
	switch typ {
	case typeUint8:
		return scalars[uint8](typ, n, p)
	case typeInt8:
		return scalars[int8](typ, n, p)
	case typeUint16:
		return scalars[uint16](typ, n, p)
	case typeInt16:
		return scalars[int16](typ, n, p)
	case typeUint32:
		return scalars[uint32](typ, n, p)
	case typeInt32:
		return scalars[int32](typ, n, p)
	case typeFloat32:
		return scalars[float32](typ, n, p)
	case typeBool:
		return scalars[bool](typ, n, p)
	case typeUint64:
		return scalars[uint64](typ, n, p)
	case typeInt64:
		return scalars[int64](typ, n, p)
	default:
		return scalars[float64](typ, n, p)
	}
}

func scalars[T any](typ uint32, n int, p []byte) []T {
	out := make([]T, n)
	w := widths[typ]
	for i := range out {
		out[i] = decodeScalar(typ, p[int64(i)*w:]).(T)
	}
	return out
}
