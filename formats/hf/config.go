package hf

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"

	"github.com/nstf/nstf/formats"
)

// A Config is one JSON object of a checkpoint's configuration, read by typed
// getters. A key whose value is null counts as absent, as in transformers;
// [Config.HasKey] tells the two apart. Getters without a default refuse an
// absent key; all refuse a value of another type.
//
// Python's json module writes NaN and Infinity, which JSON does not have:
// they are read as numbers.
type Config struct {
	file   string
	path   string // dotted path of this object inside the file
	values map[string]any
}

// maxDepth bounds nesting, against input made to exhaust the stack.
const maxDepth = 64

// ParseConfig reads a JSON object; file is for messages.
func ParseConfig(file string, data []byte) (*Config, error) {
	dec := json.NewDecoder(bytes.NewReader(pythonNumbers(data)))
	dec.UseNumber()
	v, err := value(dec, 0)
	if err != nil {
		return nil, &formats.FormatError{File: file, Offset: dec.InputOffset(), Reason: "not JSON", Err: err}
	}
	m, ok := v.(map[string]any)
	if !ok {
		return nil, formats.Errorf(file, "", "a JSON object is expected, not %T", v)
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, formats.ErrorAt(file, "", dec.InputOffset(), "something follows the JSON object")
	}
	return &Config{file: file, values: m}, nil
}

// value decodes one JSON value and refuses repeated keys and deep nesting.
func value(dec *json.Decoder, depth int) (any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("nested deeper than %d", maxDepth)
	}
	t, err := dec.Token()
	if err != nil {
		return nil, err
	}
	switch t {
	case json.Delim('{'):
		m := map[string]any{}
		for dec.More() {
			k, err := dec.Token()
			if err != nil {
				return nil, err
			}
			key := k.(string) // the decoder accepts nothing else here
			if _, ok := m[key]; ok {
				return nil, fmt.Errorf("key %q is repeated", key)
			}
			if m[key], err = value(dec, depth+1); err != nil {
				return nil, err
			}
		}
		_, err = dec.Token()
		return m, err
	case json.Delim('['):
		list := []any{}
		for dec.More() {
			v, err := value(dec, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err = dec.Token()
		return list, err
	}
	return t, nil
}

// pythonNumbers quotes the bare words NaN, Infinity and -Infinity outside
// strings.
func pythonNumbers(data []byte) []byte {
	if !bytes.Contains(data, []byte("NaN")) && !bytes.Contains(data, []byte("Infinity")) {
		return data
	}
	var out []byte
	for i := 0; i < len(data); {
		if data[i] == '"' {
			end := i + 1
			for end < len(data) && data[end] != '"' {
				if data[end] == '\\' {
					end++
				}
				end++
			}
			end = min(end+1, len(data))
			out = append(out, data[i:end]...)
			i = end
			continue
		}
		word := ""
		for _, w := range []string{"NaN", "Infinity", "-Infinity"} {
			if bytes.HasPrefix(data[i:], []byte(w)) {
				word = w
			}
		}
		if word == "" {
			out = append(out, data[i])
			i++
			continue
		}
		out = strconv.AppendQuote(out, word)
		i += len(word)
	}
	return out
}

// File returns the file's name, for messages.
func (c *Config) File() string { return c.file }

// HasKey reports whether the key is there, null or not.
func (c *Config) HasKey(key string) bool { _, ok := c.values[key]; return ok }

// Has reports whether the key is there and not null.
func (c *Config) Has(key string) bool { return c.values[key] != nil }

// Get returns a value as decoded: string, bool, json.Number, []any or
// map[string]any.
func (c *Config) Get(key string) (any, bool) {
	v := c.values[key]
	return v, v != nil
}

// Sub returns a nested object, false where the key is absent or something
// else.
func (c *Config) Sub(key string) (*Config, bool) {
	m, ok := c.values[key].(map[string]any)
	if !ok {
		return nil, false
	}
	return &Config{file: c.file, path: c.place(key) + ".", values: m}, true
}

func (c *Config) place(key string) string { return c.path + key }

func (c *Config) need(key string) (any, error) {
	v, ok := c.Get(key)
	if !ok {
		return nil, formats.Errorf(c.file, c.place(key), "key is missing")
	}
	return v, nil
}

func (c *Config) wrong(key string, v any, want string) error {
	return formats.Errorf(c.file, c.place(key), "value %v is not %s", v, want)
}

// Int returns an integer; 4096.0 is one.
func (c *Config) Int(key string) (int64, error) {
	v, err := c.need(key)
	if err != nil {
		return 0, err
	}
	n, ok := asInt(v)
	if !ok {
		return 0, c.wrong(key, v, "an integer")
	}
	return n, nil
}

func asInt(v any) (int64, bool) {
	num, ok := v.(json.Number)
	if !ok {
		return 0, false
	}
	if n, err := num.Int64(); err == nil {
		return n, true
	}
	f, err := num.Float64()
	if err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		return 0, false
	}
	return int64(f), true
}

