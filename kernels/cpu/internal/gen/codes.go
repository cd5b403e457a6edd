package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// codesFile writes what the schemes of several parts need: codes of any width as
// bytes, and weights that are floats of 4 and 8 bits. Both levels use it, but for
// one that 16 levels in a register make faster.
func codesFile(v isa) {
	dotBlocks(v)
	if v.wide {
		dotLevels(v)
		return
	}
	spreadNibbles(v)
	spreadBits(v)
	decodeF8E4M3(v)
	decodeLevels(v)
	dotF8E4M3(v)
	dotLevels(v)
	spreadBytes(v)
	spreadScales(v)
}

// spreadNibbles widens codes of 4 bits.
func spreadNibbles(v isa) {
	v.text("spreadNibbles", "(dst []byte, src []byte, runs int)", "",
		"	for i := range runs {",
		"		the 256 bytes dst[384*i:] = the nibbles of the 128 bytes src[128*i:], low ones first",
		"	}")
	g := &narrowGen{isa: v, narrow: &narrow{}, w: ptr("src")}
	dst, runs := ptr("dst"), Load(Param("runs"), GP64()).(reg.GPVirtual)
	loop("run", runs, 1, func() {
		ask(at(g.w, 0))
		ask(at(g.w, 64))
		for i := range 8 {
			lo, hi := v.vec(), v.vec()
			VPMOVZXBW(at(g.w, 16*i), lo)
			VPSLLW(Imm(4), lo, hi)
			VPOR(hi, lo, lo)
			g.mask(lo, 15)
			VMOVDQU(lo, at(dst, 32*i))
		}
		bump(g.w, 128)
		bump(dst, unpackedBytes)
	})
	VZEROUPPER()
	RET()
}

// spreadBits widens codes of any width below 8, eight at a time, with PDEP.
func spreadBits(v isa) {
	v.text("spreadBits", "(dst []byte, src []byte, runs int, bits int)", "",
		"	for i := range runs {",
		"		the 256 bytes dst[384*i:] = the codes of src[32*bits*i:], low bits first",
		"	}",
		"",
		"with 1 <= bits <= 8; up to 7 bytes behind the last run are read.")
	dst, src := ptr("dst"), ptr("src")
	runs, bits := Load(Param("runs"), GP64()).(reg.GPVirtual), Load(Param("bits"), GP64()).(reg.GPVirtual)
	mask, shift := GP64(), GP64()
	MOVQ(U32(8), shift)
	SUBQ(bits, shift)
	one := GP64()
	MOVQ(U32(0xff), one)
	SHRXQ(shift, one, mask)
	MOVQ(U64(0x0101010101010101), one)
	IMULQ(one, mask)
	rows := newStride(bits)
	loop("run", runs, 1, func() {
		ask(at(src, 0))
		ask(at(src, 64))
		for i := range 8 {
			for j := range 4 {
				x := GP64()
				MOVQ(rows.row(src, j, 0), x)
				PDEPQ(mask, x, x)
				MOVQ(x, at(dst, 32*i+8*j))
			}
			LEAQ(Mem{Base: src, Index: bits, Scale: 4}, src)
		}
		bump(dst, unpackedBytes)
	})
	RET()
}

// decodeF8E4M3 shifts numbers into half precision, where they are 256 times too
// small; E4M3 has no infinity, and two codes that are not a number.
func decodeF8E4M3(v isa) {
	v.text("decodeF8E4M3", "(dst []float32, src []byte, scale float32)", "",
		"	for i := range dst {",
		"		dst[i] = the E4M3 number src[i] times scale",
		"	}",
		"",
		"for a multiple of 16 numbers.")
	f := newFloats8(v, "src")
	dst, left := ptr("dst"), length("dst")
	scale, times := v.vec(), v.broadcast("f256", 256)
	VBROADCASTSS(mustAddr("scale"), scale)
	loop("sixteen", left, 16, func() {
		ask(at(f.w, 0))
		lo, hi := f.halves(at(f.w, 0))
		for i, h := range []reg.VecVirtual{lo, hi} {
			VMULPS(times, h, h)
			VMULPS(scale, h, h)
			VMOVUPS(h, at(dst, 32*i))
		}
		bump(f.w, 16)
		bump(dst, 64)
	})
	VZEROUPPER()
	RET()
}

