package hip

import "testing"

// TestTCQShape holds the division of products of trellis codes on an H200 to what
// was the fastest there (docs/perf/trellis.md).
func TestTCQShape(t *testing.T) {
	h200 := Target{API: CUDA, Arch: "sm_90", Wave: 32, Units: 132, LDS: 227 << 10}
	for _, c := range []struct {
		bits, rows, n, k int
		lanes, waves     int
	}{
		{2, 1, 8192, 28672, 8, 16},
		{2, 1, 4096, 14336, 16, 14},
		{2, 1, 4096, 4096, 32, 8},
		{4, 1, 14336, 4096, 32, 8},
		{4, 1, 14336, 8192, 4, 16},
		{4, 4, 14336, 4096, 4, 16},
		{6, 2, 14336, 4096, 4, 16},
		{3, 1, 16, 16, 1, 1},
	} {
		s := tcqShapeOf(h200, c.bits, c.rows, c.n/16, c.k/16, true)
		if s.lanes != c.lanes || s.waves != c.waves || s.mma != (c.rows > 1) {
			t.Errorf("%+v: %+v", c, s)
		}
		if used := s.waves * tcqStageBytes(c.bits); s.mma && used > h200.LDS {
			t.Errorf("%+v: %d bytes of LDS", c, used)
		}
	}
	if s := tcqShapeOf(Target{API: HIP, Arch: "gfx1100", Wave: 32, Units: 48, LDS: 64 << 10}, 2, 4, 512, 256, true); s.mma || s.ahead {
		t.Errorf("AMD: %+v", s)
	}
}
