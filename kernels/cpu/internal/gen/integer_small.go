package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// The schemes of 1, 2 and 4 bits in blocks without 6-bit scales: mxfp4, nvfp4, q1_0 and
// q2_0, for either vector length.

// levelsFP4 are the values of E2M1 doubled, with what is added to make them codes: no more
// than they need, for what is taken off again is rounded at its size.
func levelsFP4(add int) []int {
	v := []int{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}
	for i := range v {
		v[i] += add
	}
	return v
}

func narrowLevelsFP4(g *narrowGen, _ int, c reg.VecVirtual) {
	levels := g.vec()
	VMOVDQU(g.fill("levelsFP4", 1, levelsFP4(0)...), levels)
	VPSHUFB(c, levels, c)
}

func setupMXFP4(g *integerGen) {
	g.nibbleSetup()
	g.register("levels", 1, levelsFP4(12)...)
	g.register("subnormal", 4, 0x200000)
	g.bytes32("one32", 1)
}

// eightBytes collects the first byte of each of eight blocks, in two chains.
func eightBytes(w reg.GPVirtual, size int) reg.VecVirtual {
	var half [2]reg.VecVirtual
	for h := range half {
		half[h] = XMM()
		r := GP32()
		MOVBLZX(at(w, 4*h*size), r)
		VMOVD(r, half[h].AsX())
		for j := 1; j < 4; j++ {
			VPINSRB(Imm(uint64(j)), at(w, (4*h+j)*size), half[h].AsX(), half[h].AsX())
		}
	}
	VPUNPCKLDQ(half[1].AsX(), half[0].AsX(), half[0].AsX())
	return half[0]
}

// scalesMXFP4 makes 2^(e-128): the exponent is e-1, but 0 and 1 are subnormal.
func scalesMXFP4(g *integerGen) (s, m reg.VecVirtual) {
	x, small, k := g.vec(), g.vec(), K()
	e := eightBytes(g.w, 17)
	VPUNPCKLQDQ(e.AsX(), e.AsX(), e.AsX())
	VPMOVZXBD(e.AsX(), x)
	VPSLLVD(x, g.keep["subnormal"], small)
	VPCMPUD(Imm(2), g.c["one32"], x, k) // not above 1
	VPSUBD(g.c["one32"], x, x)
	VPSLLD(Imm(23), x, x)
	VMOVDQA32(small, k, x)
	return x, x
}

func narrowScalesMXFP4(g *narrowGen) (s, m []reg.VecVirtual) {
	x, small, less := g.vec(), g.vec(), g.vec()
	VPMOVZXBD(eightBytes(g.w, 17).AsX(), x)
	VMOVDQU(g.fill("subnormal", 4, 0x200000), small)
	VPSLLVD(x, small, small)
	VMOVDQU(g.fill("two32", 4, 2), less)
	VPCMPGTD(x, less, less)
	VPSUBD(g.fill("one32", 4, 1), x, x)
	VPSLLD(Imm(23), x, x)
	VBLENDVPS(less, small, x, x)
	return []reg.VecVirtual{x}, nil
}

func setupNVFP4(g *integerGen) {
	g.bytes8("low4", 15)
	g.register("levels", 1, levelsFP4(12)...)
	g.register("twice4", 8, 0, 0, 1, 1, 2, 2, 3, 3)
	g.bytes64("highs4", 0, 4)
	g.register("nan16", 2, 127)
	g.register("half16", 2, 0x3f80)
	g.bytes32("times128", floatBits(128))
}

// sixteenBytes collects the four scales of each of four blocks.
func sixteenBytes(w reg.GPVirtual) reg.VecVirtual {
	x := XMM()
	VMOVD(at(w, 0), x)
	for j := 1; j < 4; j++ {
		VPINSRD(Imm(uint64(j)), at(w, 36*j), x, x)
	}
	return x
}

// scalesNVFP4 reads 7 bits as the upper ones of an f16 that is 128 times too small, and
// 127 as 0.
func scalesNVFP4(g *integerGen) (s, m reg.VecVirtual) {
	s = g.vec()
	k := K()
	VPMOVZXBW(sixteenBytes(g.w), s.AsY())
	VPCMPW(Imm(4), g.keep["nan16"].AsY(), s.AsY(), k)
	VPSLLW(Imm(7), s.AsY(), s.AsY())
	VPANDD(g.keep["half16"].AsY(), s.AsY(), s.AsY())
	VMOVDQU16_Z(s.AsY(), k, s.AsY())
	VCVTPH2PS(s.AsY(), s)
	VMULPS(g.c["times128"], s, s)
	return s, s
}

// codesNVFP4 takes the low and the high nibbles of eight bytes, four times.
func codesNVFP4(g *integerGen, i int) reg.VecVirtual {
	c := g.vec()
	load(c, at(g.w, 36*i+4))
	VPERMQ(c, g.keep["twice4"], c)
	VPSRLVQ(g.c["highs4"], c, c)
	VPANDD(g.c["low4"], c, c)
	levels(g, i, c)
	return c
}

