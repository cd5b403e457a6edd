package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// integers lists the schemes, by the name of their files.
func integers() map[string]*integer {
	return map[string]*integer{
		"q40": {zero: 8, setup: setupQ40, scales: words(18, 0), codes: nibbles(18, 2, nil),
			eights: eightsOf(blocks18, nil), factors: atEightsScale, beyond: true},
		"q41": {setup: setupQ41, scales: minWords(20), codes: nibbles(20, 4, nil)},
		"q50": {zero: 16, setup: setupQ50, scales: words(22, 0), codes: nibbles(22, 6, fifth(22, 2))},
		"q51": {setup: setupQ51, scales: minWords(24), codes: nibbles(24, 8, fifth(24, 4))},
		"q80": {zero: 128, near: true, setup: setupQ80, scales: scalesQ80, codes: codesQ80},
		"iq4nl": {zero: 128, setup: setupIQ4NL, scales: words(18, 0), codes: nibbles(18, 2, levels),
			eights: eightsOf(blocks18, levels), factors: atEightsScale},
		"iq4xs": {zero: 128, setup: setupIQ4XS, scales: scalesIQ4XS, codes: nibbles(16, 8, levels),
			eights: eightsOf(blocks16, levels), factors: atEightsScale},
		"q4k":   {setup: setupQ4K, scales: scalesK4, codes: codesQ4K, eights: eightsQ4K, factors: atEightsHigh, beyond: true},
		"q5k":   {setup: setupQ5K, scales: scalesK4, codes: codesQ5K},
		"q6k":   {zero: 32, setup: setupQ6K, scales: scalesQ6K, codes: codesQ6K, sixteens: sixteensQ6K, beyond: true},
		"q3k":   {zero: 4, setup: setupQ3K, scales: scalesQ3K, codes: codesQ3K},
		"q2k":   {setup: setupQ2K, scales: scalesQ2K, codes: codesQ2K},
		"mxfp4": {zero: 12, setup: setupMXFP4, scales: scalesMXFP4, codes: nibbles(17, 1, levels)},
		"nvfp4": {zero: 12, setup: setupNVFP4, scales: scalesNVFP4, codes: codesNVFP4},
		"q10":   {zero: 1, setup: setupQ10, scales: scalesQ10, codes: codesQ10},
		"q20":   {zero: 1, setup: setupQ20, scales: scalesQ20, codes: codesQ20},
	}
}

// nibbleSetup: codes of two blocks are four copies of 16 bytes, shifted.
func (g *integerGen) nibbleSetup() {
	g.bytes8("low4", 15)
	if g.order {
		return
	}
	g.bytes16("lowHigh", 0, 0, 0, 0, 0, 0, 0, 0, 4, 4, 4, 4, 4, 4, 4, 4)
	g.upperHalf()
}

func (g *integerGen) upperHalf() {
	g.k = K()
	r := GP32()
	MOVL(U32(0xff00), r)
	KMOVW(r, g.k)
}

// nibbles reads blocks of 16 bytes of codes, at distance size: two of them make
// [low of a, high of a, low of b, high of b]. then maps the codes further.
func nibbles(size, first int, then func(g *integerGen, i int, c reg.VecVirtual)) func(g *integerGen, i int) reg.VecVirtual {
	return func(g *integerGen, i int) reg.VecVirtual {
		c := g.vec()
		VBROADCASTI32X4(at(g.w, 2*i*size+first), c)
		VBROADCASTI32X4(at(g.w, (2*i+1)*size+first), g.k, c)
		VPSRLVW(g.c["lowHigh"], c, c)
		VPANDD(g.c["low4"], c, c)
		if then != nil {
			then(g, i, c)
		}
		return c
	}
}

func levels(g *integerGen, _ int, c reg.VecVirtual) { VPSHUFB(c, g.keep["levels"], c) }

// fifth adds 16 where the bits before the codes say so.
func fifth(size, first int) func(g *integerGen, i int, c reg.VecVirtual) {
	return func(g *integerGen, i int, c reg.VecVirtual) {
		a, b, k := GP64(), GP64(), K()
		MOVL(at(g.w, 2*i*size+first), a.As32())
		MOVL(at(g.w, (2*i+1)*size+first), b.As32())
		SHLQ(Imm(32), b)
		ORQ(a, b)
		KMOVQ(b, k)
		VPADDB(g.c["sixteen"], c, k, c)
	}
}

