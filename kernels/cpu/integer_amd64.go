//go:build !noasm

package cpu

import (
	"slices"

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
	useUnpackers(s)
	for _, row := range maddubsTable() {
		s.Integer(row.name).matVec = [5]matVecKernel{1: row.one, 2: row.two, 4: row.four}
	}
}

// useUnpackers gives a set what unpacks the schemes without kernels of their own.
func useUnpackers(s *Set) {
	s.spreadNibbles, s.spreadBytes, s.spreadScales = spreadNibblesAVX2, spreadBytesAVX2, spreadScalesAVX2
	if cpuid.CPU.Supports(cpuid.BMI2) {
		s.spreadBits = spreadBitsAVX2
	}
	s.decodeF8E4M3, s.decodeLevels = decodeF8E4M3AVX2, decodeLevelsAVX2
	s.dotF8E4M3, s.dotLevels = dotF8E4M3AVX2, dotLevelsAVX2
	for name, unpack := range map[string]func(dst, w []byte, runs int){
		"mxfp4":   unpackMXFP4AVX2,
		"tq1_0":   unpackTQ10AVX2,
		"tq2_0":   unpackTQ20AVX2,
		"iq1_s":   func(dst, w []byte, runs int) { unpackIQ1SAVX2(dst, w, runs, &iq1Grid) },
		"iq1_m":   func(dst, w []byte, runs int) { unpackIQ1MAVX2(dst, w, runs, &iq1Grid) },
		"iq2_xxs": func(dst, w []byte, runs int) { unpackIQ2XXSAVX2(dst, w, runs, &iq2xxsGrid) },
		"iq2_xs":  func(dst, w []byte, runs int) { unpackIQ2XSAVX2(dst, w, runs, &iq2xsGrid) },
		"iq2_s":   func(dst, w []byte, runs int) { unpackIQ2SAVX2(dst, w, runs, &iq2sGrid) },
		"iq3_xxs": func(dst, w []byte, runs int) { unpackIQ3XXSAVX2(dst, w, runs, &iq3xxsGrid) },
		"iq3_s":   func(dst, w []byte, runs int) { unpackIQ3SAVX2(dst, w, runs, &iq3sGrid) },
	} {
		s.Integer(name).unpackAll = unpack
	}
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
	s.interleave, s.dotLevels = interleaveAVX512, dotLevelsAVX512
	for p, strip := range map[*product][5]matVecKernel{
		s.product(fineGroup, false):   {1: matVecStrip16x1AVX512, 2: matVecStrip16x2AVX512, 4: matVecStrip16x4AVX512},
		s.product(fineGroup, true):    {1: matVecStrip16Minx1AVX512, 2: matVecStrip16Minx2AVX512, 4: matVecStrip16Minx4AVX512},
		s.product(coarseGroup, false): {1: matVecStrip32x1AVX512, 2: matVecStrip32x2AVX512, 4: matVecStrip32x4AVX512},
		s.product(coarseGroup, true):  {1: matVecStrip32Minx1AVX512, 2: matVecStrip32Minx2AVX512, 4: matVecStrip32Minx4AVX512},
	} {
		p.strip = strip
	}
	for _, row := range vnniTable() {
		k := s.Integer(row.name)
		k.matVec, k.unpackAll = [5]matVecKernel{1: row.one, 2: row.two, 4: row.four}, row.unpack
		k.ordered = slices.Contains(ordered, row.name)
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
// The schemes of ordered were measured before they took activations in that order. On
// one core of a Zen 4 server it brought q4_k from 21.9 to 28.6 GB/s from L2 with one
// token, q4_0 from 21.2 to 29.9, iq4_nl from 18.4 to 24.8 and iq4_xs from 12.4 to 20.1,
// and 30 to 40 % more with four: one conversion, scale and addition for 64 products of
// each group in place of four. Two rows at once take 3 % longer. q6_k, whose groups are 16
// wide, has two of each in place of four: from 29.5 to 33.5 GB/s, a third of that by
// loading what lies in two lines once, and with four tokens from 10 to 13.5.

// An integerRow is the assembly of one scheme.
type integerRow struct {
	name           string
	one, two, four matVecKernel // tokens
	unpack         func(dst, w []byte, runs int)
}

// ordered are the schemes of vnniTable whose kernels take activations in the order of
// eightsGeneric or sixteensGeneric.
var ordered = []string{"q4_0", "q4_k", "iq4_nl", "iq4_xs", "q6_k"}

func vnniTable() []integerRow {
	return []integerRow{
		{"q4_0", matVecQ40x1AVX512, matVecQ40x2AVX512, matVecQ40x4AVX512, unpackQ40AVX512},
		{"q4_1", matVecQ41x1AVX512, matVecQ41x2AVX512, matVecQ41x4AVX512, unpackQ41AVX512},
		{"q5_0", matVecQ50x1AVX512, matVecQ50x2AVX512, matVecQ50x4AVX512, unpackQ50AVX512},
		{"q5_1", matVecQ51x1AVX512, matVecQ51x2AVX512, matVecQ51x4AVX512, unpackQ51AVX512},
		{"q8_0", matVecQ80x1AVX512, matVecQ80x2AVX512, matVecQ80x4AVX512, unpackQ80AVX512},
		{"q2_k", matVecQ2Kx1AVX512, matVecQ2Kx2AVX512, matVecQ2Kx4AVX512, unpackQ2KAVX512},
		{"q3_k", matVecQ3Kx1AVX512, matVecQ3Kx2AVX512, matVecQ3Kx4AVX512, unpackQ3KAVX512},
		{"q4_k", matVecQ4Kx1AVX512, matVecQ4Kx2AVX512, matVecQ4Kx4AVX512, unpackQ4KAVX512},
		{"q5_k", matVecQ5Kx1AVX512, matVecQ5Kx2AVX512, matVecQ5Kx4AVX512, unpackQ5KAVX512},
		{"q6_k", matVecQ6Kx1AVX512, matVecQ6Kx2AVX512, matVecQ6Kx4AVX512, unpackQ6KAVX512},
		{"iq4_nl", matVecIQ4NLx1AVX512, matVecIQ4NLx2AVX512, matVecIQ4NLx4AVX512, unpackIQ4NLAVX512},
		{"iq4_xs", matVecIQ4XSx1AVX512, matVecIQ4XSx2AVX512, matVecIQ4XSx4AVX512, unpackIQ4XSAVX512},
	}
}

func maddubsTable() []integerRow {
	return []integerRow{
		{"q4_0", matVecQ40x1AVX2, matVecQ40x2AVX2, matVecQ40x4AVX2, nil},
		{"q4_1", matVecQ41x1AVX2, matVecQ41x2AVX2, matVecQ41x4AVX2, nil},
		{"q5_0", matVecQ50x1AVX2, matVecQ50x2AVX2, matVecQ50x4AVX2, nil},
		{"q5_1", matVecQ51x1AVX2, matVecQ51x2AVX2, matVecQ51x4AVX2, nil},
		{"q8_0", matVecQ80x1AVX2, matVecQ80x2AVX2, matVecQ80x4AVX2, nil},
		{"q2_k", matVecQ2Kx1AVX2, matVecQ2Kx2AVX2, matVecQ2Kx4AVX2, nil},
		{"q3_k", matVecQ3Kx1AVX2, matVecQ3Kx2AVX2, matVecQ3Kx4AVX2, nil},
		{"q4_k", matVecQ4Kx1AVX2, matVecQ4Kx2AVX2, matVecQ4Kx4AVX2, nil},
		{"q5_k", matVecQ5Kx1AVX2, matVecQ5Kx2AVX2, matVecQ5Kx4AVX2, nil},
		{"q6_k", matVecQ6Kx1AVX2, matVecQ6Kx2AVX2, matVecQ6Kx4AVX2, nil},
		{"iq4_nl", matVecIQ4NLx1AVX2, matVecIQ4NLx2AVX2, matVecIQ4NLx4AVX2, nil},
		{"iq4_xs", matVecIQ4XSx1AVX2, matVecIQ4XSx2AVX2, matVecIQ4XSx4AVX2, nil},
	}
}