// decodeLevels looks codes of 4 bits up, eight at a time, in two registers.
func decodeLevels(v isa) {
	v.text("decodeLevels", "(dst []float32, src []byte, levels *[16]float32, factors []float32, block int)", "",
		"	for i := range dst {",
		"		dst[i] = levels[the nibble i of src] * factors[i/block]",
		"	}",
		"",
		"high nibbles first, for a multiple of 8 numbers in whole blocks, and blocks of a",
		"multiple of 8.")
	g := &narrowGen{isa: v, narrow: &narrow{}, w: ptr("src")}
	dst, table := ptr("dst"), Load(Param("levels"), GP64()).(reg.GPVirtual)
	lower, upper, shifts := v.vec(), v.vec(), v.vec()
	VMOVUPS(at(table, 0), lower)
	VMOVUPS(at(table, 32), upper)
	VMOVDQU(g.fill("nibbleShifts", 4, 4, 0, 12, 8, 20, 16, 28, 24), shifts)
	factors, blocks := ptr("factors"), length("factors")
	loop("block", blocks, 1, func() {
		factor, left := v.vec(), Load(Param("block"), GP64()).(reg.GPVirtual)
		VBROADCASTSS(at(factors, 0), factor)
		ask(at(g.w, 0))
		loop("eight", left, 8, func() {
			i, a, b := v.vec(), v.vec(), v.vec()
			VPBROADCASTD(at(g.w, 0), i)
			VPSRLVD(shifts, i, i)
			VPERMPS(lower, i, a)
			VPERMPS(upper, i, b)
			VPSLLD(Imm(28), i, i)
			VBLENDVPS(i, b, a, a)
			VMULPS(factor, a, a)
			VMOVUPS(a, at(dst, 0))
			bump(g.w, 4)
			bump(dst, 32)
		})
		bump(factors, 4)
	})
	VZEROUPPER()
	RET()
}

// dotF8E4M3 is decodeF8E4M3 with a product in place of a store: sums of a block are
// scaled once, and all of them made right by 256 at the end.
func dotF8E4M3(v isa) {
	v.text("dotF8E4M3", "(x []float32, codes []byte, scales []float32, block int) float32", "",
		"	for i := range x {",
		"		sum += x[i] * the E4M3 number codes[i] * scales[i/block]",
		"	}",
		"	return sum",
		"",
		"for whole blocks of a multiple of 16 numbers.")
	f := newFloats8(v, "codes")
	total := v.vec()
	VXORPS(total, total, total)
	f.blocks("scales", 16, func(sums []reg.VecVirtual) {
		lo, hi := f.halves(at(f.w, 0))
		VFMADD231PS(at(f.x, 0), lo, sums[0])
		VFMADD231PS(at(f.x, 32), hi, sums[1])
		bump(f.w, 16)
		bump(f.x, 64)
	}, total)
	VMULPS(v.broadcast("f256", 256), total, total)
	f.giveBack(total)
}

// dotBlocks is dotF8E4M3 or dotLevels, to the same bits, of weights that have been
// decoded without their factors.
func dotBlocks(v isa) {
	v.text("dotBlocks", "(x []float32, w []float32, factors []float32, block int) float32", "",
		"	for i := range x {",
		"		sum += x[i] * w[i] * factors[i/block]",
		"	}",
		"	return sum",
		"",
		"for whole blocks of a multiple of 16 numbers.")
	f := &floats8{narrowGen: narrowGen{isa: v, narrow: &narrow{}, w: ptr("w")}}
	total := v.vec()
	v.zero(total)
	f.blocks("factors", 16, func(sums []reg.VecVirtual) {
		for h, sum := range sums[:16/v.lanes] {
			w := v.vec()
			VMOVUPS(at(f.w, 32*h), w)
			VFMADD231PS(at(f.x, 32*h), w, sum)
		}
		bump(f.w, 64)
		bump(f.x, 64)
	}, total)
	f.giveBack(total)
}

