package hip

import (
	"testing"

	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/kernels/cpu"
)

// TestFine holds the groups in which inputs are rounded to the processor's: else
// their default modes drift apart.
func TestFine(t *testing.T) {
	compared := 0
	for _, s := range scheme.Table() {
		k := cpu.Best().Integer(s.Name)
		if s.BlockBytes == 0 || k == nil {
			continue
		}
		f, err := FormatOf(s, nil, 4096)
		if err != nil || !f.Integer() {
			t.Errorf("%s: %v, integer=%v", s.Name, err, f.Integer())
			continue
		}
		if compared++; group(f.Fine()) != k.Group() {
			t.Errorf("%s: groups of %d, on the processor of %d", s.Name, group(f.Fine()), k.Group())
		}
	}
	if compared < 10 {
		t.Errorf("%d schemes compared", compared)
	}
}
