package gguf

import (
	"math"

	"github.com/nstf/nstf/formats"
)

// Get decodes the value of a key; see [Value] for its types. Every call makes
// a fresh copy.
func (f *File) Get(key string) (Value, bool) { return f.shards[0].get(key) }

// Has reports whether a key is present.
func (f *File) Has(key string) bool {
	_, ok := f.shards[0].index[key]
	return ok
}

// must returns a value or the error that it is missing.
func (f *File) must(key string) (Value, error) {
	v, ok := f.Get(key)
	if !ok {
		return nil, formats.Errorf(f.Name(), key, "metadata key is missing")
	}
	return v, nil
}

func (f *File) wrongType(key string, v Value, want string) error {
	switch v.(type) {
	case string, bool, uint8, int8, uint16, int16, uint32, int32, uint64, int64, float32, float64:
		return formats.Errorf(f.Name(), key, "value %v is a %T, not %s", v, v, want)
	}
	return formats.Errorf(f.Name(), key, "value is a %T, not %s", v, want)
}

// Int returns an integer of any of the eight types. A key that is missing, of
// another type, or beyond int64 is a [formats.FormatError]; so for the other
// getters.
func (f *File) Int(key string) (int64, error) {
	v, err := f.must(key)
	if err != nil {
		return 0, err
	}
	if u, ok := v.(uint64); ok && u > math.MaxInt64 {
		return 0, formats.Errorf(f.Name(), key, "value %d does not fit an int64", u)
	}
	n, ok := integer(v)
	if !ok {
		return 0, f.wrongType(key, v, "an integer")
	}
	return n, nil
}

// Uint returns a non-negative integer of any of the eight types.
func (f *File) Uint(key string) (uint64, error) {
	v, err := f.must(key)
	if err != nil {
		return 0, err
	}
	if u, ok := v.(uint64); ok {
		return u, nil
	}
	n, ok := integer(v)
	if !ok {
		return 0, f.wrongType(key, v, "an integer")
	}
	if n < 0 {
		return 0, formats.Errorf(f.Name(), key, "value %d is negative", n)
	}
	return uint64(n), nil
}

// integer widens any integer type; a uint64 beyond int64 wraps.
func integer(v Value) (int64, bool) {
	switch v := v.(type) {
	case uint8:
		return int64(v), true
	case int8:
		return int64(v), true
	case uint16:
		return int64(v), true
	case int16:
		return int64(v), true
	case uint32:
		return int64(v), true
	case int32:
		return int64(v), true
	case uint64:
		return int64(v), true
	case int64:
		return v, true
	}
	return 0, false
}

// Float returns a float32 or float64.
func (f *File) Float(key string) (float64, error) {
	v, err := f.must(key)
	if err != nil {
		return 0, err
	}
	switch v := v.(type) {
	case float32:
		return float64(v), nil
	case float64:
		return v, nil
	}
	return 0, f.wrongType(key, v, "a float")
}

// String returns a string, which need not be UTF-8.
func (f *File) String(key string) (string, error) { return typed[string](f, key, "a string") }

// Bool returns a bool.
func (f *File) Bool(key string) (bool, error) { return typed[bool](f, key, "a bool") }

// Strings returns an array of strings.
func (f *File) Strings(key string) ([]string, error) {
	return typed[[]string](f, key, "an array of strings")
}

// Floats returns an array of float32.
func (f *File) Floats(key string) ([]float32, error) {
	return typed[[]float32](f, key, "an array of float32")
}

func typed[T any](f *File, key, want string) (T, error) {
	v, err := f.must(key)
	if err != nil {
		var zero T
		return zero, err
	}
	t, ok := v.(T)
	if !ok {
		return t, f.wrongType(key, v, want)
	}
	return t, nil
}

// Ints returns an array of any of the eight integer types.
func (f *File) Ints(key string) ([]int64, error) {
	v, err := f.must(key)
	if err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case []uint8:
		return widen(v), nil
	case []int8:
		return widen(v), nil
	case []uint16:
		return widen(v), nil
	case []int16:
		return widen(v), nil
	case []uint32:
		return widen(v), nil
	case []int32:
		return widen(v), nil
	case []int64:
		return v, nil
	case []uint64:
		for _, u := range v {
			if u > math.MaxInt64 {
				return nil, formats.Errorf(f.Name(), key, "value %d does not fit an int64", u)
			}
		}
		return widen(v), nil
	}
	return nil, f.wrongType(key, v, "an array of integers")
}

func widen[T uint8 | int8 | uint16 | int16 | uint32 | int32 | uint64](in []T) []int64 {
	out := make([]int64, len(in))
	for i, v := range in {
		out[i] = int64(v)
	}
	return out
}
