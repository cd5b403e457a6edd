//go:build !noasm

package cpu

import "github.com/klauspost/cpuid/v2"

// runs reports whether this build and machine have level l. cpuid counts a
// feature only where the operating system saves its registers.
func runs(l Level) bool {
	switch l {
	case LevelGeneric:
		return true
	case LevelAVX2:
		return cpuid.CPU.Supports(cpuid.AVX2, cpuid.FMA3, cpuid.F16C)
	case LevelAVX512:
		return runs(LevelAVX2) && cpuid.CPU.Supports(cpuid.AVX512F, cpuid.AVX512BW, cpuid.AVX512DQ, cpuid.AVX512VL)
	}
	return false
}
