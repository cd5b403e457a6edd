package gguf

import (
	"encoding/binary"
	"io"
	"math"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/scheme"
)

// A KV is one metadata pair.
type KV struct {
	Key   string
	Value Value
}

// KVs returns all pairs in file order, for writing them again.
func (f *File) KVs() []KV {
	var out []KV
	for _, k := range f.shards[0].keys {
		v, _ := f.Get(k.name)
		out = append(out, KV{k.name, v})
	}
	return out
}

// writeNameLen is what llama.cpp loads: its names are 64 bytes with the NUL.
const writeNameLen = 63

// A Writer is a GGUF about to be written: everything is checked and laid out,
// no tensor read yet.
type Writer struct {
	header  []byte
	tensors []formats.Tensor
	align   int64
	size    int64
}

// NewWriter lays out a GGUF of version 3. Keys and tensors keep their order;
// tensor data is aligned to the key general.alignment (a uint32) where kv has
// it, else to 32 bytes.
//
// A tensor must be of a scheme that ggml has, with at most 4 dimensions and a
// name of at most 63 bytes, which is what llama.cpp loads: what is not is an
// [formats.UnsupportedError]. Duplicates, unknown value types and data of
// another size than scheme and shape say are a [formats.FormatError].
func NewWriter(kv []KV, tensors []formats.Tensor) (*Writer, error) {
	w := &Writer{tensors: tensors, align: defaultAlignment}
	w.header = append(w.header, magic...)
	w.header = binary.LittleEndian.AppendUint32(w.header, 3)
	w.header = binary.LittleEndian.AppendUint64(w.header, uint64(len(tensors)))
	w.header = binary.LittleEndian.AppendUint64(w.header, uint64(len(kv)))
	if err := w.addKeys(kv); err != nil {
		return nil, err
	}
	seen := make(map[string]bool)
	for i := range tensors {
		t := &tensors[i]
		if seen[t.Name] {
			return nil, formats.Errorf("", t.Name, "duplicate tensor name")
		}
		seen[t.Name] = true
		if err := w.addTensor(t); err != nil {
			return nil, err
		}
	}
	if len(tensors) > 0 {
		w.size += w.pad(int64(len(w.header)))
	}
	w.size += int64(len(w.header))
	return w, nil
}

// Size returns the bytes that WriteTo will write.
func (w *Writer) Size() int64 { return w.size }

func (w *Writer) pad(n int64) int64 { return -n & (w.align - 1) }

func (w *Writer) addKeys(kv []KV) error {
	seen := make(map[string]bool)
	for _, p := range kv {
		if p.Key == "" || len(p.Key) > maxKeyLen || seen[p.Key] {
			return formats.Errorf("", p.Key, "metadata key is a duplicate, empty, or longer than %d bytes", maxKeyLen)
		}
		seen[p.Key] = true
		if p.Key == keyAlignment {
			a, ok := p.Value.(uint32)
			if !ok || a == 0 || a&(a-1) != 0 {
				return formats.Errorf("", p.Key, "%v is not a power of two in a uint32", p.Value)
			}
			w.align = int64(a)
		}
		w.header = appendString(w.header, p.Key)
		var err error
		if w.header, err = appendValue(w.header, p.Key, p.Value, true); err != nil {
			return err
		}
	}
	return nil
}

func (w *Writer) addTensor(t *formats.Tensor) error {
	if len(t.Name) == 0 || len(t.Name) > writeNameLen {
		return formats.Unsupportedf("", t.Name, "a tensor name of %d bytes in GGUF: 1 to %d are allowed", len(t.Name), writeNameLen)
	}
	if len(t.Shape) > maxDims {
		return formats.Unsupportedf("", t.Name, "shape %v in GGUF: at most %d dimensions", t.Shape, maxDims)
	}
	row, ok := scheme.ByName(t.Scheme)
	if !ok || row.GGML < 0 {
		return formats.Unsupportedf("", t.Name, "scheme %q in GGUF", t.Scheme)
	}
	spec := formats.Tensor{Name: t.Name, Shape: t.Shape, Parts: make([]formats.Part, 1)}
	size, err := resolve(&spec, row.GGML)
	if err != nil {
		return err
	}
	if len(t.Parts) != 1 || t.Parts[0].Data.Len() != size {
		return formats.Errorf("", t.Name, "%d parts of %d bytes together, but %s %v is one of %d", len(t.Parts), t.Size(), t.Scheme, t.Shape, size)
	}
	w.header = appendString(w.header, t.Name)
	w.header = binary.LittleEndian.AppendUint32(w.header, uint32(len(t.Shape)))
	for i := range t.Shape {
		w.header = binary.LittleEndian.AppendUint64(w.header, uint64(t.Shape[len(t.Shape)-1-i]))
	}
	w.header = binary.LittleEndian.AppendUint32(w.header, uint32(row.GGML))
	w.header = binary.LittleEndian.AppendUint64(w.header, uint64(w.size))
	w.size += size + w.pad(size)
	return nil
}

