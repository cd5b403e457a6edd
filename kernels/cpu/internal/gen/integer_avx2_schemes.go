package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// narrows lists the schemes of AVX2, by the name of their files.
func narrows() map[string]*narrow {
	return map[string]*narrow{
		"q40":   {zero: 8, scales: narrowWords(18), codes: narrowNibbles(18, 2, nil)},
		"q41":   {scales: narrowMins(20), codes: narrowNibbles(20, 4, nil)},
		"q50":   {zero: 16, scales: narrowWords(22), codes: narrowNibbles(22, 6, narrowFifth(22, 2))},
		"q51":   {scales: narrowMins(24), codes: narrowNibbles(24, 8, narrowFifth(24, 4))},
		"q80":   {signed: true, scales: narrowScalesQ80, codes: narrowQ80},
		"iq4nl": {signed: true, scales: narrowWords(18), codes: narrowNibbles(18, 2, narrowLevels)},
		"iq4xs": {signed: true, scales: narrowScalesIQ4XS, codes: narrowNibbles(16, 8, narrowLevels)},
		"q4k":   {scales: narrowScalesK4, codes: narrowQ4K},
		"q5k":   {scales: narrowScalesK4, codes: narrowQ5K},
		"q6k":   {zero: 32, scales: narrowScalesQ6K, codes: narrowQ6K},
		"q3k":   {zero: 4, scales: narrowScalesQ3K, codes: narrowQ3K},
		"q2k":   {scales: narrowScalesQ2K, codes: narrowQ2K},
		"mxfp4": {signed: true, scales: narrowScalesMXFP4, codes: narrowNibbles(17, 1, narrowLevelsFP4)},
		"nvfp4": {signed: true, scales: narrowScalesNVFP4, codes: narrowNVFP4},
		"q10":   {zero: 1, scales: narrowScalesQ10, codes: narrowQ10},
		"q20":   {zero: 1, scales: narrowScalesQ20, codes: narrowQ20},
	}
}

func floatBits(n int) int { return int(math.Float32bits(float32(n))) }

// shiftWords moves bits of bytes to the left, or right where by is negative;
// what crosses into a neighbour is masked off by the caller.
func shiftWords(by int, c reg.VecVirtual) {
	switch {
	case by > 0:
		VPSLLW(Imm(uint64(by)), c, c)
	case by < 0:
		VPSRLW(Imm(uint64(-by)), c, c)
	}
}

func (g *narrowGen) mask(c reg.VecVirtual, bits int) {
	VPAND(g.fill(label("mask%d", bits), 1, bits), c, c)
}

// field loads 32 bytes, shifts and masks them.
func (g *narrowGen) field(offset, by, bits int) reg.VecVirtual {
	c := g.vec()
	VMOVDQU(at(g.w, offset), c)
	shiftWords(by, c)
	g.mask(c, bits)
	return c
}

func narrowNibbles(size, first int, then func(g *narrowGen, i int, c reg.VecVirtual)) func(g *narrowGen, i int) reg.VecVirtual {
	return func(g *narrowGen, i int) reg.VecVirtual {
		c := g.vec()
		VBROADCASTI128(at(g.w, i*size+first), c)
		VPSRLVQ(g.fill("lowHigh", 8, 0, 0, 4, 4), c, c)
		g.mask(c, 15)
		if then != nil {
			then(g, i, c)
		}
		return c
	}
}

func narrowLevels(g *narrowGen, _ int, c reg.VecVirtual) {
	levels := g.vec()
	VMOVDQU(g.fill("levels", 1, -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113), levels)
	VPSHUFB(c, levels, c)
}

// narrowFifth adds 16 where a bit of the word before the codes is set.
func narrowFifth(size, first int) func(g *narrowGen, i int, c reg.VecVirtual) {
	return func(g *narrowGen, i int, c reg.VecVirtual) {
		x := g.vec()
		bits := g.fill("bits", 1, 1, 2, 4, 8, 16, 32, 64, 128)
		VPBROADCASTD(at(g.w, i*size+first), x)
		VPSHUFB(g.eighths(), x, x)
		VPAND(bits, x, x)
		VPCMPEQB(bits, x, x)
		g.mask(x, 16)
		VPOR(x, c, c)
	}
}

