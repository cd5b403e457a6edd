package hip

import "testing"

// TestTCQShape holds the division of products of trellis codes on an H200 to what
// was the fastest there (docs/perf/trellis.md).
func TestTCQShape(t *testing.T) {
	h200 := Target{API: CUDA, Arch: "sm_90", Wave: 32, Units: 132, LDS: 227 << 10}
	for _, c := range []struct {
		n, k         int
		lanes, waves int
	}{
		{8192, 28672, 8, 16},
		{4096, 14336, 16, 14},
		{4096, 4096, 32, 8},
		{14336, 4096, 32, 8},
		{14336, 8192, 4, 16},
		{16, 16, 1, 1},
	} {
		s := tcqShapeOf(h200, c.n/16, c.k/16, true)
		if s.lanes != c.lanes || s.waves != c.waves || s.ahead != (c.k >= 8192) {
			t.Errorf("%+v: %+v", c, s)
		}
	}
	if s := tcqShapeOf(Target{API: HIP, Arch: "gfx1100", Wave: 32, Units: 48, LDS: 64 << 10}, 512, 1024, true); s.ahead {
		t.Errorf("AMD: %+v", s)
	}
}