// WriteTo streams the file: the header, then each tensor's data and its
// padding. It may be called again.
func (w *Writer) WriteTo(out io.Writer) (int64, error) {
	n, err := out.Write(w.header)
	done := int64(n)
	for i := range w.tensors {
		if err == nil {
			err = w.writePadding(out, &done)
		}
		if err != nil {
			return done, err
		}
		var m int64
		m, err = w.tensors[i].Parts[0].Data.WriteTo(out)
		done += m
	}
	if err == nil && len(w.tensors) > 0 {
		err = w.writePadding(out, &done)
	}
	return done, err
}

// writePadding fills up to the alignment.
func (w *Writer) writePadding(out io.Writer, done *int64) error {
	for left := w.pad(*done); left > 0; {
		n, err := out.Write(make([]byte, min(left, 1<<16)))
		if err != nil {
			return err
		}
		*done += int64(n)
		left -= int64(n)
	}
	return nil
}

func appendString(p []byte, s string) []byte {
	p = binary.LittleEndian.AppendUint64(p, uint64(len(s)))
	return append(p, s...)
}

// appendValue writes a value, behind its type where typed is set.
func appendValue(p []byte, key string, v Value, typed bool) ([]byte, error) {
	typ, array := typeOf(v)
	if typ < 0 {
		return nil, formats.Errorf("", key, "a %T is no metadata value", v)
	}
	if array {
		if typed {
			p = binary.LittleEndian.AppendUint32(p, typeArray)
		}
		return appendArray(p, key, typ, v)
	}
	if typed {
		p = binary.LittleEndian.AppendUint32(p, uint32(typ))
	}
	return appendScalar(p, v), nil
}

// typeOf returns the type of a scalar or of an array's elements, -1 for none.
func typeOf(v Value) (typ int, array bool) {
	switch v.(type) {
	case uint8, []uint8:
		typ = typeUint8
	case int8, []int8:
		typ = typeInt8
	case uint16, []uint16:
		typ = typeUint16
	case int16, []int16:
		typ = typeInt16
	case uint32, []uint32:
		typ = typeUint32
	case int32, []int32:
		typ = typeInt32
	case float32, []float32:
		typ = typeFloat32
	case bool, []bool:
		typ = typeBool
	case string, []string:
		typ = typeString
	case []any:
		typ = typeArray
	case uint64, []uint64:
		typ = typeUint64
	case int64, []int64:
		typ = typeInt64
	case float64, []float64:
		typ = typeFloat64
	default:
		return -1, false
	}
	switch v.(type) {
	case uint8, int8, uint16, int16, uint32, int32, float32, bool, string, uint64, int64, float64:
		return typ, false
	}
	return typ, true
}

func appendArray(p []byte, key string, typ int, v Value) ([]byte, error) {
	p = binary.LittleEndian.AppendUint32(p, uint32(typ))
	switch v := v.(type) {
	case []uint8:
		return appendAll(p, v), nil
	case []int8:
		return appendAll(p, v), nil
	case []uint16:
		return appendAll(p, v), nil
	case []int16:
		return appendAll(p, v), nil
	case []uint32:
		return appendAll(p, v), nil
	case []int32:
		return appendAll(p, v), nil
	case []float32:
		return appendAll(p, v), nil
	case []bool:
		return appendAll(p, v), nil
	case []string:
		return appendAll(p, v), nil
	case []uint64:
		return appendAll(p, v), nil
	case []int64:
		return appendAll(p, v), nil
	case []float64:
		return appendAll(p, v), nil
	}
	inner := v.([]any)
	p = binary.LittleEndian.AppendUint64(p, uint64(len(inner)))
	for _, e := range inner {
		if _, array := typeOf(e); !array {
			return nil, formats.Errorf("", key, "a %T within an array of arrays", e)
		}
		var err error
		if p, err = appendValue(p, key, e, false); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func appendAll[T any](p []byte, v []T) []byte {
	p = binary.LittleEndian.AppendUint64(p, uint64(len(v)))
	for _, e := range v {
		p = appendScalar(p, e)
	}
	return p
}

func appendScalar(p []byte, v Value) []byte {
	le := binary.LittleEndian
	switch v := v.(type) {
	case uint8:
		return append(p, v)
	case int8:
		return append(p, uint8(v))
	case uint16:
		return le.AppendUint16(p, v)
	case int16:
		return le.AppendUint16(p, uint16(v))
	case uint32:
		return le.AppendUint32(p, v)
	case int32:
		return le.AppendUint32(p, uint32(v))
	case float32:
		return le.AppendUint32(p, math.Float32bits(v))
	case bool:
		if v {
			return append(p, 1)
		}
		return append(p, 0)
	case string:
		return appendString(p, v)
	case uint64:
		return le.AppendUint64(p, v)
	case int64:
		return le.AppendUint64(p, uint64(v))
	default:
		return le.AppendUint64(p, math.Float64bits(v.(float64)))
	}
}
