//go:build !noasm

package cpu

import "github.com/klauspost/cpuid/v2"

// useTCQ gives a set of LevelAVX512 the products of trellis codes, on machines
// that have what these need beyond the level.
func useTCQ(s *Set) {
	if !cpuid.CPU.Supports(cpuid.AVX512VNNI, cpuid.AVX512VBMI) {
		return
	}
	kernels := [...]tcqKernel{tcqProduct2AVX512, tcqProduct3AVX512, tcqProduct4AVX512, tcqProduct5AVX512, tcqProduct6AVX512}
	s.tcq = func(bits int) tcqKernel { return kernels[bits-2] }
}
