package hf

import (
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats"
)

func config(t testing.TB, text string) *Config {
	t.Helper()
	c, err := ParseConfig("config.json", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestConfigGetters(t *testing.T) {
	c := config(t, `{"i": 4096, "if": 4096.0, "f": 1e-05, "b": true, "s": "x", "n": null, "a": [1, 2], "as": ["p", "q"],
		"af": [0.5, 1], "o": {"k": 7, "p": {"q": "deep"}}, "inf": Infinity, "nan": NaN}`)
	if n, err := c.Int("i"); n != 4096 || err != nil {
		t.Error(n, err)
	}
	if n, err := c.Int("if"); n != 4096 || err != nil {
		t.Error(n, err)
	}
	if f, err := c.Float("f"); f != 1e-5 || err != nil {
		t.Error(f, err)
	}
	if f, err := c.Float("i"); f != 4096 || err != nil {
		t.Error(f, err)
	}
	if b, err := c.Bool("b"); !b || err != nil {
		t.Error(b, err)
	}
	if s, err := c.String("s"); s != "x" || err != nil {
		t.Error(s, err)
	}
	if n, err := c.Ints("a"); !slices.Equal(n, []int64{1, 2}) || err != nil {
		t.Error(n, err)
	}
	if s, err := c.Strings("as"); !slices.Equal(s, []string{"p", "q"}) || err != nil {
		t.Error(s, err)
	}
	if f, err := c.Floats("af"); !slices.Equal(f, []float64{0.5, 1}) || err != nil {
		t.Error(f, err)
	}
	if v, ok := c.Get("o", "p", "q"); v != "deep" || !ok {
		t.Error(v, ok)
	}
	if v, ok := c.Get("o", "k", "q"); ok {
		t.Error(v)
	}
	sub, ok := c.Sub("o")
	if n, err := sub.Int("k"); !ok || n != 7 || err != nil {
		t.Error(ok, n, err)
	}
	if _, ok := c.Sub("i"); ok {
		t.Error("a number is no object")
	}
	if !c.HasKey("n") || c.Has("n") || c.HasKey("none") || !c.Has("i") {
		t.Error("null counts as absent, but its key is there")
	}
	if want := []string{"i", "if", "f", "b", "s", "n", "a", "as", "af", "o", "inf", "nan"}; !slices.Equal(c.Keys(), want) {
		t.Errorf("keys %q", c.Keys())
	}
}

func TestConfigDefaults(t *testing.T) {
	c := config(t, `{"n": null, "i": 3, "s": "x"}`)
	for _, key := range []string{"n", "absent"} {
		n, err1 := c.IntOr(key, 5)
		f, err2 := c.FloatOr(key, 0.5)
		b, err3 := c.BoolOr(key, true)
		s, err4 := c.StringOr(key, "d")
		if err := errors.Join(err1, err2, err3, err4); n != 5 || f != 0.5 || !b || s != "d" || err != nil {
			t.Error(key, n, f, b, s, err)
		}
	}
	if n, err := c.IntOr("i", 5); n != 3 || err != nil {
		t.Error(n, err)
	}
	if _, err := c.IntOr("s", 5); err == nil {
		t.Error("a string passes for an integer")
	}
}

func TestConfigErrors(t *testing.T) {
	c := config(t, `{"f": 0.5, "inf": Infinity, "minus": -Infinity, "nan": NaN, "huge": 1e400, "s": "x", "n": null, "a": [1, "x"], "o": {"k": true}}`)
	sub, _ := c.Sub("o")
	second := func(_ any, err error) error { return err }
	for say, err := range map[string]error{
		`"none": required key is missing`:                 second(c.Int("none")),
		`"n": required key is missing`:                    second(c.String("n")),
		`"f": value 0.5 is a number, not an integer`:      second(c.Int("f")),
		`"s": value x is a string, not a number`:          second(c.Float("s")),
		`"inf": value Infinity is a number, not a finite`: second(c.Float("inf")),
		`"minus": value -Infinity`:                        second(c.FloatOr("minus", 1)),
		`"nan": value NaN is a number, not a finite`:      second(c.Float("nan")),
		`"huge": value 1e400`:                             second(c.Float("huge")),
		`"inf": value Infinity is a number, not an int`:   second(c.Int("inf")),
		`"o": value is an object, not a bool`:             second(c.Bool("o")),
		`"a": value is an array, not a string`:            second(c.String("a")),
		`"a": value x is a string, not an integer`:        second(c.Ints("a")),
		`"a": value 1 is a number, not a string`:          second(c.Strings("a")),
		`"s": value x is a string, not an array`:          second(c.Floats("s")),
		`"o.k": value true is a bool, not an integer`:     second(sub.Int("k")),
		`"o.none": required key is missing`:               second(sub.Int("none")),
	} {
		var bad *formats.FormatError
		if !errors.As(err, &bad) || !strings.HasPrefix(err.Error(), "config.json: "+say) {
			t.Errorf("%v, want %s", err, say)
		}
	}
}

func TestConfigMalformed(t *testing.T) {
	for text, say := range map[string]string{
		``: "expected", `[]`: "an array, not an object", `{"a":1,"a":2}`: "duplicate key",
		`{"a":{"b":1,"b":2}}`: "duplicate key", `{"a":'b'}`: "expected", `{} x`: "behind",
		`{"a":` + strings.Repeat("[", 100000): "64 deep",
	} {
		_, err := ParseConfig("f", []byte(text))
		var bad *formats.FormatError
		if !errors.As(err, &bad) || !strings.Contains(err.Error(), say) {
			t.Errorf("%.30s: %v", text, err)
		}
	}
}

func TestText(t *testing.T) {
	if n, err := config(t, `{"text_config": {"k": 1}, "k": 2}`).Text().Int("k"); n != 1 || err != nil {
		t.Error(n, err)
	}
	if n, err := config(t, `{"text_config": null, "k": 2}`).Text().Int("k"); n != 2 || err != nil {
		t.Error(n, err)
	}
}

func FuzzConfig(f *testing.F) {
	f.Add([]byte(`{"a": [1.5e3, "é\n", null, {"b": -Infinity}], "chat_template": [{"name": "x", "template": "y"}]}`))
	f.Add([]byte(`{"quantization_config": {"quant_method": "gptq", "bits": 4}, "chat_template": "x"}`))
	f.Fuzz(func(t *testing.T, p []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		c, err := ParseConfig("fuzz", p)
		runtime.ReadMemStats(&after)
		// A tree of one-byte values takes some 40 bytes for each: the files
		// are capped at 16 MiB instead of the factor of 2 that weights have.
		if got, limit := after.TotalAlloc-before.TotalAlloc, uint64(100*len(p)+1<<18); got > limit {
			t.Errorf("%d bytes allocated for a file of %d", got, len(p))
		}
		if err != nil {
			return
		}
		for _, key := range c.Keys() {
			_, _ = c.IntOr(key, 1)
			_, _ = c.FloatOr(key, 1)
			_, _ = c.Strings(key)
			_, _ = c.Ints(key)
			_, _ = c.Sub(key)
		}
	})
}
