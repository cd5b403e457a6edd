package hip

import "testing"

func TestParseTarget(t *testing.T) {
	for arch, want := range map[string]Target{
		"gfx1100": {HIP, "gfx1100", 32, 1, 64 << 10}, "gfx90a": {HIP, "gfx90a", 64, 1, 64 << 10}, "gfx950": {HIP, "gfx950", 64, 1, 64 << 10},
		"sm_90": {CUDA, "sm_90", 32, 1, 227 << 10}, "sm_61": {CUDA, "sm_61", 32, 1, 48 << 10},
	} {
		if got, err := ParseTarget(arch); err != nil || got != want {
			t.Errorf("%s: %+v, %v", arch, got, err)
		}
	}
	for _, arch := range []string{"", "gfx", "gfx11", "gfxzzz", "sm_", "sm_x", "radeon", "gfx1100:xnack-"} {
		if got, err := ParseTarget(arch); err == nil {
			t.Errorf("%q: %+v", arch, got)
		}
	}
}
