package hip

import (
	"io/fs"
	"regexp"
	"strings"
	"testing"
)

// partly is an exchange between lanes behind a condition that some of them do not pass.
var partly = regexp.MustCompile(`(&&|\|\|)[^;{]*\bwave_(get|xor|sum|sum_near|max|ballot|below)\s*(<|\()`)

// TestWholeWaves wants all lanes of a wave to come to what they exchange: those of NVIDIA's GPUs wait
// for the others, without end, where `a && wave_get(b)` keeps some away. The emulator does not.
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
