package jinja_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/nstf/nstf/formats/jinja"
)

// FuzzRender parses and evaluates any text under small budgets: no panic, no
// more output than allowed, errors of the package's own type, and the same
// result twice.
func FuzzRender(f *testing.F) {
	c, vars := readCases(f, filepath.Join(testdata, "cases.json"))
	for _, x := range c.Cases {
		f.Add(x.Template)
	}
	for _, a := range attacks {
		if len(a.src) < 1000 {
			f.Add(a.src)
		}
	}
	names, _ := filepath.Glob(filepath.Join(testdata, "..", "tokenizer", "templates", "*.jinja"))
	for _, n := range names {
		src, err := os.ReadFile(n)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(src))
	}
	limits := jinja.Limits{Source: 1 << 16, Depth: 500, Steps: 100_000, Memory: 4 << 20, Output: 1 << 18}
	f.Fuzz(func(t *testing.T, src string) {
		tp, err := jinja.Parse("fuzz", src, limits)
		if err == nil {
			var text, again string
			text, err = tp.Render(t.Context(), vars, jinja.Options{Now: now})
			if int64(len(text)) > limits.Output {
				t.Fatalf("%d bytes", len(text))
			}
			if again, _ = tp.Render(t.Context(), vars, jinja.Options{Now: now}); again != text {
				t.Fatalf("%q, then %q", text, again)
			}
		}
		var e *jinja.Error
		if err != nil && (!errors.As(err, &e) || e.Line < 1) {
			t.Fatalf("%v is no error of a template's", err)
		}
	})
}
