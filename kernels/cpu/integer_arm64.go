//go:build !noasm

package cpu

// useIntegers gives a set the integer kernels of its level. Without dot products
// many tokens go four at a time through the kernels for few.
func useIntegers(s *Set, l Level) {
	s.quantize, s.quantizeFine = quantizeNEON, quantizeFineNEON
	s.interleave = interleaveNEON
	s.signed = true
	useStrips(s, stripsNEON())
	for name, row := range integersARM64() {
		k := s.Integer(name)
		k.matVec, k.unpackAll = row.neon, row.unpack
		if l == LevelDotProd {
			k.matVec = row.dotProd
		}
	}
	if l < LevelDotProd {
		return
	}
	useStrips(s, stripsDotProd())
	for p, tile := range map[*product]tileKernel{
		s.product(fineGroup, false): tile16DotProd, s.product(fineGroup, true): tile16MinDotProd,
		s.product(coarseGroup, false): tile32DotProd, s.product(coarseGroup, true): tile32MinDotProd,
	} {
		p.tile, p.tileTokens = tile, 6
	}
}

// An integerRow is the assembly of one scheme: products of few tokens and what unpacks
// its runs for many.
type integerRow struct {
	neon, dotProd [9]matVecKernel // by tokens
	unpack        func(dst, w []byte, runs int)
}

func few(one, two, four matVecKernel) [9]matVecKernel {
	return [9]matVecKernel{1: one, 2: two, 4: four}
}

// integersARM64 lists the assembly by scheme.
func integersARM64() map[string]integerRow {
	return map[string]integerRow{
		"q4_0":   {neon: few(matVecQ40x1NEON, matVecQ40x2NEON, matVecQ40x4NEON), dotProd: few(matVecQ40x1DotProd, matVecQ40x2DotProd, matVecQ40x4DotProd), unpack: unpackQ40NEON},
		"q4_1":   {neon: few(matVecQ41x1NEON, matVecQ41x2NEON, matVecQ41x4NEON), dotProd: few(matVecQ41x1DotProd, matVecQ41x2DotProd, matVecQ41x4DotProd), unpack: unpackQ41NEON},
		"q5_0":   {neon: few(matVecQ50x1NEON, matVecQ50x2NEON, matVecQ50x4NEON), dotProd: few(matVecQ50x1DotProd, matVecQ50x2DotProd, matVecQ50x4DotProd), unpack: unpackQ50NEON},
		"q5_1":   {neon: few(matVecQ51x1NEON, matVecQ51x2NEON, matVecQ51x4NEON), dotProd: few(matVecQ51x1DotProd, matVecQ51x2DotProd, matVecQ51x4DotProd), unpack: unpackQ51NEON},
		"q8_0":   {neon: few(matVecQ80x1NEON, matVecQ80x2NEON, matVecQ80x4NEON), dotProd: few(matVecQ80x1DotProd, matVecQ80x2DotProd, matVecQ80x4DotProd), unpack: unpackQ80NEON},
		"q2_k":   {neon: few(matVecQ2Kx1NEON, matVecQ2Kx2NEON, matVecQ2Kx4NEON), dotProd: few(matVecQ2Kx1DotProd, matVecQ2Kx2DotProd, matVecQ2Kx4DotProd), unpack: unpackQ2KNEON},
		"q3_k":   {neon: few(matVecQ3Kx1NEON, matVecQ3Kx2NEON, matVecQ3Kx4NEON), dotProd: few(matVecQ3Kx1DotProd, matVecQ3Kx2DotProd, matVecQ3Kx4DotProd), unpack: unpackQ3KNEON},
		"q4_k":   {neon: few(matVecQ4Kx1NEON, matVecQ4Kx2NEON, matVecQ4Kx4NEON), dotProd: few(matVecQ4Kx1DotProd, matVecQ4Kx2DotProd, matVecQ4Kx4DotProd), unpack: unpackQ4KNEON},
		"q5_k":   {neon: few(matVecQ5Kx1NEON, matVecQ5Kx2NEON, matVecQ5Kx4NEON), dotProd: few(matVecQ5Kx1DotProd, matVecQ5Kx2DotProd, matVecQ5Kx4DotProd), unpack: unpackQ5KNEON},
		"q6_k":   {neon: few(matVecQ6Kx1NEON, matVecQ6Kx2NEON, matVecQ6Kx4NEON), dotProd: few(matVecQ6Kx1DotProd, matVecQ6Kx2DotProd, matVecQ6Kx4DotProd), unpack: unpackQ6KNEON},
		"iq4_nl": {neon: few(matVecIQ4NLx1NEON, matVecIQ4NLx2NEON, matVecIQ4NLx4NEON), dotProd: few(matVecIQ4NLx1DotProd, matVecIQ4NLx2DotProd, matVecIQ4NLx4DotProd), unpack: unpackIQ4NLNEON},
		"iq4_xs": {neon: few(matVecIQ4XSx1NEON, matVecIQ4XSx2NEON, matVecIQ4XSx4NEON), dotProd: few(matVecIQ4XSx1DotProd, matVecIQ4XSx2DotProd, matVecIQ4XSx4DotProd), unpack: unpackIQ4XSNEON},
		"mxfp4":  {neon: few(matVecMXFP4x1NEON, matVecMXFP4x2NEON, matVecMXFP4x4NEON), dotProd: few(matVecMXFP4x1DotProd, matVecMXFP4x2DotProd, matVecMXFP4x4DotProd), unpack: unpackMXFP4NEON},
		"nvfp4":  {neon: few(matVecNVFP4x1NEON, matVecNVFP4x2NEON, matVecNVFP4x4NEON), dotProd: few(matVecNVFP4x1DotProd, matVecNVFP4x2DotProd, matVecNVFP4x4DotProd), unpack: unpackNVFP4NEON},
		"q1_0":   {neon: few(matVecQ10x1NEON, matVecQ10x2NEON, matVecQ10x4NEON), dotProd: few(matVecQ10x1DotProd, matVecQ10x2DotProd, matVecQ10x4DotProd), unpack: unpackQ10NEON},
		"q2_0":   {neon: few(matVecQ20x1NEON, matVecQ20x2NEON, matVecQ20x4NEON), dotProd: few(matVecQ20x1DotProd, matVecQ20x2DotProd, matVecQ20x4DotProd), unpack: unpackQ20NEON},
	}
}