// words gathers the f16 at the start of eight blocks, as S and again as M. Two
// loads hold them all for blocks of 18 bytes; else they are inserted one by one.
func words(size, first int) func(g *integerGen) (s, m reg.VecVirtual) {
	return func(g *integerGen) (s, m reg.VecVirtual) {
		s = g.vec()
		if size == 18 {
			VMOVDQU64(at(g.w, 0), s)
			VPERMT2W(at(g.w, 64), g.keep["words18"], s)
			VCVTPH2PS(s.AsY(), s)
			return s, s
		}
		x := g.eightWords(size, first)
		VINSERTI32X4(Imm(1), x.AsX(), x.AsY(), x.AsY())
		VCVTPH2PS(x.AsY(), s)
		return s, s
	}
}

// eightWords collects a word from each of eight blocks, in two chains.
func (g *integerGen) eightWords(size, first int) reg.VecVirtual {
	var half [2]reg.VecVirtual
	for h := range half {
		half[h] = g.vec()
		x := half[h].AsX()
		r := GP32()
		MOVWLZX(at(g.w, 4*h*size+first), r)
		VMOVD(r, x)
		for j := 1; j < 4; j++ {
			VPINSRW(Imm(uint64(j)), at(g.w, (4*h+j)*size+first), x, x)
		}
	}
	VPUNPCKLQDQ(half[1].AsX(), half[0].AsX(), half[0].AsX())
	return half[0]
}

// minWords gathers d and m of blocks that begin with both; M = -m.
func minWords(size int) func(g *integerGen) (s, m reg.VecVirtual) {
	return func(g *integerGen) (reg.VecVirtual, reg.VecVirtual) {
		s, m := g.eightWords(size, 0), g.eightWords(size, 2)
		VINSERTI32X4(Imm(1), m.AsX(), s.AsY(), s.AsY())
		VCVTPH2PS(s.AsY(), s)
		VPXORD(g.c["negateUpper"], s, s)
		return s, s
	}
}

func setupQ40(g *integerGen) {
	g.nibbleSetup()
	g.words18()
}

func (g *integerGen) words18() {
	g.register("words18", 2, 0, 9, 18, 27, 36, 45, 54, 63)
	if g.order { // four words of each block, of four blocks in each of two loads
		var v []int
		for i := range 32 {
			v = append(v, i/16*33+i/4%4*9+i%4)
		}
		g.register("eights18", 2, v...)
	}
}

// eightsOf splits the bytes that half returns, eight of each block, into their lower
// and upper nibbles: codes 0 to 7 of each block, 8 to 15, 16 to 23 and 24 to 31.
func eightsOf(half func(g *integerGen, h int) reg.VecVirtual, then func(g *integerGen, i int, c reg.VecVirtual)) func(g *integerGen, i int) reg.VecVirtual {
	return func(g *integerGen, i int) reg.VecVirtual {
		c, both := g.vec(), half(g, i%2)
		if i < 2 {
			VPANDD(g.c["low4"], both, c)
		} else {
			VPSRLW(Imm(4), both, c)
			VPANDD(g.c["low4"], c, c)
		}
		if then != nil {
			then(g, i, c)
		}
		return c
	}
}

// gathered makes a register once in a run.
func (g *integerGen) gathered(name string, make func(c reg.VecVirtual)) reg.VecVirtual {
	if _, ok := g.cache[name]; !ok {
		g.cache[name] = g.vec()
		make(g.cache[name])
	}
	return g.cache[name]
}

// blocks18 reads eight bytes of codes of each of eight blocks of 18 bytes, and none
// behind them: the second load begins a word before its first codes.
func blocks18(g *integerGen, h int) reg.VecVirtual {
	return g.gathered(label("blocks%d", h), func(c reg.VecVirtual) {
		VMOVDQU64(at(g.w, 2+8*h), c)
		VPERMT2W(at(g.w, 72+8*h), g.keep["eights18"], c)
	})
}

// blocks16 is blocks18 where nothing lies between the codes.
func blocks16(g *integerGen, h int) reg.VecVirtual {
	return g.gathered(label("blocks%d", h), func(c reg.VecVirtual) {
		VMOVDQU64(at(g.w, 8), c)
		VPERMT2Q(at(g.w, 72), g.keep[label("eights16_%d", h)], c)
	})
}

func setupQ41(g *integerGen) {
	g.nibbleSetup()
	g.bytes32("negateUpper", twoHalves(8, 0, -1<<31)...)
}