// floats8 reads floats of 8 bits.
type floats8 struct {
	narrowGen
	x              reg.GPVirtual
	low, sign, nan reg.VecVirtual
}

func newFloats8(v isa, codes string) *floats8 {
	f := &floats8{narrowGen: narrowGen{isa: v, narrow: &narrow{}, w: ptr(codes)}, low: v.vec(), sign: v.vec(), nan: v.vec()}
	VMOVDQU(f.fill("low7words", 2, 0x7f), f.low)
	VMOVDQU(f.fill("bit7words", 2, 0x80), f.sign)
	VMOVDQU(f.fill("nanWords", 2, 0x7e00), f.nan)
	return f
}

// halves widens 16 numbers, which come out 256 times too small.
func (f *floats8) halves(m Mem) (lo, hi reg.VecVirtual) {
	x, s, nan := f.vec(), f.vec(), f.vec()
	hi = f.vec()
	VPMOVZXBW(m, x)
	VPAND(f.sign, x, s)
	VPAND(f.low, x, x)
	VPCMPEQW(f.low, x, nan)
	VPAND(f.nan, nan, nan)
	VPSLLW(Imm(8), s, s)
	VPSLLW(Imm(7), x, x)
	VPOR(s, x, x)
	VPOR(nan, x, x)
	VEXTRACTI128(Imm(1), x, hi.AsX())
	VCVTPH2PS(x.AsX(), x)
	VCVTPH2PS(hi.AsX(), hi)
	return x, hi
}

// blocks sums up body's products of every block, times its factor, in total.
func (f *floats8) blocks(factors string, step int, body func(sums []reg.VecVirtual), total reg.VecVirtual) {
	f.x = ptr("x")
	p, n := ptr(factors), length(factors)
	loop("block", n, 1, func() {
		sums, left := f.vecs(2), Load(Param("block"), GP64()).(reg.GPVirtual)
		for _, s := range sums {
			f.isa.zero(s)
		}
		ask(at(f.w, 0))
		ask(at(f.w, 64))
		loop("numbers", left, step, func() { body(sums) })
		VADDPS(sums[1], sums[0], sums[0])
		factor := f.vec()
		VBROADCASTSS(at(p, 0), factor)
		VFMADD231PS(factor, sums[0], total)
		bump(p, 4)
	})
}

func (f *floats8) giveBack(total reg.VecVirtual) {
	f.sum(total)
	Store(total.AsX(), ReturnIndex(0))
	VZEROUPPER()
	RET()
}

// dotLevels is decodeLevels with a product in place of a store.
func dotLevels(v isa) {
	v.text("dotLevels", "(x []float32, codes []byte, levels *[16]float32, factors []float32, block int) float32", "",
		"	for i := range x {",
		"		sum += x[i] * levels[the nibble i of codes] * factors[i/block]",
		"	}",
		"	return sum",
		"",
		"high nibbles first, for whole blocks of a multiple of 16 numbers.")
	f := &floats8{narrowGen: narrowGen{isa: v, narrow: &narrow{}, w: ptr("codes")}}
	table, total := Load(Param("levels"), GP64()).(reg.GPVirtual), v.vec()
	v.zero(total)
	if v.wide {
		f.dotLevelsWide(table, total)
		return
	}
	lower, upper, shifts := v.vec(), v.vec(), v.vec()
	VMOVUPS(at(table, 0), lower)
	VMOVUPS(at(table, 32), upper)
	VMOVDQU(f.fill("nibbleShifts", 4, 4, 0, 12, 8, 20, 16, 28, 24), shifts)
	f.blocks("factors", 16, func(sums []reg.VecVirtual) {
		for h, sum := range sums {
			i, a, b := v.vec(), v.vec(), v.vec()
			VPBROADCASTD(at(f.w, 4*h), i)
			VPSRLVD(shifts, i, i)
			VPERMPS(lower, i, a)
			VPERMPS(upper, i, b)
			VPSLLD(Imm(28), i, i)
			VBLENDVPS(i, b, a, a)
			VFMADD231PS(at(f.x, 32*h), a, sum)
		}
		bump(f.w, 8)
		bump(f.x, 64)
	}, total)
	f.giveBack(total)
}

