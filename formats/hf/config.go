package hf

import (
	"slices"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/pyjson"
)

// A Config is a JSON object of a configuration file with typed access.
//
// A key is required (Int, String, ...) or optional with the default that the
// caller states (IntOr, StringOr, ...); null counts as absent, as it does in
// transformers; a value of another type is a [formats.FormatError] that names
// file and key. The files may hold what Python's json writes beyond the
// standard, NaN and Infinity: they are read, and refused where a number is
// asked for. Duplicate keys are refused when the file is read.
type Config struct {
	file string
	path string // of this object in the file, with a dot behind it, or ""
	obj  *pyjson.Object
	raw  []byte
}

// ParseConfig reads a configuration from bytes; file is for messages.
func ParseConfig(file string, p []byte) (*Config, error) {
	v, err := pyjson.Parse(file, p)
	if err != nil {
		return nil, err
	}
	obj, ok := v.(*pyjson.Object)
	if !ok {
		return nil, formats.Errorf(file, "", "the file holds %s, not an object", pyjson.Kind(v))
	}
	return &Config{file: file, obj: obj, raw: p}, nil
}

// File returns the file's path.
func (c *Config) File() string { return c.file }

// Raw returns the file's bytes, nil for an object within one. They must not
// be changed.
func (c *Config) Raw() []byte { return c.raw }

// Keys returns the keys in file order.
func (c *Config) Keys() []string { return slices.Clone(c.obj.Keys()) }

// HasKey reports whether the key is there, be it null.
func (c *Config) HasKey(key string) bool {
	_, ok := c.obj.Get(key)
	return ok
}

// Has reports whether the key is there and not null.
func (c *Config) Has(key string) bool {
	v, _ := c.obj.Get(key)
	return v != nil
}

// Get returns the value at a path of keys, false where it is absent or null.
// See [pyjson.Value] for its types.
func (c *Config) Get(path ...string) (pyjson.Value, bool) {
	var v pyjson.Value = c.obj
	for _, key := range path {
		obj, ok := v.(*pyjson.Object)
		if !ok {
			return nil, false
		}
		v, _ = obj.Get(key)
	}
	return v, v != nil
}

// Sub returns the object under a key, false where there is none.
func (c *Config) Sub(key string) (*Config, bool) {
	v, _ := c.obj.Get(key)
	obj, ok := v.(*pyjson.Object)
	if !ok {
		return nil, false
	}
	return &Config{file: c.file, path: c.path + key + ".", obj: obj}, true
}

// Text returns the configuration of the language model: the object under
// text_config in a multimodal model's configuration, else c.
func (c *Config) Text() *Config {
	if sub, ok := c.Sub("text_config"); ok {
		return sub
	}
	return c
}

// must returns the value of a required key.
func (c *Config) must(key string) (pyjson.Value, error) {
	if v, _ := c.obj.Get(key); v != nil {
		return v, nil
	}
	return nil, formats.Errorf(c.file, c.path+key, "required key is missing")
}

func (c *Config) wrong(key string, v pyjson.Value, want string) error {
	switch v := v.(type) {
	case pyjson.Number, string, bool:
		return formats.Errorf(c.file, c.path+key, "value %v is %s, not %s", v, pyjson.Kind(v), want)
	}
	return formats.Errorf(c.file, c.path+key, "value is %s, not %s", pyjson.Kind(v), want)
}

// Int returns a required integer. 4096.0 is one, as in Python's arithmetic.
func (c *Config) Int(key string) (int64, error) {
	v, err := c.must(key)
	if err != nil {
		return 0, err
	}
	return c.asInt(key, v)
}

func (c *Config) asInt(key string, v pyjson.Value) (int64, error) {
	n, ok := v.(pyjson.Number)
	if !ok {
		return 0, c.wrong(key, v, "an integer")
	}
	i, ok := n.Int64()
	if !ok {
		return 0, c.wrong(key, v, "an integer")
	}
	return i, nil
}

// Float returns a required finite number.
func (c *Config) Float(key string) (float64, error) {
	v, err := c.must(key)
	if err != nil {
		return 0, err
	}
	return c.asFloat(key, v)
}

func (c *Config) asFloat(key string, v pyjson.Value) (float64, error) {
	n, ok := v.(pyjson.Number)
	if !ok {
		return 0, c.wrong(key, v, "a number")
	}
	f, ok := n.Float64()
	if !ok || f-f != 0 {
		return 0, c.wrong(key, v, "a finite number")
	}
	return f, nil
}

// Bool returns a required bool.
func (c *Config) Bool(key string) (bool, error) { return as[bool](c, key, "a bool") }

// String returns a required string.
func (c *Config) String(key string) (string, error) { return as[string](c, key, "a string") }

func as[T any](c *Config, key, want string) (T, error) {
	v, err := c.must(key)
	if err != nil {
		var zero T
		return zero, err
	}
	t, ok := v.(T)
	if !ok {
		return t, c.wrong(key, v, want)
	}
	return t, nil
}

// IntOr returns an optional integer.
func (c *Config) IntOr(key string, def int64) (int64, error) { return or(c, key, def, c.Int) }

// FloatOr returns an optional finite number.
func (c *Config) FloatOr(key string, def float64) (float64, error) { return or(c, key, def, c.Float) }

// BoolOr returns an optional bool.
func (c *Config) BoolOr(key string, def bool) (bool, error) { return or(c, key, def, c.Bool) }

// StringOr returns an optional string.
func (c *Config) StringOr(key, def string) (string, error) { return or(c, key, def, c.String) }

func or[T any](c *Config, key string, def T, get func(string) (T, error)) (T, error) {
	if !c.Has(key) {
		return def, nil
	}
	return get(key)
}

// Strings returns a required array of strings.
func (c *Config) Strings(key string) ([]string, error) {
	return list(c, key, func(key string, v pyjson.Value) (string, error) {
		s, ok := v.(string)
		if !ok {
			return "", c.wrong(key, v, "a string")
		}
		return s, nil
	})
}

// Ints returns a required array of integers.
func (c *Config) Ints(key string) ([]int64, error) { return list(c, key, c.asInt) }

// Floats returns a required array of finite numbers.
func (c *Config) Floats(key string) ([]float64, error) { return list(c, key, c.asFloat) }

func list[T any](c *Config, key string, element func(string, pyjson.Value) (T, error)) ([]T, error) {
	v, err := c.must(key)
	if err != nil {
		return nil, err
	}
	in, ok := v.([]pyjson.Value)
	if !ok {
		return nil, c.wrong(key, v, "an array")
	}
	out := make([]T, len(in))
	for i, e := range in {
		if out[i], err = element(key, e); err != nil {
			return nil, err
		}
	}
	return out, nil
}