func setupQ50(g *integerGen) {
	g.nibbleSetup()
	g.bytes8("sixteen", 16)
}

func setupQ51(g *integerGen) {
	setupQ41(g)
	g.bytes8("sixteen", 16)
}

func setupQ80(g *integerGen) {
	g.bytes8("sign", 128)
	g.register("twice", 4, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7)
}

// scalesQ80 repeats each scale for both halves of its 32 weights.
func scalesQ80(g *integerGen) (s, m reg.VecVirtual) {
	x := g.eightWords(34, 0)
	s = g.vec()
	VCVTPH2PS(x.AsX(), s.AsY())
	VPERMPS(s, g.keep["twice"], s)
	return s, s
}

func codesQ80(g *integerGen, i int) reg.VecVirtual {
	c := g.vec()
	load(c, at(g.w, 68*i+2))
	VINSERTI64X4(Imm(1), at(g.w, 68*i+36), c, c)
	VPXORD(g.c["sign"], c, c)
	return c
}

func (g *integerGen) levelSetup() {
	g.nibbleSetup()
	g.register("levels", 1, 1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241)
}

func setupIQ4NL(g *integerGen) {
	g.levelSetup()
	g.words18()
}

// none is a byte that VPSHUFB sets to zero.
const none = 128

func setupIQ4XS(g *integerGen) {
	g.levelSetup()
	if g.order {
		g.register("eights16_0", 8, 0, 2, 4, 6, 8, 10, 12, 14)
		g.register("eights16_1", 8, 1, 3, 5, 7, 9, 11, 13, 15)
	}
	var place, low, high []int
	for j := range 16 {
		j &= 7
		place = append(place, 4+j/2, 2, 3, none)
		low, high = append(low, 4*(j&1)), append(high, 8+2*j-4)
	}
	g.bytes8("placeXS", place...)
	g.bytes32("lowXS", low...)
	g.bytes32("highXS", high...)
	g.six()
}

func (g *integerGen) six() {
	g.bytes32("mask4", 15)
	g.bytes32("mask6", 63)
	g.bytes32("minus32", 32)
}

// sixBits joins the low nibble of t>>low with the pair that t>>high has above
// it, takes 32 off and converts.
func (g *integerGen) sixBits(t reg.VecVirtual, low, high Op) {
	y := g.vec()
	VPSRLVD(high, t, y)
	VPSRLVD(low, t, t)
	pick(t, y, g.c["mask4"])
	VPANDD(g.c["mask6"], t, t)
	VPSUBD(g.c["minus32"], t, t)
	VCVTDQ2PS(t, t)
}

// timesWord multiplies s by the f16 at an offset.
func (g *integerGen) timesWord(s reg.VecVirtual, at0 int) {
	d := g.vec()
	VPBROADCASTW(at(g.w, at0), d.AsY())
	VCVTPH2PS(d.AsY(), d)
	VMULPS(d, s, s)
}

func scalesIQ4XS(g *integerGen) (s, m reg.VecVirtual) {
	s = g.vec()
	VPBROADCASTQ(at(g.w, 0), s)
	VPSHUFB(g.c["placeXS"], s, s)
	g.sixBits(s, g.c["lowXS"], g.c["highXS"])
	g.timesWord(s, 0)
	return s, s
}

func setupQ4K(g *integerGen) {
	if g.order {
		g.bytes64("nibbles8", 0x0f0f0f0f0f0f0f0f, -0x0f0f0f0f0f0f0f10)
		for j := range 4 {
			name, values := label("eights32_%d", j), []int{j, j, 4 + j, 4 + j, 8 + j, 8 + j, 12 + j, 12 + j}
			if g.tight {
				g.c[name] = g.table(name, values, 8)
			} else {
				g.register(name, 8, values...)
			}
		}
	} else {
		g.bytes8("low4", 15)
		g.bytes16("halves4", twoHalves(16, 0, 4)...)
	}
	var place, shift, mask, words []int
	for j := range 16 {
		p := 4 + 4*(j>>3) // of scales, of minimums
		if j&7 < 4 {
			place = append(place, p+j&3, none, none, none)
			shift, mask = append(shift, 0), append(mask, 63)
		} else {
			place = append(place, 12+j&3, p+j&3, none, none)
			shift, mask = append(shift, 4*(j>>3)), append(mask, 15)
		}
		words = append(words, 2*(j>>3), 2*(j>>3)+1)
	}
	g.bytes8("placeK4", place...)
	g.bytes32("shiftK4", shift...)
	g.bytes32("maskK4", mask...)
	g.bytes8("wordsK4", words...)
}

