package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

func bitsOf(f float32) int { return int(math.Float32bits(f)) }

// eighths repeats each of four bytes eight times.
func (u *unpacker) eighths() Mem {
	return u.fill("eighths", 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3)
}

// points8 joins the points of 8 values of group g, whose indices are bytes or
// words in memory.
func (u *unpacker) points8(index func(i int) Mem, wide bool, g int) reg.VecVirtual {
	var half [2]reg.VecVirtual
	for h := range half {
		half[h] = u.vec()
		for j := range 2 {
			p := Mem{Base: u.grid, Index: u.index(index(4*g+2*h+j), wide), Scale: 8}
			if j == 0 {
				VMOVQ(p, half[h].AsX())
			} else {
				VPINSRQ(Imm(1), p, half[h].AsX(), half[h].AsX())
			}
		}
	}
	VINSERTI128(Imm(1), half[1].AsX(), half[0], half[0])
	return half[0]
}

// points4 is points8 for points of 4 values.
func (u *unpacker) points4(index func(i int) Mem, wide bool, g int) reg.VecVirtual {
	var half [2]reg.VecVirtual
	for h := range half {
		half[h] = u.vec()
		for j := range 4 {
			p := Mem{Base: u.grid, Index: u.index(index(8*g+4*h+j), wide), Scale: 4}
			if j == 0 {
				VMOVD(p, half[h].AsX())
			} else {
				VPINSRD(Imm(uint64(j)), p, half[h].AsX(), half[h].AsX())
			}
		}
	}
	VINSERTI128(Imm(1), half[1].AsX(), half[0], half[0])
	return half[0]
}

func (u *unpacker) index(m Mem, wide bool) reg.GPVirtual {
	i := GP64()
	if wide {
		MOVWQZX(m, i)
	} else {
		MOVBQZX(m, i)
	}
	return i
}

// bytesAt and wordsAt address indices one by one.
func bytesAt(m Mem) func(i int) Mem { return func(i int) Mem { return m.Offset(i) } }
func wordsAt(m Mem) func(i int) Mem { return func(i int) Mem { return m.Offset(2 * i) } }

// putSigned stores magnitudes as codes, negative where the group's 32 sign bits say
// so.
func (u *unpacker) putSigned(g int, c reg.VecVirtual, signs Mem) {
	m, bits := u.vec(), u.fill("bits", 1, 1, 2, 4, 8, 16, 32, 64, 128)
	VPBROADCASTD(signs.Offset(4*g), m)
	VPSHUFB(u.eighths(), m, m)
	VPAND(bits, m, m)
	VPCMPEQB(bits, m, m)
	VPXOR(m, c, c)
	VPSUBB(m, c, c)
	VPXOR(u.fill("sign", 1, 128), c, c)
	u.put(g, c)
}

// parity sets the top bit of every byte of 7 bits so that their number is even; size
// is the bits of a lane, whose other bytes may hold anything.
func (u *unpacker) parity(x reg.VecVirtual, words bool) {
	right, left := VPSRLD, VPSLLD
	if words {
		right, left = VPSRLW, VPSLLW
	}
	p, q := u.vec(), u.vec()
	right(Imm(4), x, p)
	VPXOR(x, p, p)
	right(Imm(2), p, q)
	VPXOR(q, p, p)
	right(Imm(1), p, q)
	VPXOR(q, p, p)
	VPAND(u.fill("low1", 1, 1), p, p)
	left(Imm(7), p, p)
	VPOR(p, x, x)
}

// evenSigns spreads four times 7 bits of every word over its bytes and completes
// them, as the signs of 256 weights.
func (u *unpacker) evenSigns(words reg.VecVirtual) {
	all := u.vec()
	VPAND(u.fill("seven0", 4, 0x7f), words, all)
	for i := range 3 {
		x := u.vec()
		VPSLLD(Imm(uint64(i+1)), words, x)
		VPAND(u.fill(label("seven%d", i+1), 4, 0x7f00<<(8*i)), x, x)
		VPOR(x, all, all)
	}
	u.parity(all, false)
	VMOVDQU(all, u.signs)
}

// nibbles16 unpacks 8 bytes to 16 numbers, the low nibbles first, in two registers;
// nibbles8 4 bytes to 8.
func (u *unpacker) nibbles16(offset int) [2]reg.VecVirtual {
	b := u.nibbleBytes(at(u.w, offset), true)
	lo, hi := u.vec(), u.vec()
	VPMOVZXBD(b, lo)
	VPSRLDQ(Imm(8), b, b)
	VPMOVZXBD(b, hi)
	return [2]reg.VecVirtual{lo, hi}
}