// eighths repeats each byte of a word eight times.
func (g *narrowGen) eighths() Mem {
	return g.fill("eighths", 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3)
}

func narrowQ80(g *narrowGen, i int) reg.VecVirtual {
	c := g.vec()
	VMOVDQU(at(g.w, 34*i+2), c)
	return c
}

func narrowQ4K(g *narrowGen, i int) reg.VecVirtual { return g.field(16+32*(i/2), -4*(i%2), 15) }

func narrowQ5K(g *narrowGen, i int) reg.VecVirtual {
	c := g.field(48+32*(i/2), -4*(i%2), 15)
	VPOR(g.field(16, 4-i, 16), c, c)
	return c
}

func narrowQ6K(g *narrowGen, i int) reg.VecVirtual {
	h, s := i/4, i%4
	c := g.field(64*h+32*(s&1), -4*(s/2), 15)
	VPOR(g.field(128+32*h, 4-2*s, 48), c, c)
	return c
}

func narrowQ3K(g *narrowGen, i int) reg.VecVirtual {
	c := g.field(32+32*(i/4), -2*(i%4), 3)
	VPOR(g.field(0, 2-i, 4), c, c)
	return c
}

func narrowQ2K(g *narrowGen, i int) reg.VecVirtual { return g.field(16+32*(i/4), -2*(i%4), 3) }

// words8 gathers an f16 of each of eight blocks.
func (g *narrowGen) words8(size, first int) reg.VecVirtual {
	var half [2]reg.VecVirtual
	for h := range half {
		half[h] = g.vec()
		x, r := half[h].AsX(), GP32()
		MOVWLZX(at(g.w, 4*h*size+first), r)
		VMOVD(r, x)
		for j := 1; j < 4; j++ {
			VPINSRW(Imm(uint64(j)), at(g.w, (4*h+j)*size+first), x, x)
		}
	}
	s := g.vec()
	VPUNPCKLQDQ(half[1].AsX(), half[0].AsX(), half[0].AsX())
	VCVTPH2PS(half[0].AsX(), s)
	return s
}

func narrowWords(size int) func(g *narrowGen) (s, m []reg.VecVirtual) {
	return func(g *narrowGen) (s, m []reg.VecVirtual) {
		return []reg.VecVirtual{g.words8(size, 0)}, nil
	}
}

// narrowScalesQ80 repeats each scale for both halves of its 32 weights.
func narrowScalesQ80(g *narrowGen) (s, m []reg.VecVirtual) {
	x := g.words8(34, 0)
	for h := range 2 {
		y := g.vec()
		VMOVDQU(g.fill(label("twice%d", h), 4, 4*h, 4*h, 4*h+1, 4*h+1, 4*h+2, 4*h+2, 4*h+3, 4*h+3), y)
		VPERMPS(x, y, y)
		s = append(s, y)
	}
	return s, nil
}

func narrowMins(size int) func(g *narrowGen) (s, m []reg.VecVirtual) {
	return func(g *narrowGen) ([]reg.VecVirtual, []reg.VecVirtual) {
		s, m := g.words8(size, 0), g.words8(size, 2)
		VXORPS(g.fill("negative", 4, -1<<31), m, m)
		return []reg.VecVirtual{s}, []reg.VecVirtual{m}
	}
}

// half fills a register with the f16 at an offset.
func (g *narrowGen) half(offset int) reg.VecVirtual {
	d := g.vec()
	VPBROADCASTW(at(g.w, offset), d.AsX())
	VCVTPH2PS(d.AsX(), d)
	return d
}

