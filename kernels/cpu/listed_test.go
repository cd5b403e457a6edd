package cpu

import (
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats/scheme"
)

// TestAssemblyIsListed: what the assembly has for a scheme is what the level uses.
func TestAssemblyIsListed(t *testing.T) {
	files, err := filepath.Glob("*_" + runtime.GOARCH + ".s")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	text := regexp.MustCompile(`(?m)^TEXT ·(\w+)\(SB\)`)
	for _, name := range files {
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range text.FindAllSubmatch(raw, -1) {
			names = append(names, string(m[1]))
		}
	}
	suffixes := map[Level]string{LevelAVX2: "AVX2", LevelAVX512: "AVX512", LevelNEON: "NEON", LevelDotProd: "DotProd"}
	for _, l := range Levels() {
		suffix, ok := suffixes[l]
		if !ok {
			continue
		}
		set := newSet(l)
		for _, s := range scheme.Table() {
			if s.Group == 0 {
				continue
			}
			k, base := set.Integer(s.Name), strings.ToUpper(s.Basename())
			if k == nil {
				t.Errorf("%s: %s has no products", l, s)
				continue
			}
			if slices.Contains(names, "matVec"+base+"x1"+suffix) && k.matVec[1] == nil {
				t.Errorf("%s: the products of %s are not used", l, s)
			}
			if slices.Contains(names, "unpack"+base+suffix) && k.unpackAll == nil {
				t.Errorf("%s: what unpacks %s is not used", l, s)
			}
		}
	}
}
