//go:build !noasm

package cpu

import "github.com/klauspost/cpuid/v2"

// newSet makes the set of a level that runs.
func newSet(l Level) *Set {
	s := genericSet()
	switch l {
	case LevelAVX2:
		useAVX2(s)
		useMaddubs(s)
		useNarrowTCQ(s)
	case LevelAVX512:
		useAVX2(s) // the conversions stay: they outrun memory as they are
		useAVX512(s)
		useMaddubs(s)
		useVNNI(s)
		useTCQ(s)
	}
	s.level = l
	return s
}

func useAVX2(s *Set) {
	s.dot = func(a, b []float32) float32 {
		var y [1]float32
		dotRowsF32AVX2(y[:], a, len(a), b)
		return y[0]
	}
	s.dotRowsF32 = dotRowsF32AVX2
	s.dotRowsBF16 = dotRowsBF16AVX2
	s.dotRowsF16 = dotRowsF16AVX2
	s.axpy = func(dst []float32, a float32, x []float32) {
		p := [1]float32{a}
		accumRowsAVX2(dst, p[:], x, len(x))
	}
	s.accumRows = accumRowsAVX2
	s.scale = scaleAVX2
	s.add = addAVX2
	s.mul = mulAVX2
	s.mulAdd, s.deltaStep, s.deltaStepByChannel, s.scanStep = mulAddAVX2, deltaStepAVX2, deltaStepByChannelAVX2, scanStepAVX2
	s.decodeF16 = decodeF16AVX2
	s.decodeBF16 = decodeBF16AVX2
	s.encodeF16 = encodeF16AVX2
	s.encodeBF16 = encodeBF16AVX2
	s.maximum = maximumAVX2
	s.expSum, s.logAdd = expSumAVX2, logAddAVX2
	s.gated = gatedAVX2
	s.swiGLU = swiGLUAVX2
	s.gelu = geluAVX2
	s.softCap = softCapAVX2
	s.gemm = gemmKernel{least: 3, mr: 6, nr: 16, tile: gemmTileAVX2, pack: packAVX2}
	s.fused = s.gemm
	s.panel = panelAVX2()
	s.norm = normsAVX2()
	s.trellis = trellisAVX2
	s.lanes = lanesAVX2()
	useDecode(s)
	s.fixed = fixedKernel{least: 3, mr: 6, nr: 16, fix: fixAVX2, tile: fixedTileAVX2}
}

func useAVX512(s *Set) {
	s.dot = func(a, b []float32) float32 {
		var y [1]float32
		dotRowsF32AVX512(y[:], a, len(a), b)
		return y[0]
	}
	s.dotRowsF32 = dotRowsF32AVX512
	s.dotRowsBF16 = dotRowsBF16AVX512
	s.dotRowsF16 = dotRowsF16AVX512
	s.axpy = func(dst []float32, a float32, x []float32) {
		p := [1]float32{a}
		accumRowsAVX512(dst, p[:], x, len(x))
	}
	s.accumRows = accumRowsAVX512
	s.scale = scaleAVX512
	s.add = addAVX512
	s.mul = mulAVX512
	s.mulAdd, s.deltaStep, s.deltaStepByChannel, s.scanStep = mulAddAVX512, deltaStepAVX512, deltaStepByChannelAVX512, scanStepAVX512
	s.maximum = maximumAVX512
	s.expSum, s.logAdd = expSumAVX512, logAddAVX512
	s.gated = gatedAVX512
	s.swiGLU = swiGLUAVX512
	s.gelu = geluAVX512
	s.softCap = softCapAVX512
	s.gemm = gemmKernel{least: 5, mr: 12, nr: 32, tile: gemmTileAVX512, pack: packAVX2}
	s.fused = s.gemm
	s.panel = panelAVX512()
	s.norm = normsAVX512()
	s.trellis = trellisAVX512
	s.lanes = lanesAVX512()
	useWideDecode(s)
	if hasTiles() {
		s.parts = &partsKernel{split: splitPartsAVX512, multiply: multiplyPartsAVX512, pack: packAVX2}
	}
}

// hasTiles reports whether there is a matrix unit, and the system lets the process use it.
func hasTiles() bool {
	return cpuid.CPU.Supports(cpuid.AMXTILE, cpuid.AMXINT8, cpuid.AMXBF16) && allowTiles()
}

// packAVX2 transposes in blocks of 8x8 and finishes with plain Go.
func packAVX2(dst []float32, nr int, src []float32, k0 int) {
	pack8AVX2(dst, nr, src, k0)
	packRest(dst, nr, src, k0, k0&^7)
}