// narrowScalesK4 decodes the head of q4_k and q5_k.
func narrowScalesK4(g *narrowGen) (s, m []reg.VecVirtual) {
	var out [2]reg.VecVirtual
	for h := range out {
		var place, shift, mask []int
		for j := range 8 {
			p := 4 + 4*h
			if j < 4 {
				place = append(place, p+j, none, none, none)
				shift, mask = append(shift, 0), append(mask, 63)
			} else {
				place = append(place, 12+j&3, p+j&3, none, none)
				shift, mask = append(shift, 4*h), append(mask, 15)
			}
		}
		x, y := g.vec(), g.vec()
		VBROADCASTI128(at(g.w, 0), x)
		VPSHUFB(g.fill(label("placeK4_%d", h), 1, place...), x, x)
		VPSRLD(Imm(10), x, y)
		VPSRLVD(g.fill(label("shiftK4_%d", h), 4, shift...), x, x)
		keep := g.vec()
		VMOVDQU(g.fill("maskK4", 4, mask...), keep)
		VPAND(keep, x, x)
		VPANDN(y, keep, y)
		VPOR(y, x, x)
		VCVTDQ2PS(x, x)
		VMULPS(g.half(2*h), x, x)
		out[h] = x
	}
	return out[:1], out[1:]
}

// sixBits joins the low nibble of t>>low with the pair that t>>high has above
// it, takes 32 off, converts and multiplies by d.
func (g *narrowGen) sixBits(t, d reg.VecVirtual, low, high Mem) {
	y := g.vec()
	VPSRLVD(high, t, y)
	VPSRLVD(low, t, t)
	VPAND(g.fill("low15", 4, 15), t, t)
	VPAND(g.fill("high48", 4, 48), y, y)
	VPOR(y, t, t)
	VPSUBD(g.fill("less32", 4, 32), t, t)
	VCVTDQ2PS(t, t)
	VMULPS(d, t, t)
}

func narrowScalesIQ4XS(g *narrowGen) (s, m []reg.VecVirtual) {
	var place, low, high []int
	for j := range 8 {
		place = append(place, 4+j/2, 2, 3, none)
		low, high = append(low, 4*(j&1)), append(high, 8+2*j-4)
	}
	t := g.vec()
	VPBROADCASTQ(at(g.w, 0), t)
	VPSHUFB(g.fill("placeXS", 1, place...), t, t)
	g.sixBits(t, g.half(0), g.fill("lowXS", 4, low...), g.fill("highXS", 4, high...))
	return []reg.VecVirtual{t}, nil
}

func narrowScalesQ6K(g *narrowGen) (s, m []reg.VecVirtual) {
	d := g.half(208)
	for h := range 2 {
		x := g.vec()
		VPMOVSXBD(at(g.w, 192+8*h), x)
		VCVTDQ2PS(x, x)
		VMULPS(d, x, x)
		s = append(s, x)
	}
	return s, nil
}

func narrowScalesQ3K(g *narrowGen) (s, m []reg.VecVirtual) {
	d := g.half(108)
	for h := range 2 {
		var place, low, high []int
		for j := 8 * h; j < 8*h+8; j++ {
			place = append(place, 2+j&7, 10+j&3, none, none)
			low, high = append(low, 4*(j>>3)), append(high, 8+2*(j>>2)-4)
		}
		t := g.vec()
		VBROADCASTI128(at(g.w, 94), t)
		VPSHUFB(g.fill("placeQ3", 1, place...), t, t)
		g.sixBits(t, d, g.fill(label("lowQ3_%d", h), 4, low...), g.fill(label("highQ3_%d", h), 4, high...))
		s = append(s, t)
	}
	return s, nil
}

func narrowScalesQ2K(g *narrowGen) (s, m []reg.VecVirtual) {
	d, dmin := g.half(80), g.half(82)
	for h := range 2 {
		x, y := g.vec(), g.vec()
		VPMOVZXBD(at(g.w, 8*h), x)
		VPSRLD(Imm(4), x, y)
		VPAND(g.fill("low15", 4, 15), x, x)
		VCVTDQ2PS(x, x)
		VCVTDQ2PS(y, y)
		VMULPS(d, x, x)
		VMULPS(dmin, y, y)
		s, m = append(s, x), append(m, y)
	}
	return s, m
}
