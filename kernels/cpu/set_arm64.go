//go:build !noasm

package cpu

// newSet makes the set of a level that runs.
func newSet(l Level) *Set {
	s := genericSet()
	if l >= LevelNEON {
		useNEON(s)
		useIntegers(s, l)
		useTCQ(s, l)
	}
	s.level = l
	return s
}

func useNEON(s *Set) {
	s.dot = func(a, b []float32) float32 {
		var y [1]float32
		dotRowsF32NEON(y[:], a, len(a), b)
		return y[0]
	}
	s.dotRowsF32 = dotRowsF32NEON
	s.dotRowsBF16 = dotRowsBF16NEON
	s.dotRowsF16 = dotRowsF16NEON
	s.axpy = func(dst []float32, a float32, x []float32) {
		p := [1]float32{a}
		accumRowsNEON(dst, p[:], x, len(x))
	}
	s.accumRows = accumRowsNEON
	s.scale = scaleNEON
	s.add = addNEON
	s.mul = mulNEON
	s.deltaStep, s.deltaStepByChannel, s.scanStep = s.deltaStepOfRows, s.deltaStepByChannelOfRows, s.scanStepOfRows
	s.decodeF16 = decodeF16NEON
	s.decodeBF16 = decodeBF16NEON
	s.encodeF16 = encodeF16NEON
	s.encodeBF16 = encodeBF16NEON
	s.maximum = maximumNEON
	s.expSum = expSumNEON
	s.gated = gatedNEON
	s.swiGLU = swiGLUNEON
	s.gelu = geluNEON
	s.softCap = softCapNEON
	s.gemm = gemmNEON()
	s.fused = s.gemm
	s.fixed = fixedNEON()
	s.panel = panelNEON()
	s.norm = normsNEON()
}
