package grammar

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats"
)

func readVectors[T any](t *testing.T, name string) (out []T) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// The texts of llama.cpp's grammars.
func TestGBNFVectors(t *testing.T) {
	n := 0
	for _, c := range readVectors[struct {
		Grammar        string
		Legal, Illegal []string
	}](t, "gbnf.json") {
		g, err := ParseGBNF(c.Grammar)
		if err != nil {
			t.Errorf("%s: %v", c.Grammar, err)
			continue
		}
		n += checkTexts(t, g, c.Grammar, c.Legal, c.Illegal)
	}
	t.Logf("%d texts", n)
}

func checkTexts(t *testing.T, g *Grammar, name string, legal, illegal []string) int {
	t.Helper()
	for _, text := range legal {
		if !accepts(t, g, text) {
			t.Errorf("%s\n%s is legal", name, text)
		}
	}
	for _, text := range illegal {
		if accepts(t, g, text) {
			t.Errorf("%s\n%s is not legal", name, text)
		}
	}
	return len(legal) + len(illegal)
}

func TestLlamaVectors(t *testing.T) {
	n, refused := 0, 0
	for _, c := range readVectors[struct {
		Schema         json.RawMessage
		Legal, Illegal []string
		Broken         string
	}](t, "llama.json") {
		g, err := ParseSchema(c.Schema)
		var u *formats.UnsupportedError
		if errors.As(err, &u) {
			t.Logf("%s: %v", c.Schema, err)
			refused++
			continue
		}
		if c.Broken != "" {
			if err == nil {
				t.Errorf("%s is accepted", c.Schema)
			} else {
				t.Log(err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.Schema, err)
			continue
		}
		n += checkTexts(t, g, string(c.Schema), c.Legal, c.Illegal)
	}
	t.Logf("%d texts, %d refused", n, refused)
}

// variants returns texts of a value with the members of its objects in every order, up to a number.
func variants(v any, most int) []string {
	switch v := v.(type) {
	case []any:
		out := []string{"["}
		for i, x := range v {
			var next []string
			for _, a := range out {
				for _, b := range variants(x, most) {
					if i > 0 {
						b = "," + b
					}
					if len(next) < most {
						next = append(next, a+b)
					}
				}
			}
			out = next
		}
		for i := range out {
			out[i] += "]"
		}
		return out
	case map[string]any:
		var out []string
		var names []string
		for n := range v {
			names = append(names, n)
		}
		permute(names, func(order []string) {
			all := []string{"{"}
			for i, n := range order {
				var next []string
				for _, a := range all {
					for _, b := range variants(v[n], most) {
						b = quote(n) + ":" + b
						if i > 0 {
							b = "," + b
						}
						if len(next) < most {
							next = append(next, a+b)
						}
					}
				}
				all = next
			}
			for _, a := range all {
				if len(out) < most {
					out = append(out, a+"}")
				}
			}
		})
		return out
	case string:
		return []string{quote(v)}
	case json.Number:
		if r, ok := new(big.Rat).SetString(v.String()); ok && r.IsInt() {
			return []string{r.Num().String()}
		}
		return []string{v.String()}
	}
	b, _ := json.Marshal(v)
	return []string{string(b)}
}

func permute(in []string, f func([]string)) {
	var walk func(k int)
	walk = func(k int) {
		if k == len(in) {
			f(in)
			return
		}
		for i := k; i < len(in); i++ {
			in[k], in[i] = in[i], in[k]
			walk(k + 1)
			in[k], in[i] = in[i], in[k]
		}
	}
	walk(0)
}

// otherSpellings are instances that this engine never writes: leap seconds, quoted names
// and addresses in mail, names of hosts with two dashes in a row or labels beyond 44.
var otherSpellings = map[string]int{"date-time": 2, "time": 6, "email": 5, "hostname": 2}

// JSON-Schema-Test-Suite: of schemas that are not refused, every instance in this
// engine's spelling is legal, and nothing else.
func TestSuite(t *testing.T) {
	tests, schemas, total := 0, 0, 0
	refused, other := map[string]int{}, map[string]int{}
	for _, c := range readVectors[struct {
		File   string
		Schema json.RawMessage
		Tests  [][2]json.RawMessage
	}](t, "suite.json") {
		if c.File == "format" { // what says nothing there is asserted here: date.json and others test it
			continue
		}
		total++
		g, err := ParseSchema(c.Schema)
		var u *formats.UnsupportedError
		var f *formats.FormatError
		never := errors.As(err, &f) && strings.Contains(err.Error(), "never ends")
		if errors.As(err, &u) {
			refused[c.File]++
			continue
		}
		if err != nil && !never {
			t.Errorf("%s: %v", c.Schema, err)
			continue
		}
		schemas++
		for _, test := range c.Tests {
			dec := json.NewDecoder(bytes.NewReader(test[0]))
			dec.UseNumber()
			var v any
			if err := dec.Decode(&v); err != nil {
				t.Fatal(err)
			}
			legal := false
			for _, text := range variants(v, 5000) {
				legal = legal || !never && accepts(t, g, text)
			}
			tests++
			switch want := string(test[1]) == "true"; {
			case want && !legal && other[c.File] < otherSpellings[c.File]:
				other[c.File]++
			case legal != want:
				t.Errorf("%s: %s\n%s: legal %v", c.File, c.Schema, test[0], legal)
			}
		}
	}
	if tests < 900 || !maps.Equal(other, otherSpellings) {
		t.Errorf("%d tests; other spellings: %v", tests, other)
	}
	t.Logf("%d tests of %d schemas of %d; refused: %v", tests, schemas, total, refused)
}
