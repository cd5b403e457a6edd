package hip

import (
	"io/fs"
	"regexp"
	"strings"
	"testing"
)

// partly is an exchange between lanes behind && or || in one statement of one line.
var partly = regexp.MustCompile(`(&&|\|\|)[^;{]*\bwave_(get|xor|sum|sum_near|max|ballot|below)\s*(<|\()`)

// TestWholeWaves looks for `a && wave_get(b)`, which keeps some lanes of a wave away from what they
// exchange: those of NVIDIA's GPUs wait for the others, without end, and the emulator does not. It
// sees no more than && or || before the exchange in one line: not a condition that ends on the line
// before, not `if (a) b = wave_get(c)`, not `a ? wave_sum(b) : 0`, and not an exchange behind a return
// or continue that only some lanes take. Those are for whoever writes a kernel to keep in mind.
func TestWholeWaves(t *testing.T) {
	if !partly.MatchString("same = here && bin == wave_get(bin, first);") || partly.MatchString("if (a && b) { v = wave_get(v, 0);") {
		t.Error("what is looked for is not found, or what is right is")
	}
	names, err := fs.Glob(sources, "*.hip")
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	for _, name := range names {
		text, err := sources.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(text), "\n") {
			if partly.MatchString(line) {
				t.Errorf("%s:%d: lanes may stay away: %s", name, i+1, strings.TrimSpace(line))
			}
		}
	}
}
