package tokenizer

import (
	"math/rand/v2"
	"strings"
	"testing"

	"golang.org/x/text/unicode/norm"
)

var forms = []norm.Form{norm.NFC, norm.NFD, norm.NFKC, norm.NFKD}

// TestLongForm compares with x/text where that is right.
func TestLongForm(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	pool := []rune("aAeoqz1 éậộṩﬁ①가각각\u0300\u0301\u0302\u0323\u0327\u0345\u05b0\u0f71\u0f72\u0344\u212b\u2126\u1e9b\u0958\u3099か\u1100\u1161\u11a8\u0338=\U0001d15e\U0001d165")
	for range 20000 {
		r := make([]rune, rng.IntN(9))
		for i := range r {
			r[i] = pool[rng.IntN(len(pool))]
		}
		for _, f := range forms {
			if got, want := longForm(string(r), f), f.String(string(r)); got != want {
				t.Fatalf("form %d of %+q: %+q, want %+q", f, string(r), got, want)
			}
		}
	}
}

// TestLongRunsOfMarks: nothing is inserted. The answers are those of Python's
// unicodedata.normalize.
func TestLongRunsOfMarks(t *testing.T) {
	s := "a" + strings.Repeat("\u0301\u0323", 40)
	below, above := strings.Repeat("\u0323", 40), strings.Repeat("\u0301", 40)
	for f, want := range map[norm.Form]string{
		norm.NFD: "a" + below + above, norm.NFC: "\u1ea1" + below[2:] + above,
		norm.NFKD: "a" + below + above, norm.NFKC: "\u1ea1" + below[2:] + above,
	} {
		if got := normalForm(s, f); got != want {
			t.Errorf("form %d: %+q, want %+q", f, got, want)
		}
	}
	if got := normalForm(strings.Repeat("\u0301\u0323", 200000), norm.NFC); len(got) != 800000 {
		t.Errorf("%d bytes", len(got))
	}
}
