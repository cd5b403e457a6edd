package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// fixedRow is the bytes of a row of left words.
const fixedRow = 512

func fixedFile(v isa) {
	fix(v)
	if v.wide {
		fixedTile(v, 5, 12)
	} else {
		fixedTile(v, 3, 6)
	}
}

// fixedTile is gemmTile with words of 16 bits, two features a step.
func fixedTile(v isa, least, most int) {
	v.text("fixedTile", "(m int, a, w []uint32, pairs int, c []float32, ldc int, units, scales []float32)",
		label("what fixedTileGeneric does, for %d <= m <= %d and %d columns.", least, most, 2*v.lanes))
	m := loadPointer("m")
	for h := least; h < most; h++ {
		CMPQ(m, Imm(uint64(h)))
		JE(LabelRef(label("height%d", h)))
	}
	for h := most; h >= least; h-- {
		Label(label("height%d", h))
		fixedTileOf(v, h)
		VZEROUPPER()
		RET()
	}
}

func fixedTileOf(v isa, m int) {
	a, w, left := ptr("a"), ptr("w"), loadPointer("pairs")
	c, ldc := ptr("c"), loadPointer("ldc")
	SHLQ(Imm(2), ldc)
	next := GP64()
	MOVQ(c, next)
	for range m { // there by the time that the sums are
		for line := 0; line < 8*v.lanes; line += 64 {
			PREFETCHT0(at(next, line))
		}
		ADDQ(ldc, next)
	}
	sums := v.vecs(2 * m)
	for _, s := range sums {
		v.zero(s)
	}
	step := func(u int) {
		lo, hi := v.vec(), v.vec()
		v.move(at(w, 8*v.lanes*u), lo)
		v.move(at(w, 8*v.lanes*u+4*v.lanes), hi)
		for i := range m {
			x := v.vec()
			VPBROADCASTD(at(a, fixedRow*i+4*u), x)
			if v.wide {
				VPDPWSSD(lo, x, sums[2*i])
				VPDPWSSD(hi, x, sums[2*i+1])
				continue
			}
			t := v.vec()
			VPMADDWD(lo, x, t)
			VPADDD(t, sums[2*i], sums[2*i])
			VPMADDWD(hi, x, x)
			VPADDD(x, sums[2*i+1], sums[2*i+1])
		}
	}
	const unroll = 4
	loop(label("unrolled%d", m), left, unroll, func() {
		for u := range unroll {
			step(u)
		}
		bump(w, 8*v.lanes*unroll)
		bump(a, 4*unroll)
	})
	units, scales := ptr("units"), ptr("scales")
	lo, hi := v.vec(), v.vec()
	VMOVUPS(at(scales, 0), lo)
	VMOVUPS(at(scales, 4*v.lanes), hi)
	for i := range m {
		unit := v.vec()
		VBROADCASTSS(at(units, 4*i), unit)
		for h, scale := range []reg.VecVirtual{lo, hi} {
			s := sums[2*i+h]
			VCVTDQ2PS(s, s)
			VMULPS(scale, s, s)
			VMULPS(unit, s, s)
			VADDPS(at(c, 4*v.lanes*h), s, s)
			VMOVUPS(s, at(c, 4*v.lanes*h))
		}
		ADDQ(ldc, c)
	}
}

// move copies a register of integers.
func (v isa) move(from, to Op) {
	if v.wide {
		VMOVDQU32(from, to)
	} else {
		VMOVDQU(from, to)
	}
}

// fix passes over a row three times: it stays in L1.
func fix(v isa) {
	v.text("fix", "(words []uint32, x, unit []float32)", "what fixGeneric does.")
	x, unit := ptr("x"), ptr("unit")
	parts := 16 / v.lanes // registers that hold sums
	top := v.vecs(parts)
	for _, t := range top {
		v.zero(t)
	}
	magnitude := v.vec()
	VPBROADCASTD(v.constant("fixMagnitude", U32(0x7fffffff)), magnitude)
	rows := func(name string, body func(i int, value reg.VecVirtual)) {
		at16, left := GP64(), GP64()
		MOVQ(x, at16)
		MOVQ(U32(16), left)
		loop(name, left, 1, func() {
			for i := range parts {
				value := v.vec()
				VMOVUPS(at(at16, 4*v.lanes*i), value)
				body(i, value)
			}
			bump(at16, 64)
		})
	}
	rows("top", func(i int, value reg.VecVirtual) {
		if v.wide {
			VPANDD(magnitude, value, value)
		} else {
			VPAND(magnitude, value, value)
		}
		VMAXPS(value, top[i], top[i])
	})
	if parts == 2 {
		VMAXPS(top[1], top[0], top[0])
	}
	v.fold(top[0], func(a, b reg.Register) { VMAXPS(a, b, b) })
	one := XMM()
	VMOVSS(v.constant("fixOne", F32(1)), one)
	inverse := XMM()
	VDIVSS(top[0].AsX(), one, inverse)
	spread := v.vec()
	VBROADCASTSS(inverse, spread)
	sums := v.vecs(parts)
	for _, s := range sums {
		v.zero(s)
	}
	rows("square", func(i int, value reg.VecVirtual) {
		VMULPS(spread, value, value)
		VMULPS(value, value, value)
		VADDPS(value, sums[i], sums[i])
	})
	if parts == 2 {
		VADDPS(sums[1], sums[0], sums[0])
	}
	v.sum(sums[0])
	norm, scale := XMM(), XMM()
	VSQRTSS(sums[0].AsX(), sums[0].AsX(), norm)
	VMOVSS(v.constant("fixNorm", F32(46000)), scale)
	VDIVSS(norm, scale, scale)
	most := XMM()
	VMOVSS(v.constant("fixMost", F32(32766)), most)
	VMINSS(scale, most, scale) // of a NaN the second operand, which stands first here
	VMULSS(inverse, scale, scale)
	// Without a finite scale all is 0.
	rest, back := XMM(), XMM()
	VSUBSS(scale, scale, rest)
	VCMPSS(Imm(7), rest, rest, rest)
	VANDPS(rest, scale, scale)
	VDIVSS(scale, one, back)
	VANDPS(rest, back, back)
	VMOVSS(back, at(unit, 0))
	VBROADCASTSS(scale, spread)
	words := ptr("words")
	from, left := GP64(), GP64()
	MOVQ(x, from)
	MOVQ(U32(16), left)
	loop("words", left, 1, func() {
		for i := range parts {
			value := v.vec()
			VMULPS(at(from, 4*v.lanes*i), spread, value)
			VCVTPS2DQ(value, value)
			if v.wide {
				VPMOVDW(value, at(words, 0))
				continue
			}
			high := XMM()
			VEXTRACTI128(Imm(1), value, high)
			VPACKSSDW(high, value.AsX(), high)
			VMOVDQU(high, at(words, 16*i))
		}
		bump(from, 64)
		bump(words, 32)
	})
	VZEROUPPER()
	RET()
}