// IntOr returns an integer, or def where the key is absent.
func (c *Config) IntOr(key string, def int64) (int64, error) {
	if !c.Has(key) {
		return def, nil
	}
	return c.Int(key)
}

// Float returns a number.
func (c *Config) Float(key string) (float64, error) {
	v, err := c.need(key)
	if err != nil {
		return 0, err
	}
	f, ok := asFloat(v)
	if !ok {
		return 0, c.wrong(key, v, "a number")
	}
	return f, nil
}

func asFloat(v any) (float64, bool) {
	switch n := v.(type) {
	case json.Number:
		f, err := n.Float64()
		return f, err == nil
	case string:
		switch n {
		case "NaN", "Infinity", "-Infinity":
			f, err := strconv.ParseFloat(n, 64)
			return f, err == nil
		}
	}
	return 0, false
}

// FloatOr returns a number, or def where the key is absent.
func (c *Config) FloatOr(key string, def float64) (float64, error) {
	if !c.Has(key) {
		return def, nil
	}
	return c.Float(key)
}

// BoolOr returns a bool, or def where the key is absent.
func (c *Config) BoolOr(key string, def bool) (bool, error) {
	v, ok := c.Get(key)
	if !ok {
		return def, nil
	}
	b, ok := v.(bool)
	if !ok {
		return def, c.wrong(key, v, "true or false")
	}
	return b, nil
}

// String returns a string.
func (c *Config) String(key string) (string, error) {
	v, err := c.need(key)
	if err != nil {
		return "", err
	}
	s, ok := v.(string)
	if !ok {
		return "", c.wrong(key, v, "a string")
	}
	return s, nil
}

// StringOr returns a string, or def where the key is absent.
func (c *Config) StringOr(key, def string) (string, error) {
	if !c.Has(key) {
		return def, nil
	}
	return c.String(key)
}

func (c *Config) list(key string) ([]any, error) {
	v, err := c.need(key)
	if err != nil {
		return nil, err
	}
	l, ok := v.([]any)
	if !ok {
		return nil, c.wrong(key, v, "a list")
	}
	return l, nil
}

// Ints returns a list of integers.
func (c *Config) Ints(key string) ([]int64, error) {
	return collect(c, key, "a list of integers", asInt)
}

// Floats returns a list of numbers.
func (c *Config) Floats(key string) ([]float64, error) {
	return collect(c, key, "a list of numbers", asFloat)
}

// Strings returns a list of strings.
func (c *Config) Strings(key string) ([]string, error) {
	return collect(c, key, "a list of strings", func(v any) (string, bool) { s, ok := v.(string); return s, ok })
}

func collect[T any](c *Config, key, want string, as func(any) (T, bool)) ([]T, error) {
	l, err := c.list(key)
	if err != nil {
		return nil, err
	}
	out := make([]T, len(l))
	for i, v := range l {
		var ok bool
		if out[i], ok = as(v); !ok {
			return nil, c.wrong(key, v, want)
		}
	}
	return out, nil
}
