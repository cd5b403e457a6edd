//go:build !noasm

package cpu

// useIntegers gives a set the integer kernels of its level. Without dot products
// many tokens go four at a time through the kernels for few.
func useIntegers(s *Set, l Level) {
	s.quantize, s.quantizeFine = quantizeNEON, quantizeFineNEON
	s.interleave = interleaveNEON
	s.signed = true
	useStrips(s, stripsNEON())
	for _, row := range integersNEON() {
		k := s.Integer(row.name)
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

// An integerRow is the assembly of one scheme: matrix-vector kernels by tokens, and
// what unpacks a row for many.
type integerRow struct {
	name          string
	neon, dotProd [5]matVecKernel
	unpack        func(dst, w []byte, runs int)
}

func integersNEON() []integerRow {
	return []integerRow{
		{"q4_0", [5]matVecKernel{1: matVecQ40x1NEON, 2: matVecQ40x2NEON, 4: matVecQ40x4NEON},
			[5]matVecKernel{1: matVecQ40x1DotProd, 2: matVecQ40x2DotProd, 4: matVecQ40x4DotProd}, unpackQ40NEON},
		{"q4_1", [5]matVecKernel{1: matVecQ41x1NEON, 2: matVecQ41x2NEON, 4: matVecQ41x4NEON},
			[5]matVecKernel{1: matVecQ41x1DotProd, 2: matVecQ41x2DotProd, 4: matVecQ41x4DotProd}, unpackQ41NEON},
		{"q5_0", [5]matVecKernel{1: matVecQ50x1NEON, 2: matVecQ50x2NEON, 4: matVecQ50x4NEON},
			[5]matVecKernel{1: matVecQ50x1DotProd, 2: matVecQ50x2DotProd, 4: matVecQ50x4DotProd}, unpackQ50NEON},
		{"q5_1", [5]matVecKernel{1: matVecQ51x1NEON, 2: matVecQ51x2NEON, 4: matVecQ51x4NEON},
			[5]matVecKernel{1: matVecQ51x1DotProd, 2: matVecQ51x2DotProd, 4: matVecQ51x4DotProd}, unpackQ51NEON},
		{"q8_0", [5]matVecKernel{1: matVecQ80x1NEON, 2: matVecQ80x2NEON, 4: matVecQ80x4NEON},
			[5]matVecKernel{1: matVecQ80x1DotProd, 2: matVecQ80x2DotProd, 4: matVecQ80x4DotProd}, unpackQ80NEON},
		{"q2_k", [5]matVecKernel{1: matVecQ2Kx1NEON, 2: matVecQ2Kx2NEON, 4: matVecQ2Kx4NEON},
			[5]matVecKernel{1: matVecQ2Kx1DotProd, 2: matVecQ2Kx2DotProd, 4: matVecQ2Kx4DotProd}, unpackQ2KNEON},
		{"q3_k", [5]matVecKernel{1: matVecQ3Kx1NEON, 2: matVecQ3Kx2NEON, 4: matVecQ3Kx4NEON},
			[5]matVecKernel{1: matVecQ3Kx1DotProd, 2: matVecQ3Kx2DotProd, 4: matVecQ3Kx4DotProd}, unpackQ3KNEON},
		{"q4_k", [5]matVecKernel{1: matVecQ4Kx1NEON, 2: matVecQ4Kx2NEON, 4: matVecQ4Kx4NEON},
			[5]matVecKernel{1: matVecQ4Kx1DotProd, 2: matVecQ4Kx2DotProd, 4: matVecQ4Kx4DotProd}, unpackQ4KNEON},
		{"q5_k", [5]matVecKernel{1: matVecQ5Kx1NEON, 2: matVecQ5Kx2NEON, 4: matVecQ5Kx4NEON},
			[5]matVecKernel{1: matVecQ5Kx1DotProd, 2: matVecQ5Kx2DotProd, 4: matVecQ5Kx4DotProd}, unpackQ5KNEON},
		{"q6_k", [5]matVecKernel{1: matVecQ6Kx1NEON, 2: matVecQ6Kx2NEON, 4: matVecQ6Kx4NEON},
			[5]matVecKernel{1: matVecQ6Kx1DotProd, 2: matVecQ6Kx2DotProd, 4: matVecQ6Kx4DotProd}, unpackQ6KNEON},
		{"iq4_nl", [5]matVecKernel{1: matVecIQ4NLx1NEON, 2: matVecIQ4NLx2NEON, 4: matVecIQ4NLx4NEON},
			[5]matVecKernel{1: matVecIQ4NLx1DotProd, 2: matVecIQ4NLx2DotProd, 4: matVecIQ4NLx4DotProd}, unpackIQ4NLNEON},
		{"iq4_xs", [5]matVecKernel{1: matVecIQ4XSx1NEON, 2: matVecIQ4XSx2NEON, 4: matVecIQ4XSx4NEON},
			[5]matVecKernel{1: matVecIQ4XSx1DotProd, 2: matVecIQ4XSx2DotProd, 4: matVecIQ4XSx4DotProd}, unpackIQ4XSNEON},
	}
}