// scalesK4 decodes the head of q4_k and q5_k: 8 scales and 8 minimums at once.
func scalesK4(g *integerGen) (s, m reg.VecVirtual) {
	h, y, d := g.vec(), g.vec(), g.vec()
	s = g.vec()
	VBROADCASTI32X4(at(g.w, 0), h)
	VPSHUFB(g.c["placeK4"], h, s)
	VPSRLD(Imm(10), s, y)
	VPSRLVD(g.c["shiftK4"], s, s)
	pick(s, y, g.c["maskK4"])
	VCVTDQ2PS(s, s)
	VPSHUFB(lower(g.c["wordsK4"]), h.AsY(), d.AsY())
	VCVTPH2PS(d.AsY(), d)
	VMULPS(d, s, s)
	return s, s
}

// lower is the first 32 bytes of a constant.
func lower(c Op) Op {
	if r, ok := c.(reg.VecVirtual); ok {
		return r.AsY()
	}
	return c
}

// shifted copies 32 bytes into both halves, shifts and masks them.
func (g *integerGen) shifted(offset int, shift, mask string) reg.VecVirtual {
	c := g.vec()
	VBROADCASTI64X4(at(g.w, offset), c)
	VPSRLVW(g.c[shift], c, c)
	VPANDD(g.c[mask], c, c)
	return c
}

func codesQ4K(g *integerGen, i int) reg.VecVirtual {
	return g.shifted(16+32*i, "halves4", "low4")
}

// eightsQ4K takes eight bytes of each 32, as both of the groups that share them, and
// leaves codes of the second in the upper half: 16 times what they stand for, with d a
// sixteenth in the record. Sums are below 2^24 still, and so exact.
func eightsQ4K(g *integerGen, i int) reg.VecVirtual {
	first := g.gathered("first", func(c reg.VecVirtual) { VMOVDQU64(at(g.w, 16), c) })
	second := g.gathered("second", func(c reg.VecVirtual) { VMOVDQU64(at(g.w, 80), c) })
	c := g.vec()
	if place := label("eights32_%d", i); g.tight {
		VMOVDQU64(g.c[place], c)
		VPERMI2Q(second, first, c)
	} else {
		VMOVDQA64(first, c)
		VPERMT2Q(second, g.keep[place], c)
	}
	VPANDD(g.c["nibbles8"], c, c)
	return c
}

func setupQ5K(g *integerGen) {
	setupQ4K(g)
	g.bytes8("bit4", 16)
	for i := range 4 {
		g.rotation(label("rotate4_%d", i), 4-2*i, 4-2*i-1)
	}
}

// rotation is a register of 64-bit rotations to the left, one for each half;
// negative is to the right. A bit of a byte lands in the same byte.
func (g *integerGen) rotation(name string, a, b int) {
	g.bytes64(name, twoHalves(4, a&63, b&63)...)
}

// once loads 32 bytes into both halves, the first time it is asked in a run.
func (g *integerGen) once(offset int) reg.VecVirtual {
	name := label("once%d", offset)
	if r, ok := g.cache[name]; ok {
		return r
	}
	r := g.vec()
	VBROADCASTI64X4(at(g.w, offset), r)
	g.cache[name] = r
	return r
}

// rotated adds bits of the bytes at an offset to c.
func (g *integerGen) rotated(c reg.VecVirtual, offset int, rotation, mask string) {
	x := g.vec()
	VPROLVQ(g.c[rotation], g.once(offset), x)
	or(c, x, g.c[mask])
}

func codesQ5K(g *integerGen, i int) reg.VecVirtual {
	c := g.shifted(48+32*i, "halves4", "low4")
	g.rotated(c, 16, label("rotate4_%d", i), "bit4")
	return c
}

func setupQ6K(g *integerGen) {
	g.bytes8("low4", 15)
	g.bytes8("bits45", 48)
	g.rotation("rotate6_0", 4, 2)
	g.rotation("rotate6_1", 0, -2)
	if g.order {
		g.register("pairs6_0", 4, 0, 8, 1, 9, 4, 12, 5, 13, 0, 8, 1, 9, 4, 12, 5, 13)
		g.register("pairs6_1", 4, 2, 10, 3, 11, 6, 14, 7, 15, 2, 10, 3, 11, 6, 14, 7, 15)
	}
}

