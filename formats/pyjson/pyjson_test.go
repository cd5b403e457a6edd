package pyjson

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats"
)

func TestParse(t *testing.T) {
	v, err := Parse("f", []byte(`{"z": [1, -2.5e-3, true, false, null, "a\"\\\/\b\f\n\r\té☃\ud83d\ude00"],
		"a": {"i": Infinity, "m": -Infinity, "n": NaN}, "e": [], "o": {}}`))
	if err != nil {
		t.Fatal(err)
	}
	o := v.(*Object)
	if !slices.Equal(o.Keys(), []string{"z", "a", "e", "o"}) {
		t.Errorf("keys %q", o.Keys())
	}
	z, _ := o.Get("z")
	want := []Value{Number("1"), Number("-2.5e-3"), true, false, nil, "a\"\\/\b\f\n\r\té☃😀"}
	if !slices.Equal(z.([]Value), want) {
		t.Errorf("%#v", z)
	}
	a, _ := o.Get("a")
	for key, want := range map[string]float64{"i": math.Inf(1), "m": math.Inf(-1)} {
		n, _ := a.(*Object).Get(key)
		if f, ok := n.(Number).Float64(); f != want || !ok {
			t.Errorf("%s: %v", key, f)
		}
	}
	n, _ := a.(*Object).Get("n")
	if f, ok := n.(Number).Float64(); !math.IsNaN(f) || !ok {
		t.Errorf("NaN: %v", f)
	}
}

func TestNumbers(t *testing.T) {
	for text, want := range map[Number]int64{
		"0": 0, "-0": 0, "4096": 4096, "4096.0": 4096, "4.096e3": 4096, "-9223372036854775808": math.MinInt64,
		"9223372036854775807": math.MaxInt64, "9007199254740992.0": 1 << 53, "1e15": 1e15,
	} {
		if n, ok := text.Int64(); !ok || n != want {
			t.Errorf("%s = %d, %v", text, n, ok)
		}
	}
	for _, text := range []Number{"0.5", "9223372036854775808", "9007199254740994.0", "1e400", "1e99999999999", "NaN", "Infinity"} {
		if n, ok := text.Int64(); ok {
			t.Errorf("%s = %d", text, n)
		}
	}
	if n, ok := Number("1e-99999999999").Int64(); !ok || n != 0 {
		t.Errorf("a number that rounds to nothing: %d, %v", n, ok)
	}
	if _, ok := Number("1e400").Float64(); ok {
		t.Error("1e400 fits a float64")
	}
}

func TestMalformed(t *testing.T) {
	for text, say := range map[string]string{
		"":                         "expected",
		"{":                        "expected",
		`{"a"}`:                    `":" expected`,
		`{"a":1,}`:                 `"\"" expected`,
		`{"a":1 "b":2}`:            "',' or ",
		`{"a":1,"a":2}`:            "duplicate key",
		`{"a":{"b":1,"b":2}}`:      "duplicate key",
		`[1,]`:                     "expected",
		`[1`:                       "',' or ",
		`01`:                       "expected",
		`1.`:                       "expected",
		`+1`:                       "expected",
		`.5`:                       "expected",
		`1e`:                       "expected",
		`nul`:                      "value expected",
		`1 2`:                      "behind",
		`"abc`:                     "without an end",
		`"abc\`:                    "without an end",
		`"\x"`:                     "no escape",
		`"\u12g4"`:                 "no escape",
		`"\u12`:                    "no escape",
		`"\ud800"`:                 "surrogate",
		`"\ud800\u0041"`:           "surrogate",
		`"\udc00"`:                 "surrogate",
		"\"\xff\"":                 "UTF-8",
		"\"\\n\xff\"":              "UTF-8",
		"\"a\nb\"":                 "control byte",
		"\xef\xbb\xbf{}":           "expected",
		strings.Repeat("[", 65):    "64 deep",
		strings.Repeat("[", 1e6):   "64 deep",
		strings.Repeat(`{"":`, 65): "64 deep",
	} {
		v, err := Parse("f", []byte(text))
		var bad *formats.FormatError
		if !errors.As(err, &bad) || !strings.Contains(err.Error(), say) {
			t.Errorf("%.40q: %v, %v", text, v, err)
		}
		if s := NewScanner("f", 0, []byte(text)); s.Skip() == nil && s.End() == nil && !strings.Contains(say, "duplicate") {
			t.Errorf("%.40q: Skip takes it", text)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"a": [1.5e3, "é\n", null, {"b": -Infinity}]}`))
	f.Fuzz(func(t *testing.T, p []byte) {
		v, err := Parse("f", p)
		s := NewScanner("f", 0, p)
		skip := s.Skip()
		if skip == nil {
			skip = s.End()
		}
		if err == nil && skip != nil {
			t.Errorf("Parse gives %v, Skip says %v", v, skip)
		}
	})
}