func (u *unpacker) nibbles8(offset int) reg.VecVirtual {
	x := u.vec()
	VPMOVZXBD(u.nibbleBytes(at(u.w, offset), false), x)
	return x
}

func (u *unpacker) nibbleBytes(m Mem, eight bool) reg.VecVirtual {
	lo, hi := XMM(), XMM()
	if eight {
		VMOVQ(m, lo)
	} else {
		VMOVD(m, lo)
	}
	VPSRLW(Imm(4), lo, hi)
	mask := u.fill("mask15", 1, 15)
	VPAND(mask, lo, lo)
	VPAND(mask, hi, hi)
	VPUNPCKLBW(hi, lo, lo)
	return lo
}

func unpackIQ2XXS(u *unpacker) {
	a, words := u.vec(), u.vec()
	VMOVDQU(at(u.w, 2), a)
	VSHUFPS(Imm(0xdd), at(u.w, 34), a, words)
	VPERMQ(Imm(0xd8), words, words)
	u.evenSigns(words)
	VPSRLD(Imm(28), words, words)
	u.putScales(0, u.scaled(words, u.half(0), 0.5, 0.25))
	for g := range 8 {
		first := at(u.w, 2+4*g) // each four indices stand before a word
		u.putSigned(g, u.points8(bytesAt(first), false, g), u.signs)
	}
}

func (u *unpacker) scalesIQ2(offset int) {
	for h, x := range u.nibbles16(offset) {
		u.putScales(h, u.scaled(x, u.half(0), 0.5, 0.25))
	}
}

func unpackIQ2XS(u *unpacker) {
	u.scalesIQ2(66)
	var signs [2]reg.VecVirtual
	for h := range signs {
		x, i := u.vec(), u.vec()
		VMOVDQU(at(u.w, 2+32*h), x)
		VPAND(u.fill("low9", 2, 511), x, i)
		VMOVDQU(i, u.indices.Offset(32*h))
		VPSRLW(Imm(9), x, x)
		u.parity(x, true)
		signs[h] = x
	}
	VPACKUSWB(signs[1], signs[0], signs[0])
	VPERMQ(Imm(0xd8), signs[0], signs[0])
	VMOVDQU(signs[0], u.signs)
	for g := range 8 {
		u.putSigned(g, u.points8(wordsAt(u.indices), true, g), u.signs)
	}
}

// wideIndices widens 16 bytes of indices and adds bits to them: of what load
// leaves, spread over words by place, multiplied, masked and shifted right.
func (u *unpacker) wideIndices(h, low int, load func(x reg.VecVirtual), place, times []int, mask, right int) reg.VecVirtual {
	i, x := u.vec(), u.vec()
	VPMOVZXBW(at(u.w, low+16*h), i)
	load(x)
	name := label("%d_%d", mask, times[0])
	VPSHUFB(u.fill("place"+name, 1, place...), x, x)
	VPMULLW(u.fill("times"+name, 2, times...), x, x)
	bits := u.vec()
	VPAND(u.fill(label("mask16_%d", mask), 2, mask), x, bits)
	if right > 0 {
		VPSRLW(Imm(uint64(right)), bits, bits)
	}
	VPOR(bits, i, i)
	VMOVDQU(i, u.indices.Offset(32*h))
	return x
}

// eachWord lists, for 16 words, a byte or two of 16 and nothing else.
func eachWord(low func(j int) int, high func(j int) int) []int {
	var place []int
	for j := range 16 {
		place = append(place, low(j), high(j))
	}
	return place
}

func nothing(int) int { return none }

func unpackIQ2S(u *unpacker) {
	u.scalesIQ2(74)
	for h := range 2 {
		u.wideIndices(h, 2, func(x reg.VecVirtual) { VPBROADCASTD(at(u.w, 66+4*h), x) },
			eachWord(func(j int) int { return j / 4 }, nothing), []int{256, 64, 16, 4}, 0x300, 0)
	}
	for g := range 8 {
		u.putSigned(g, u.points8(wordsAt(u.indices), true, g), at(u.w, 34))
	}
}

func unpackIQ3XXS(u *unpacker) {
	words := u.vec()
	VMOVDQU(at(u.w, 66), words)
	u.evenSigns(words)
	VPSRLD(Imm(28), words, words)
	u.putScales(0, u.scaled(words, u.half(0), 0.5, 0.5))
	for g := range 8 {
		u.putSigned(g, u.points4(bytesAt(at(u.w, 2)), false, g), u.signs)
	}
}

