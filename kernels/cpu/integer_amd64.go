//go:build !noasm

package cpu

import (
	"github.com/klauspost/cpuid/v2"
)

// useMaddubs gives a set of LevelAVX2 its integer kernels for few tokens. With
// many, 6x16 tiles of float32 are as fast as what VPMADDUBSW could do.
func useMaddubs(s *Set) {
	s.quantize, s.quantizeFine = quantizeAVX2, quantizeFineAVX2
	for p, strip := range map[*product][5]matVecKernel{
		s.product(fineGroup, false):   {1: matVecStrip16x1AVX2, 2: matVecStrip16x2AVX2, 4: matVecStrip16x4AVX2},
		s.product(fineGroup, true):    {1: matVecStrip16Minx1AVX2, 2: matVecStrip16Minx2AVX2, 4: matVecStrip16Minx4AVX2},
		s.product(coarseGroup, false): {1: matVecStrip32x1AVX2, 2: matVecStrip32x2AVX2, 4: matVecStrip32x4AVX2},
		s.product(coarseGroup, true):  {1: matVecStrip32Minx1AVX2, 2: matVecStrip32Minx2AVX2, 4: matVecStrip32Minx4AVX2},
	} {
		p.strip = strip
	}
	for name, row := range integersAMD64() {
		k := s.Integer(name)
		k.matVec, k.unpackAll = row.avx2, row.unpack2
	}
	s.spreadNibbles, s.spreadBytes, s.spreadScales = spreadNibblesAVX2, spreadBytesAVX2, spreadScalesAVX2
	if cpuid.CPU.Supports(cpuid.BMI2) {
		s.spreadBits = spreadBitsAVX2
	}
	s.decodeF8E4M3, s.decodeLevels = decodeF8E4M3AVX2, decodeLevelsAVX2
	s.dotF8E4M3, s.dotLevels = dotF8E4M3AVX2, dotLevelsAVX2
	s.dotFloats8, s.dotFloats4 = dotBlocksAVX2, dotBlocksAVX2
}

// useVNNI gives a set of LevelAVX512 its integer kernels, on machines with
// VPDPBUSD (Intel Ice Lake, AMD Zen 4 and later). Without it those of
// LevelAVX2 stay.
func useVNNI(s *Set) {
	if !cpuid.CPU.Supports(cpuid.AVX512VNNI) {
		return
	}
	s.eights, s.sixteens = eightsAVX512, sixteensAVX512
	s.fixed = fixedKernel{least: 5, mr: 12, nr: 32, fix: fixAVX512, tile: fixedTileAVX512}
	s.interleave, s.dotLevels, s.dotFloats4 = interleaveAVX512, dotLevelsAVX512, dotBlocksAVX512
	for p, strip := range map[*product][5]matVecKernel{
		s.product(fineGroup, false):   {1: matVecStrip16x1AVX512, 2: matVecStrip16x2AVX512, 4: matVecStrip16x4AVX512},
		s.product(fineGroup, true):    {1: matVecStrip16Minx1AVX512, 2: matVecStrip16Minx2AVX512, 4: matVecStrip16Minx4AVX512},
		s.product(coarseGroup, false): {1: matVecStrip32x1AVX512, 2: matVecStrip32x2AVX512, 4: matVecStrip32x4AVX512},
		s.product(coarseGroup, true):  {1: matVecStrip32Minx1AVX512, 2: matVecStrip32Minx2AVX512, 4: matVecStrip32Minx4AVX512},
	} {
		p.strip = strip
	}
	for name, row := range integersAMD64() {
		if row.avx512[1] == nil { // unpacked as at LevelAVX2, for the products of this level
			continue
		}
		k := s.Integer(name)
		k.matVec, k.unpackAll, k.ordered = row.avx512, row.unpack512, row.ordered
	}
	for p, tile := range map[*product]tileKernel{
		s.product(fineGroup, false): tile16AVX512, s.product(fineGroup, true): tile16MinAVX512,
		s.product(coarseGroup, false): tile32AVX512, s.product(coarseGroup, true): tile32MinAVX512,
	} {
		p.tile, p.tileTokens = tile, 6
	}
	twice := *s.product(fineGroup, false)
	twice.tile, twice.tileTokens = tileTwiceAVX512, 4
	s.Integer("q8_0").product = &twice
}

