package tokenizer

import (
	"errors"
	"slices"
	"testing"

	"github.com/dlclark/regexp2/v2"
)

func splitAll(t *testing.T, s *splitter, text string) (out []string) {
	t.Helper()
	prev := 0
	add := func(lo, hi int) {
		if lo < hi {
			out = append(out, text[lo:hi])
		}
	}
	if err := s.matches(text, func(lo, hi int) {
		add(prev, lo)
		add(lo, hi)
		prev = hi
	}); err != nil {
		t.Fatal(err)
	}
	add(prev, len(text))
	return out
}

// TestDialect: what Oniguruma, with Ruby's syntax, makes of patterns. The
// answers are those of tokenizers 0.23.3.
func TestDialect(t *testing.T) {
	for _, c := range []struct {
		pattern, text string
		want          []string
	}{
		{`a$`, "a\nba", []string{"a", "\nb", "a"}},
		{`^b`, "a\nba", []string{"a\n", "b", "a"}},
		{`a.b`, "a\nb", []string{"a\nb"}},
		{`\p{N}{1,3}+`, "1234567", []string{"1234567"}},
		{`\p{N}{2}`, "1234567", []string{"12", "34", "56", "7"}},
		{`\p{N}++x|\p{N}`, "123x4", []string{"123x", "4"}},
		{`(?i:'s)`, "it'\u017f a'S", []string{"it", "'\u017f", " a", "'S"}},
		{`[\p{L}&&[^\p{Han}]]+`, "abc中文def", []string{"abc", "中文", "def"}},
		{`[a[bc]]+`, "xabcx", []string{"x", "abc", "x"}},
		{`\h+`, "xab1", []string{"x", "ab1"}},
		{`\w+`, "a\u200db\u00b2\u24b6\u0345x_", []string{"a", "\u200d", "b\u00b2\u24b6\u0345x_"}},
		{`\s+`, "a\u200b\u180e\u0085\u00a0b\x1c", []string{"a\u200b\u180e", "\u0085\u00a0", "b\x1c"}},
		{`(?=(\d{3})+(?!\d))`, "1234567", []string{"1", "234", "567"}},
		{`x*`, "axxb", []string{"a", "xx", "b"}},
		{`\p{^L}+`, "a12b", []string{"a", "12", "b"}},
		{`a{,2}b`, "aab", []string{"aab"}},
		{`[]a]+`, "x]ax", []string{"x", "]a", "x"}},
		{`[^a&&b]+`, "xabx", []string{"xabx"}},
	} {
		s, err := compile(c.pattern)
		if err != nil {
			t.Errorf("%s: %v", c.pattern, err)
			continue
		}
		if got := splitAll(t, s, c.text); !slices.Equal(got, c.want) {
			t.Errorf("%s on %q: %q, want %q", c.pattern, c.text, got, c.want)
		}
	}
}

func TestPatternsRefused(t *testing.T) {
	for _, p := range []string{`[[:alpha:]]+`, `\R`, `\X`, `(?m:a.b)`, `(?<n>a)`, `[a`, `a)`, `\p{NoSuch}`, `(`, `\`, `(?#x)`, `[a&&`,
		string(make([]byte, maxPattern+1))} {
		var u errUnsupported
		if _, err := compile(p); !errors.As(err, &u) {
			t.Errorf("%.20q: %v", p, err)
		}
	}
}

// TestScanSpacesAtEnd compares with the pattern itself.
func TestScanSpacesAtEnd(t *testing.T) {
	re := regexp2.MustCompile(spacesAtEnd, regexp2.Multiline)
	for _, text := range []string{"", " ", "a", "a ", " a", "a  \n  b \n\n", "\n", "\n\n x", " \n \n y  ", "\u3000\u00a0", "a\n", "a \nb", "\n a"} {
		want := splitAll(t, &splitter{re: re}, text)
		if got := splitAll(t, &splitter{scan: scanSpacesAtEnd}, text); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestHostilePatternEnds(t *testing.T) {
	s, err := compile(`(a+)+$`)
	if err != nil {
		t.Fatal(err)
	}
	if s.re.MatchTimeout != regexTimeout {
		t.Fatal("no timeout")
	}
	text := []byte("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab")
	if err := s.matches(string(text), func(lo, hi int) {}); err == nil {
		t.Error("exponential matching ended without an error")
	}
}
