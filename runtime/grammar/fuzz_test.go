package grammar

import (
	"encoding/json"
	"math/rand/v2"
	"testing"
)

// seeds adds the sources of a file of vectors.
func seeds(f *testing.F, file, key string) {
	f.Helper()
	t := &testing.T{}
	for _, c := range readVectors[map[string]json.RawMessage](t, file) {
		raw := []byte(c[key])
		var text string
		if json.Unmarshal(raw, &text) == nil {
			raw = []byte(text)
		}
		f.Add(raw, uint64(1))
	}
}

// A grammar is refused, or its masks are trials of every token and lead to an end.
func FuzzGBNF(f *testing.F) {
	seeds(f, "gbnf.json", "grammar")
	f.Fuzz(func(t *testing.T, text []byte, seed uint64) {
		if len(text) > 2000 {
			return
		}
		if g, err := ParseGBNF(string(text)); err == nil {
			fuzzed(t, g, seed)
		}
	})
}

func FuzzRegex(f *testing.F) {
	for _, s := range []string{`^a|b$`, `(foo|bar){2,3}`, `[^\w\-é]*?`, `\u{1F600}\p{L}+`, `((((a?){9}){9}){9}){2}`, `.*a.{5}`} {
		f.Add([]byte(s), uint64(1))
	}
	f.Fuzz(func(t *testing.T, text []byte, seed uint64) {
		if len(text) > 500 {
			return
		}
		if g, err := ParseRegex(string(text)); err == nil {
			fuzzed(t, g, seed)
		}
	})
}

// What a schema leads to is JSON.
func FuzzSchema(f *testing.F) {
	seeds(f, "suite.json", "schema")
	seeds(f, "llama.json", "schema")
	v := bytesAnd(f)
	f.Fuzz(func(t *testing.T, text []byte, seed uint64) {
		if len(text) > 4000 {
			return
		}
		g, err := ParseSchema(text)
		if err != nil || g.States() > 20000 {
			return
		}
		fuzzed(t, g, seed)
		if s, whole := textBy(t, v.Compile(g).NewMatcher(), v, rand.New(rand.NewPCG(seed, 0))); whole && !json.Valid([]byte(s)) {
			t.Errorf("%s\nleads to %s", text, s)
		}
	})
}

// fuzzed holds a grammar's masks to trials.
func fuzzed(t *testing.T, g *Grammar, seed uint64) {
	if g.States() <= 20000 {
		agree(t, g, small(t, `ab1" é{`), rand.New(rand.NewPCG(seed, 1)), 8)
	}
}
