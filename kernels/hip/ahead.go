package hip

import (
	"fmt"
	"strings"
)

// ParseTarget returns the target of an architecture's name, gfx1100 or sm_90,
// without a device at hand: the number of its units is unknown.
func ParseTarget(arch string) (Target, error) {
	t := Target{Arch: arch, Wave: 32, LDS: 64 << 10}
	digits, amd := strings.CutPrefix(arch, "gfx")
	switch {
	case amd && len(digits) >= 3 && strings.Trim(digits, "0123456789abcdef") == "":
		t.API = HIP
		if len(digits) == 3 { // gfx9: GCN and CDNA; from gfx10 on, RDNA
			t.Wave = 64
		}
		return t, nil
	case !amd && t.capability() > 0:
		t.API = CUDA
		return t, nil
	}
	return Target{}, fmt.Errorf("target %q is neither like gfx1100 nor like sm_90", arch)
}

// Units returns what is worth compiling ahead for a target: all that a model of
// a usual shape needs. A model of another shape needs a few units more, which
// its first start compiles.
func Units(t Target) []Unit {
	var list []Unit
	seen := map[Unit]bool{}
	for _, calls := range ahead(t) {
		for _, c := range calls {
			if !seen[c.Unit] {
				seen[c.Unit] = true
				list = append(list, c.Unit)
			}
		}
	}
	return list
}

// ahead builds the calls of every operation in its usual forms. Addresses do
// not matter to a unit, but for being there.
func ahead(t Target) [][]Call {
	var all [][]Call
	for _, d := range []int{2048, 3072, 4096, 5120, 8192} {
		n := Norm{T: 1, D: d, X: 1, Next: Normal{Kind: RMSNorm, Weight: 1}, Out: 1}
		all = append(all, n.Calls(t))
	}
	return all
}