// Measured on one core of a Sapphire-Rapids-like Xeon (BenchmarkInteger, K =
// 4096; AVX-512 figures on a busy machine, the best of many runs): GB/s of
// weights from L2 with one token, GFLOP/s with 4, 16 and 512 tokens.
//
//	          bytes a weight   AVX-512: T=1    4   16  512   AVX2: T=1    4
//	q4_0, q4_k    0.5625             24..25  130  220  375       16..17   91
//	q5_k          0.6875                 26  115  211  362           15   80
//	q6_k          0.8203                 30  119  197  325           16   64
//	q8_0          1.0625                 42  126  224  380           36   85
//	iq4_nl        0.5625                 22  127  224  377
//	iq4_xs        0.5313                 19  119  226  367           13   77
//	q3_k          0.4297                 15  109  200  322          7.4   61
//	q2_k          0.3281                 13  120  176  301          7.9   69
//
// From memory, where a loop that only reads makes 15 GB/s, q4_k makes 87 % of it
// and q8_0 92 %. VPDPBUSD alone makes 580 GFLOP/s there: prefill spends the rest
// on scales, a multiplication and two additions for each 32 or 16 products. What
// was counted and not built: one scale for 256 activations, with VPMADDUBSW and
// VPDPWSSD on integer scales (as many instructions for one token, and a larger
// error).
//
// The ordered schemes were measured before they took activations in that order. On
// one core of a Zen 4 server it brought q4_k from 21.9 to 28.6 GB/s from L2 with one
// token, q4_0 from 21.2 to 29.9, iq4_nl from 18.4 to 24.8 and iq4_xs from 12.4 to 20.1,
// and 30 to 40 % more with four: one conversion, scale and addition for 64 products of
// each group in place of four. Two rows at once take 3 % longer. q6_k, whose groups are 16
// wide, has two of each in place of four: from 29.5 to 33.5 GB/s, a third of that by
// loading what lies in two lines once, and with four tokens from 10 to 13.5.

// An integerRow is the assembly of one scheme: products of few tokens and what unpacks
// its runs, for products of unpacked rows. A scheme without products of its own is
// unpacked at both levels by unpack2.
type integerRow struct {
	avx2, avx512       [9]matVecKernel // by tokens
	unpack2, unpack512 func(dst, w []byte, runs int)
	ordered            bool // avx512 takes activations in the order of eightsGeneric or sixteensGeneric
}

func few(one, two, four matVecKernel) [9]matVecKernel {
	return [9]matVecKernel{1: one, 2: two, 4: four}
}

// eight is few with a kernel of eight tokens.
func eight(one, two, four, eight matVecKernel) [9]matVecKernel {
	return [9]matVecKernel{1: one, 2: two, 4: four, 8: eight}
}