// dotLevelsWide reads sixteen codes at once: each half of a register has four bytes
// of them, shifted to where VPERMPS looks.
func (f *floats8) dotLevelsWide(table reg.GPVirtual, total reg.VecVirtual) {
	levels, shifts, halves := f.vec(), f.vec(), f.vec()
	g := &integerGen{isa: f.isa}
	VMOVUPS(at(table, 0), levels)
	VMOVDQU64(g.table("wideShifts", []int{4, 0, 12, 8, 20, 16, 28, 24}, 4), shifts)
	VMOVDQU64(g.table("wideHalves", twoHalves(8, 0, 1), 4), halves)
	f.blocks("factors", 16, func(sums []reg.VecVirtual) {
		i := f.vec()
		VPBROADCASTQ(at(f.w, 0), i)
		VPERMD(i, halves, i)
		VPSRLVD(shifts, i, i)
		VPERMPS(levels, i, i)
		VFMADD231PS(at(f.x, 0), i, sums[0])
		bump(f.w, 8)
		bump(f.x, 64)
	}, total)
	f.giveBack(total)
}

// spreadBytes copies codes of 8 bits.
func spreadBytes(v isa) {
	v.text("spreadBytes", "(dst []byte, src []byte, runs int)", "",
		"	for i := range runs {",
		"		the 256 bytes dst[384*i:] = those of src[256*i:]",
		"	}")
	dst, src, runs := ptr("dst"), ptr("src"), Load(Param("runs"), GP64()).(reg.GPVirtual)
	loop("run", runs, 1, func() {
		for i := range 8 {
			if i%2 == 0 {
				ask(at(src, 32*i))
			}
			x := v.vec()
			VMOVDQU(at(src, 32*i), x)
			VMOVDQU(x, at(dst, 32*i))
		}
		bump(src, 256)
		bump(dst, unpackedBytes)
	})
	VZEROUPPER()
	RET()
}

// spreadScales repeats the scales and minimums of a row's groups for the parts of
// its runs.
func spreadScales(v isa) {
	v.text("spreadScales", "(dst []byte, s []float32, m []float32, index *[8]uint32, step int, every int, runs int, parts int)", "",
		"	for i := range runs*parts/8 {",
		"		for j := range 8 {",
		"			g := i/every*step + index[j]",
		"			part i*8+j of dst, of which a run has so many, has S = s[g] and M = m[g]",
		"		}",
		"	}",
		"",
		"where a run's S lie at dst[384*run+256:] and its M behind them; parts is 8 or 16,",
		"and 8 numbers can be read from any s[i/every*step].")
	dst, s, m := ptr("dst"), ptr("s"), ptr("m")
	index, step := v.vec(), Load(Param("step"), GP64()).(reg.GPVirtual)
	p := Load(Param("index"), GP64()).(reg.GPVirtual)
	VMOVDQU(at(p, 0), index)
	SHLQ(Imm(2), step)
	ADDQ(U32(256), dst)
	parts, left := Load(Param("parts"), GP64()).(reg.GPVirtual), Load(Param("every"), GP64()).(reg.GPVirtual)
	SHLQ(Imm(2), parts) // bytes from S to M
	runs := Load(Param("runs"), GP64()).(reg.GPVirtual)
	loop("run", runs, 1, func() {
		to, here := GP64(), GP64()
		MOVQ(dst, to)
		MOVQ(parts, here)
		loop("eight", here, 32, func() {
			a, b := v.vec(), v.vec()
			VPERMPS(at(s, 0), index, a)
			VPERMPS(at(m, 0), index, b)
			VMOVUPS(a, at(to, 0))
			VMOVUPS(b, Mem{Base: to, Index: parts, Scale: 1})
			bump(to, 32)
			SUBQ(Imm(1), left)
			JNZ(LabelRef("same"))
			ADDQ(step, s)
			ADDQ(step, m)
			left2 := Load(Param("every"), GP64()).(reg.GPVirtual)
			MOVQ(left2, left)
			Label("same")
		})
		bump(dst, unpackedBytes)
	})
	VZEROUPPER()
	RET()
}
