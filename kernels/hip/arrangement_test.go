package hip

import (
	"testing"

	"github.com/nstf/nstf/formats/scheme"
)

// TestArrangementsArePermutations: an arrangement moves every bit of a block to
// a place of its own, so that it can be undone.
func TestArrangementsArePermutations(t *testing.T) {
	all := map[string]*arrangement{"codes of 4 bits": arrangedCodes()}
	for name := range planesOf() {
		s, ok := scheme.ByName(name)
		if !ok {
			t.Fatalf("no scheme %q", name)
		}
		if all[name] = arranged(name); all[name].bytes() != s.BlockBytes {
			t.Errorf("%s: %d of %d bytes are arranged", name, all[name].bytes(), s.BlockBytes)
		}
	}
	for name, a := range all {
		seen := make([]bool, 8*a.bytes())
		for i, p := range a.planes {
			if len(p)%8 != 0 {
				t.Errorf("%s: plane %d has %d bits", name, i, len(p))
			}
			for _, bit := range p {
				if int(bit) >= len(seen) || seen[bit] {
					t.Fatalf("%s: bit %d is outside a block of %d bytes, or taken twice", name, bit, a.bytes())
				}
				seen[bit] = true
			}
		}
	}
}