// integersAMD64 lists the assembly by scheme.
func integersAMD64() map[string]integerRow {
	return map[string]integerRow{
		"q4_0":    {avx2: few(matVecQ40x1AVX2, matVecQ40x2AVX2, matVecQ40x4AVX2), avx512: eight(matVecQ40x1AVX512, matVecQ40x2AVX512, matVecQ40x4AVX512, matVecQ40x8AVX512), unpack512: unpackQ40AVX512, ordered: true},
		"q4_1":    {avx2: few(matVecQ41x1AVX2, matVecQ41x2AVX2, matVecQ41x4AVX2), avx512: few(matVecQ41x1AVX512, matVecQ41x2AVX512, matVecQ41x4AVX512), unpack512: unpackQ41AVX512},
		"q5_0":    {avx2: few(matVecQ50x1AVX2, matVecQ50x2AVX2, matVecQ50x4AVX2), avx512: few(matVecQ50x1AVX512, matVecQ50x2AVX512, matVecQ50x4AVX512), unpack512: unpackQ50AVX512},
		"q5_1":    {avx2: few(matVecQ51x1AVX2, matVecQ51x2AVX2, matVecQ51x4AVX2), avx512: few(matVecQ51x1AVX512, matVecQ51x2AVX512, matVecQ51x4AVX512), unpack512: unpackQ51AVX512},
		"q8_0":    {avx2: few(matVecQ80x1AVX2, matVecQ80x2AVX2, matVecQ80x4AVX2), avx512: few(matVecQ80x1AVX512, matVecQ80x2AVX512, matVecQ80x4AVX512), unpack512: unpackQ80AVX512},
		"q2_k":    {avx2: few(matVecQ2Kx1AVX2, matVecQ2Kx2AVX2, matVecQ2Kx4AVX2), avx512: few(matVecQ2Kx1AVX512, matVecQ2Kx2AVX512, matVecQ2Kx4AVX512), unpack512: unpackQ2KAVX512},
		"q3_k":    {avx2: few(matVecQ3Kx1AVX2, matVecQ3Kx2AVX2, matVecQ3Kx4AVX2), avx512: few(matVecQ3Kx1AVX512, matVecQ3Kx2AVX512, matVecQ3Kx4AVX512), unpack512: unpackQ3KAVX512},
		"q4_k":    {avx2: few(matVecQ4Kx1AVX2, matVecQ4Kx2AVX2, matVecQ4Kx4AVX2), avx512: eight(matVecQ4Kx1AVX512, matVecQ4Kx2AVX512, matVecQ4Kx4AVX512, matVecQ4Kx8AVX512), unpack512: unpackQ4KAVX512, ordered: true},
		"q5_k":    {avx2: few(matVecQ5Kx1AVX2, matVecQ5Kx2AVX2, matVecQ5Kx4AVX2), avx512: few(matVecQ5Kx1AVX512, matVecQ5Kx2AVX512, matVecQ5Kx4AVX512), unpack512: unpackQ5KAVX512},
		"q6_k":    {avx2: few(matVecQ6Kx1AVX2, matVecQ6Kx2AVX2, matVecQ6Kx4AVX2), avx512: eight(matVecQ6Kx1AVX512, matVecQ6Kx2AVX512, matVecQ6Kx4AVX512, matVecQ6Kx8AVX512), unpack512: unpackQ6KAVX512, ordered: true},
		"iq4_nl":  {avx2: few(matVecIQ4NLx1AVX2, matVecIQ4NLx2AVX2, matVecIQ4NLx4AVX2), avx512: few(matVecIQ4NLx1AVX512, matVecIQ4NLx2AVX512, matVecIQ4NLx4AVX512), unpack512: unpackIQ4NLAVX512, ordered: true},
		"iq4_xs":  {avx2: few(matVecIQ4XSx1AVX2, matVecIQ4XSx2AVX2, matVecIQ4XSx4AVX2), avx512: few(matVecIQ4XSx1AVX512, matVecIQ4XSx2AVX512, matVecIQ4XSx4AVX512), unpack512: unpackIQ4XSAVX512, ordered: true},
		"mxfp4":   {avx2: few(matVecMXFP4x1AVX2, matVecMXFP4x2AVX2, matVecMXFP4x4AVX2), avx512: few(matVecMXFP4x1AVX512, matVecMXFP4x2AVX512, matVecMXFP4x4AVX512), unpack512: unpackMXFP4AVX512},
		"nvfp4":   {avx2: few(matVecNVFP4x1AVX2, matVecNVFP4x2AVX2, matVecNVFP4x4AVX2), avx512: few(matVecNVFP4x1AVX512, matVecNVFP4x2AVX512, matVecNVFP4x4AVX512), unpack512: unpackNVFP4AVX512},
		"q1_0":    {avx2: few(matVecQ10x1AVX2, matVecQ10x2AVX2, matVecQ10x4AVX2), avx512: few(matVecQ10x1AVX512, matVecQ10x2AVX512, matVecQ10x4AVX512), unpack512: unpackQ10AVX512},
		"q2_0":    {avx2: few(matVecQ20x1AVX2, matVecQ20x2AVX2, matVecQ20x4AVX2), avx512: few(matVecQ20x1AVX512, matVecQ20x2AVX512, matVecQ20x4AVX512), unpack512: unpackQ20AVX512},
		"tq1_0":   {unpack2: unpackTQ10AVX2},
		"tq2_0":   {unpack2: unpackTQ20AVX2},
		"iq1_s":   {unpack2: func(dst, w []byte, runs int) { unpackIQ1SAVX2(dst, w, runs, &iq1Grid) }},
		"iq1_m":   {unpack2: func(dst, w []byte, runs int) { unpackIQ1MAVX2(dst, w, runs, &iq1Grid) }},
		"iq2_xxs": {unpack2: func(dst, w []byte, runs int) { unpackIQ2XXSAVX2(dst, w, runs, &iq2xxsGrid) }},
		"iq2_xs":  {unpack2: func(dst, w []byte, runs int) { unpackIQ2XSAVX2(dst, w, runs, &iq2xsGrid) }},
		"iq2_s":   {unpack2: func(dst, w []byte, runs int) { unpackIQ2SAVX2(dst, w, runs, &iq2sGrid) }},
		"iq3_xxs": {unpack2: func(dst, w []byte, runs int) { unpackIQ3XXSAVX2(dst, w, runs, &iq3xxsGrid) }},
		"iq3_s":   {unpack2: func(dst, w []byte, runs int) { unpackIQ3SAVX2(dst, w, runs, &iq3sGrid) }},
	}
}
