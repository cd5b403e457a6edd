package hip

import (
	"testing"

	"github.com/nstf/nstf/kernels/cpu"
)

// Prompts choose pages where a cache has numbers and LDS holds what that takes.
func TestFollowsPrompts(t *testing.T) {
	radeon := Target{API: HIP, Arch: "gfx1100", Wave: 32, Units: 48, LDS: 64 << 10}
	instinct := Target{API: HIP, Arch: "gfx942", Wave: 64, Units: 304, LDS: 64 << 10}
	h200 := Target{API: CUDA, Arch: "sm_90", Wave: 32, Units: 132, LDS: 227 << 10}
	for _, c := range []struct {
		target Target
		format cpu.KVFormat
		dim    int
		want   bool
	}{
		{radeon, cpu.KVF16, 128, true},
		{radeon, cpu.KVF16, 256, true},
		{radeon, cpu.KVF16, 512, false},
		{instinct, cpu.KVF16, 256, true},
		{instinct, cpu.KVF16, 512, false},
		{instinct, cpu.KVF32, 512, false},
		{h200, cpu.KVF16, 512, true},
		{h200, cpu.KVQ8, 128, false},
	} {
		o := PromptFollow{Attend: Attend{Rows: Rows{T: PagePositions}, KV: KV{Format: c.format, Heads: 1, Dim: c.dim}, Heads: 4, Capacity: 4096}, LeastPages: 5}
		if got := o.FollowsPrompts(c.target); got != c.want {
			t.Errorf("%s, %v, heads of %d: %v", c.target.Arch, c.format, c.dim, got)
		} else if !got {
			continue
		}
		for _, call := range o.block(c.target, ChosenRows{Blocks: 1}) {
			const held = 1 << 10 // by the kernels themselves
			if int(call.LDS)+held > c.target.LDS && call.Symbol != "nstf_attend_tiles" || int(call.LDS) > c.target.LDS {
				t.Errorf("%s, heads of %d: %s takes %d bytes of LDS", c.target.Arch, c.dim, call.Symbol, call.LDS)
			}
		}
	}
}
