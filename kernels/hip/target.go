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
	MFMA     MatrixUnit = "MFMA"   // CDNA
	WMMA11   MatrixUnit = "WMMA11" // RDNA 3 and 3.5: each half of a wave has a copy of A and B
	WMMA12   MatrixUnit = "WMMA12" // RDNA 4 and 4m: no copies
	MMA      MatrixUnit = "MMA"    // NVIDIA from sm_80 on
)

// Matrix returns the matrix instructions of the target. An AMD architecture has
// those that LLVM's feature table (AMDGPU.td of LLVM 23, FeatureISAVersion...)
// gives it: mai-insts, wmma-256b-insts and wmma-128b-insts, in this order; until
// LLVM 22 the latter two went by the generation. Numbers tell nothing: gfx1170 has
// the form of gfx1200, gfx1250 a form of its own with other shapes. A name that is
// not listed has none. TestMatrixUnits asks a compiler.
func (t Target) Matrix() MatrixUnit {
	if t.API == CUDA {
		if t.capability() >= 80 {
			return MMA
		}
		return NoMatrix
	}
	switch t.Arch {
	case "gfx908", "gfx90a", "gfx940", "gfx941", "gfx942", "gfx950":
		return MFMA
	case "gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151", "gfx1152", "gfx1153", "gfx1154":
		return WMMA11
	case "gfx1170", "gfx1171", "gfx1172", "gfx1200", "gfx1201":
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