func unpackIQ3S(u *unpacker) {
	s := u.nibbles8(106)
	u.odd(s)
	u.putScales(0, u.scaled(s, u.half(0), 0, 1))
	for h := range 4 {
		u.wideIndices(h, 2, func(x reg.VecVirtual) { VPBROADCASTW(at(u.w, 66+2*h), x) },
			eachWord(func(j int) int { return j / 8 }, nothing), []int{256, 128, 64, 32, 16, 8, 4, 2}, 0x100, 0)
	}
	for g := range 8 {
		u.putSigned(g, u.points4(wordsAt(u.indices), true, g), at(u.w, 74))
	}
}

func unpackIQ1S(u *unpacker) {
	words, down := u.vec(), u.vec()
	VPMOVZXWD(at(u.w, 34), words)
	VPSLLD(Imm(16), words, down)
	VPSRAD(Imm(31), down, down)
	VPOR(u.fill("low1", 1, 1), down, down)
	VMOVDQU(down, u.signs)
	VPSRLD(Imm(12), words, words)
	VPAND(u.fill("low7", 4, 7), words, words)
	u.odd(words)
	u.putScales(0, u.scaled(words, u.half(0), 0, 0.125))
	for h := range 2 {
		u.wideIndices(h, 2, func(x reg.VecVirtual) { VPBROADCASTQ(at(u.w, 34+8*h), x) },
			eachWord(func(j int) int { return j / 4 * 2 }, func(j int) int { return j/4*2 + 1 }), []int{512, 64, 8, 1}, 0xe00, 1)
	}
	for g := range 8 {
		c, shift := u.points8(wordsAt(u.indices), true, g), u.vec()
		VPBROADCASTD(u.signs.Offset(4*g), shift)
		VPADDB(shift, c, c)
		u.put(g, c)
	}
}

func unpackIQ1M(u *unpacker) {
	u.scalesIQ1M()
	var shifts [2]reg.VecVirtual
	for h := range shifts {
		x := u.wideIndices(h, 0, func(x reg.VecVirtual) { VPBROADCASTQ(at(u.w, 32+8*h), x) },
			eachWord(func(j int) int { return j / 2 }, nothing), []int{256, 16}, 0x700, 0)
		down := u.fill("bit11", 2, 0x800)
		VPAND(down, x, x)
		VPCMPEQW(down, x, x)
		VPOR(u.fill("one16", 2, 1), x, x)
		shifts[h] = x
	}
	VPACKSSWB(shifts[1], shifts[0], shifts[0])
	VPERMQ(Imm(0xd8), shifts[0], shifts[0])
	VMOVDQU(shifts[0], u.signs)
	for g := range 8 {
		c, shift := u.points8(wordsAt(u.indices), true, g), u.vec()
		VPBROADCASTD(u.signs.Offset(4*g), shift)
		VPSHUFB(u.eighths(), shift, shift)
		VPADDB(shift, c, c)
		u.put(g, c)
	}
}

// scalesIQ1M unpacks four words: four 3-bit scales each and a nibble of d on top.
func (u *unpacker) scalesIQ1M() {
	words, half := GP64(), GP64()
	MOVQ(at(u.w, 48), words)
	SHRQ(Imm(12), words)
	MOVQ(words, half)
	ANDQ(Imm(15), half)
	for i := range 3 {
		x := GP64()
		SHRQ(Imm(12), words)
		MOVQ(words, x)
		ANDQ(U32(0xf0<<(4*i)), x)
		ORQ(x, half)
	}
	d := u.vec()
	VMOVD(half.As32(), d.AsX())
	VPBROADCASTW(d.AsX(), d.AsX())
	VCVTPH2PS(d.AsX(), d)
	for h := range 2 {
		x := u.vec()
		VPBROADCASTD(at(u.w, 48+4*h), x)
		VPSHUFB(u.fill("wordsIQ1M", 1, 0, 1, none, none, 0, 1, none, none, 0, 1, none, none, 0, 1, none, none,
			2, 3, none, none, 2, 3, none, none, 2, 3, none, none, 2, 3, none, none), x, x)
		VPSRLVD(u.fill("threes", 4, 0, 3, 6, 9), x, x)
		VPAND(u.fill("low7", 4, 7), x, x)
		u.odd(x)
		u.putScales(h, u.scaled(x, d, 0, 0.125))
	}
}
