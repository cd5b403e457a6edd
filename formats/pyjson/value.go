package pyjson

import (
	"math"
	"strconv"
)

// A Value is nil, a bool, a [Number], a string, a []Value or an *[Object].
type Value any

// A Number is a number as spelled: JSON's grammar, or NaN, Infinity,
// -Infinity.
type Number string

// Int64 returns the number if it is an integer in int64's range, however it
// is spelled: 4096, 4096.0 and 4.096e3 are one number. Spelled as a float it
// is at most 2^53, where float64 stops being exact.
func (n Number) Int64() (int64, bool) {
	if v, err := strconv.ParseInt(string(n), 10, 64); err == nil {
		return v, true
	}
	f, err := strconv.ParseFloat(string(n), 64)
	if err != nil || math.Abs(f) > 1<<53 || f != math.Trunc(f) || math.IsNaN(f) {
		return 0, false
	}
	return int64(f), true
}

// Float64 returns the nearest float64; infinities and NaN only for the words.
func (n Number) Float64() (float64, bool) {
	f, err := strconv.ParseFloat(string(n), 64)
	return f, err == nil
}

// An Object is a JSON object in its own order.
type Object struct {
	keys   []string
	values map[string]Value
}

// Keys returns the keys in order. The slice is shared: do not change it.
func (o *Object) Keys() []string { return o.keys }

// Get returns a member.
func (o *Object) Get(key string) (Value, bool) {
	v, ok := o.values[key]
	return v, ok
}

// Parse reads one JSON text as a tree.
func Parse(file string, p []byte) (Value, error) {
	s := NewScanner(file, 0, p)
	v, err := s.Value()
	if err == nil {
		err = s.End()
	}
	if err != nil {
		return nil, err
	}
	return v, nil
}

// Value reads the next value as a tree.
func (s *Scanner) Value() (Value, error) {
	switch s.Peek() {
	case '{':
		return s.object()
	case '[':
		out := []Value{}
		err := s.Array(func() error {
			v, err := s.Value()
			out = append(out, v)
			return err
		})
		return out, err
	case '"':
		return s.String()
	case 't', 'f', 'n':
		return s.literal()
	}
	return s.Number()
}

func (s *Scanner) object() (Value, error) {
	o := &Object{values: map[string]Value{}}
	err := s.Object(func(key string) error {
		if _, ok := o.values[key]; ok {
			return s.Errorf(key, "duplicate key")
		}
		v, err := s.Value()
		o.keys = append(o.keys, key)
		o.values[key] = v
		return err
	})
	return o, err
}

// Kind names a value's type for messages.
func Kind(v Value) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "a bool"
	case Number:
		return "a number"
	case string:
		return "a string"
	case []Value:
		return "an array"
	}
	return "an object"
}
