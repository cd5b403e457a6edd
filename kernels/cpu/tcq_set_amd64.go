//go:build !noasm

package cpu

import "github.com/klauspost/cpuid/v2"

// useNarrowTCQ gives a set of LevelAVX2 the products of trellis codes.
func useNarrowTCQ(s *Set) {
	kernels := [...]tcqKernel{tcqProduct2AVX2, tcqProduct3AVX2, tcqProduct4AVX2, tcqProduct5AVX2, tcqProduct6AVX2}
	s.tcq = func(bits int) tcqKernel { return kernels[bits-2] }
}

// useTCQ gives a set of LevelAVX512 the products of trellis codes, on machines
// that have what these need beyond the level.
func useTCQ(s *Set) {
	if !cpuid.CPU.Supports(cpuid.AVX512VNNI, cpuid.AVX512VBMI) {
		return
	}
	kernels := [...]tcqKernel{tcqProduct2AVX512, tcqProduct3AVX512, tcqProduct4AVX512, tcqProduct5AVX512, tcqProduct6AVX512}
	s.tcq = func(bits int) tcqKernel { return kernels[bits-2] }
}