func narrowScalesNVFP4(g *narrowGen) (s, m []reg.VecVirtual) {
	x, nan := g.vec(), g.vec()
	VPMOVZXBW(sixteenBytes(g.w), x)
	VPCMPEQW(g.fill("nan16", 2, 127), x, nan)
	VPSLLW(Imm(7), x, x)
	VPAND(g.fill("half16", 2, 0x3f80), x, x)
	VPANDN(x, nan, x)
	for h := range 2 {
		y, part := g.vec(), XMM()
		VEXTRACTI128(Imm(uint64(h)), x, part)
		VCVTPH2PS(part, y)
		VMULPS(g.fill("times128", 4, floatBits(128)), y, y)
		s = append(s, y)
	}
	return s, nil
}

func narrowNVFP4(g *narrowGen, i int) reg.VecVirtual {
	c := g.vec()
	VBROADCASTI128(at(g.w, 36*(i/2)+4+16*(i%2)), c)
	VPERMQ(Imm(0x50), c, c) // each half twice
	VPSRLVQ(g.fill("highs4", 8, 0, 4), c, c)
	g.mask(c, 15)
	narrowLevelsFP4(g, i, c)
	return c
}

// repeatedWords collects the first word of each of n blocks of 18 bytes, 2 or 4, and
// repeats it for the groups of its block.
func repeatedWords(w reg.GPVirtual, n int) reg.VecVirtual {
	x, r := YMM(), GP32() // of which the lower half is used
	MOVWLZX(at(w, 0), r)
	VMOVD(r, x.AsX())
	for j := 1; j < n; j++ {
		VPINSRW(Imm(uint64(j)), at(w, 18*j), x.AsX(), x.AsX())
	}
	VPUNPCKLWD(x.AsX(), x.AsX(), x.AsX())
	if n == 2 {
		VPUNPCKLDQ(x.AsX(), x.AsX(), x.AsX())
	}
	return x
}

func (g *integerGen) repeatedScales(n int) (s, m reg.VecVirtual) {
	s = g.vec()
	x := repeatedWords(g.w, n)
	VINSERTI32X4(Imm(1), x.AsX(), x.AsY(), x.AsY())
	VCVTPH2PS(x.AsY(), s)
	return s, s
}

func (g *narrowGen) repeatedScales(n int) (s, m []reg.VecVirtual) {
	y := g.vec()
	VCVTPH2PS(repeatedWords(g.w, n).AsX(), y)
	return []reg.VecVirtual{y}, nil
}

func setupQ10(g *integerGen) { g.register("two8", 1, 2) }

func scalesQ10(g *integerGen) (s, m reg.VecVirtual) { return g.repeatedScales(2) }

// codesQ10 are 2 where a bit is set, and 0.
func codesQ10(g *integerGen, i int) reg.VecVirtual {
	c, k := g.vec(), K()
	KMOVQ(at(g.w, 18*(i/2)+2+8*(i%2)), k)
	VMOVDQU8_Z(g.keep["two8"], k, c)
	return c
}

func narrowScalesQ10(g *narrowGen) (s, m []reg.VecVirtual) { return g.repeatedScales(2) }

func narrowQ10(g *narrowGen, i int) reg.VecVirtual {
	c := g.vec()
	bits := g.fill("bits", 1, 1, 2, 4, 8, 16, 32, 64, 128)
	VPBROADCASTD(at(g.w, 18*(i/4)+2+4*(i%4)), c)
	VPSHUFB(g.eighths(), c, c)
	VPAND(bits, c, c)
	VPCMPEQB(bits, c, c)
	g.mask(c, 2)
	return c
}

func setupQ20(g *integerGen) { g.bytes8("low2", 3) }

func scalesQ20(g *integerGen) (s, m reg.VecVirtual) { return g.repeatedScales(4) }

// codesQ20 moves the pairs of a byte to the four bytes of a word.
func codesQ20(g *integerGen, i int) reg.VecVirtual {
	c, x := g.vec(), g.vec()
	VPMOVZXBD(at(g.w, 18*i+2), c)
	VPSLLD(Imm(12), c, x)
	VPORD(x, c, c)
	VPSLLD(Imm(6), c, x)
	VPORD(x, c, c)
	VPANDD(g.c["low2"], c, c)
	return c
}

func narrowScalesQ20(g *narrowGen) (s, m []reg.VecVirtual) { return g.repeatedScales(4) }

func narrowQ20(g *narrowGen, i int) reg.VecVirtual {
	c, x := g.vec(), g.vec()
	VPMOVZXBD(at(g.w, 18*(i/2)+2+8*(i%2)), c)
	VPSLLD(Imm(12), c, x)
	VPOR(x, c, c)
	VPSLLD(Imm(6), c, x)
	VPOR(x, c, c)
	g.mask(c, 3)
	return c
}
