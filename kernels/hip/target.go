package hip

import "strings"

// An API is a family of drivers.
type API string

// The drivers' families.
const (
	HIP  API = "hip"
	CUDA API = "cuda"
)

// A Target is the machine that kernels are compiled for, as far as their
// choice and shape depend on it.
type Target struct {
	API   API
	Arch  string // gfx1100, gfx90a ... or sm_90 ...; features behind a colon are left out
	Wave  int    // threads of a wave (warp): 32 or 64
	Units int    // compute units or multiprocessors
	LDS   int    // bytes of LDS that one block may have
}

// A MatrixUnit names a family of matrix instructions.
type MatrixUnit string

// The matrix instructions that matrix.hip knows, as its NSTF_MATRIX.
const (
	NoMatrix MatrixUnit = "NONE"   // plain loops
	MFMA     MatrixUnit = "MFMA"   // CDNA: gfx908, gfx90a, gfx94x, gfx950
	WMMA11   MatrixUnit = "WMMA11" // RDNA3: gfx11xx
	WMMA12   MatrixUnit = "WMMA12" // RDNA4: gfx12xx
	MMA      MatrixUnit = "MMA"    // NVIDIA from sm_80 on
)

// Matrix returns the matrix instructions of the target.
func (t Target) Matrix() MatrixUnit {
	switch {
	case t.API == CUDA:
		if t.capability() >= 80 {
			return MMA
		}
	case t.Arch == "gfx908", t.Arch == "gfx90a", strings.HasPrefix(t.Arch, "gfx94"), t.Arch == "gfx950":
		return MFMA
	case strings.HasPrefix(t.Arch, "gfx11"):
		return WMMA11
	case strings.HasPrefix(t.Arch, "gfx12"):
		return WMMA12
	}
	return NoMatrix
}

// capability returns the number behind sm_, 0 for another architecture.
func (t Target) capability() int {
	digits, ok := strings.CutPrefix(t.Arch, "sm_")
	if !ok {
		return 0
	}
	n := 0
	for _, c := range digits {
		if c < '0' || c > '9' {
			break
		}
		n = 10*n + int(c-'0')
	}
	return n
}
