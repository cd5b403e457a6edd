package jinja_test

import (
	"encoding/json"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nstf/nstf/formats/jinja"
	"github.com/nstf/nstf/formats/pyjson"
)

const testdata = "../../testdata/jinja"

var now = time.Date(2026, 3, 7, 14, 5, 9, 0, time.UTC)

// value makes a variable of JSON.
func value(v pyjson.Value) any {
	switch v := v.(type) {
	case pyjson.Number:
		if i, ok := bigInt(string(v)); ok {
			return i
		}
		f, _ := v.Float64()
		return f
	case []pyjson.Value:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = value(x)
		}
		return out
	case *pyjson.Object:
		d := jinja.NewDict()
		for _, k := range v.Keys() {
			x, _ := v.Get(k)
			d.Set(k, value(x))
		}
		return d
	}
	return v
}

func variables(t testing.TB, raw []byte) map[string]any {
	v, err := pyjson.Parse("vars", raw)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]any{"messages": []any{}, "tools": nil, "documents": nil, "add_generation_prompt": false}
	for k, x := range value(v).(*jinja.Dict).All() {
		out[k] = x
	}
	return out
}

func render(t testing.TB, src string, vars map[string]any, l jinja.Limits) (string, error) {
	tp, err := jinja.Parse("test", src, l)
	if err != nil {
		return "", err
	}
	return tp.Render(t.Context(), vars, jinja.Options{Now: now})
}

type cases struct {
	Vars  json.RawMessage
	Cases []struct {
		Template    string
		Text, Error *string
	}
}

func readCases(t testing.TB, path string) (c cases, vars map[string]any) {
	raw, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(raw, &c)
	}
	if err != nil {
		t.Fatal(err)
	}
	return c, variables(t, c.Vars)
}

// check holds every case to what Python made of it: the same text, or an
// error. What is not implemented counts apart, as the caller allows.
func check(t *testing.T, c cases, vars map[string]any) (unsupported int) {
	for _, x := range c.Cases {
		got, err := render(t, x.Template, vars, jinja.DefaultLimits)
		var e *jinja.Error
		switch {
		case err != nil && (!errors.As(err, &e) || e.Line < 1 || e.Template != "test"):
			t.Errorf("%s: the error %v names no line", x.Template, err)
		case e != nil && e.Unsupported:
			unsupported++
		case x.Error != nil && err == nil:
			t.Errorf("%s\n got %q\nwant %s", x.Template, got, *x.Error)
		case x.Text != nil && err != nil:
			t.Errorf("%s\n got %v\nwant %q", x.Template, err, *x.Text)
		case x.Text != nil && got != *x.Text:
			t.Errorf("%s\n got %q\nwant %q", x.Template, got, *x.Text)
		}
	}
	return unsupported
}

// TestCases: the cases that are here, nearly a thousand, one fact each.
func TestCases(t *testing.T) {
	c, vars := readCases(t, filepath.Join(testdata, "cases.json"))
	if n := check(t, c, vars); n > 0 || len(c.Cases) < 900 {
		t.Errorf("%d of %d cases are not implemented", n, len(c.Cases))
	}
}

// TestWildCases: as many made at random (testdata/jinja/wild.py) as somebody
// put into the shared folder; docs/perf/templates.sh does.
func TestWildCases(t *testing.T) {
	path := filepath.Join(os.Getenv("NSTF_SHARED"), "templates", "wild.json")
	if _, err := os.Stat(path); os.Getenv("NSTF_SHARED") == "" || err != nil {
		t.Skip("no random cases in the shared folder")
	}
	c, vars := readCases(t, path)
	n := check(t, c, vars)
	t.Logf("%d cases, %d of them not implemented", len(c.Cases), n)
	if n > len(c.Cases)/50 {
		t.Errorf("%d of %d cases are not implemented", n, len(c.Cases))
	}
}

func bigInt(s string) (any, bool) {
	if strings.Trim(s, "-0123456789") != "" {
		return nil, false
	}
	i, ok := new(big.Int).SetString(s, 10)
	if ok && i.IsInt64() {
		return i.Int64(), true
	}
	return i, ok
}