// sixteensQ6K interleaves words of both halves' lower bits. Their bytes are codes of
// groups 0 to 3 and 8 to 11, and in the upper half of groups 4 to 7 and 12 to 15.
func sixteensQ6K(g *integerGen, i int) reg.VecVirtual {
	part := func(j int) reg.VecVirtual { // loaded once: most lie in two lines
		return g.gathered(label("part%d", j), func(c reg.VecVirtual) { VMOVDQU64(at(g.w, 64*j), c) })
	}
	low := g.gathered(label("low%d", i/2), func(c reg.VecVirtual) {
		if i < 2 {
			VPUNPCKLDQ(part(1), part(0), c)
		} else {
			VPUNPCKHDQ(part(1), part(0), c)
		}
	})
	high := g.gathered(label("high%d", i/2), func(c reg.VecVirtual) {
		VPERMD(part(2), g.keep[label("pairs6_%d", i/2)], c)
	})
	c, x := g.vec(), g.vec()
	if i%2 == 0 {
		VPANDD(g.c["low4"], low, c)
	} else {
		VPSRLW(Imm(4), low, c)
		VPANDD(g.c["low4"], c, c)
	}
	VPROLVQ(g.c[label("rotate6_%d", i%2)], high, x)
	or(c, x, g.c["bits45"])
	return c
}

func scalesQ6K(g *integerGen) (s, m reg.VecVirtual) {
	s = g.vec()
	VPMOVSXBD(at(g.w, 192), s)
	VCVTDQ2PS(s, s)
	g.timesWord(s, 208)
	return s, s
}

func codesQ6K(g *integerGen, i int) reg.VecVirtual {
	c := g.vec()
	VMOVDQU64(at(g.w, 64*(i/2)), c)
	if i%2 == 1 {
		VPSRLW(Imm(4), c, c)
	}
	VPANDD(g.c["low4"], c, c)
	g.rotated(c, 128+32*(i/2), label("rotate6_%d", i%2), "bits45")
	return c
}

// pairSetup: codes of 2 bits.
func (g *integerGen) pairSetup() {
	g.bytes8("low2", 3)
	g.bytes16("pair0", twoHalves(16, 0, 2)...)
	g.bytes16("pair1", twoHalves(16, 4, 6)...)
}

func setupQ3K(g *integerGen) {
	g.pairSetup()
	g.bytes8("bit2", 4)
	for i := range 4 {
		g.rotation(label("rotate2_%d", i), 2-2*i, 1-2*i)
	}
	var place, low, high []int
	for j := range 16 { // the scales are bytes 2 to 13 of the 16 that are loaded
		place = append(place, 2+j&7, 10+j&3, none, none)
		low, high = append(low, 4*(j>>3)), append(high, 8+2*(j>>2)-4)
	}
	g.bytes8("placeQ3", place...)
	g.bytes32("lowQ3", low...)
	g.bytes32("highQ3", high...)
	g.six()
}

func scalesQ3K(g *integerGen) (s, m reg.VecVirtual) {
	s = g.vec()
	VBROADCASTI32X4(at(g.w, 94), s)
	VPSHUFB(g.c["placeQ3"], s, s)
	g.sixBits(s, g.c["lowQ3"], g.c["highQ3"])
	g.timesWord(s, 108)
	return s, s
}

func codesQ3K(g *integerGen, i int) reg.VecVirtual {
	c := g.shifted(32+32*(i/2), label("pair%d", i%2), "low2")
	g.rotated(c, 0, label("rotate2_%d", i), "bit2")
	return c
}

func setupQ2K(g *integerGen) {
	g.pairSetup()
	g.bytes32("mask4", 15)
}

func scalesQ2K(g *integerGen) (s, m reg.VecVirtual) {
	s, m = g.vec(), g.vec()
	VPMOVZXBD(at(g.w, 0), s)
	VPSRLD(Imm(4), s, m)
	VPANDD(g.c["mask4"], s, s)
	VCVTDQ2PS(s, s)
	VCVTDQ2PS(m, m)
	g.timesWord(s, 80)
	g.timesWord(m, 82)
	return s, m
}

func codesQ2K(g *integerGen, i int) reg.VecVirtual {
	return g.shifted(16+32*(i/2), label("pair%d", i%2), "low2")
}
