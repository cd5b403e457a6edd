package hip

import (
	"fmt"
	"strings"
)

// ParseTarget returns the target of an architecture's name, gfx1100 or sm_90,
// without a device at hand. The number of its units is unknown, and 1.
func ParseTarget(arch string) (Target, error) {
	t := Target{Arch: arch, Wave: 32, Units: 1, LDS: 64 << 10}
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
		t.LDS = sharedMemory(t.capability())
		return t, nil
	}
	return Target{}, fmt.Errorf("target %q is neither like gfx1100 nor like sm_90", arch)
}

// sharedMemory is what a block may have, by compute capability (CUDA C++
// Programming Guide, technical specifications).
func sharedMemory(capability int) int {
	switch capability {
	case 90, 100, 103:
		return 227 << 10
	case 80, 87:
		return 163 << 10
	case 86, 89, 120, 121:
		return 99 << 10
	case 75:
		return 64 << 10
	case 70, 72:
		return 96 << 10
	}
	return 48 << 10
}
