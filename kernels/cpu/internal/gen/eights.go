package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// eightsFile writes what puts a record of activations into the order of integer.eights,
// and into that of integer.sixteens.
func eightsFile(v isa) {
	if !v.wide {
		return
	}
	v.text("eights", "(dst, src *[512]byte)", "",
		"	dst = src in the order of eightsGeneric, bit for bit")
	g := &integerGen{isa: v, keep: map[string]reg.VecVirtual{}}
	dst, src := Load(Param("dst"), GP64()).(reg.GPVirtual), Load(Param("src"), GP64()).(reg.GPVirtual)
	groups := g.vecs(4) // two of 32 codes in each
	for i, r := range groups {
		VMOVDQU64(at(src, 64*i), r)
	}
	for j := range 4 {
		g.register(label("take%d", j), 8, j, 4+j, 8+j, 12+j, j, 4+j, 8+j, 12+j)
		a, b := g.vec(), g.vec()
		VMOVDQA64(groups[0], a)
		VPERMT2Q(groups[1], g.keep[label("take%d", j)], a)
		VMOVDQA64(groups[2], b)
		VPERMT2Q(groups[3], g.keep[label("take%d", j)], b)
		VINSERTI64X4(Imm(1), b.AsY(), a, a)
		VMOVDQU64(a, at(dst, 64*j))
	}
	const one, sixteenth = 0x3f800000, 0x3d800000
	g.register("oddSixteenths", 4, one, sixteenth, one, sixteenth, one, sixteenth, one, sixteenth, one, one, one, one, one, one, one, one)
	d := g.vec()
	VMOVUPS(at(src, atScale), d) // and the sums behind them
	VMOVUPS(d, at(dst, atEightsScale))
	VMULPS(g.keep["oddSixteenths"], d, d)
	VMOVUPS(d, at(dst, atEightsHigh))
	VZEROUPPER()
	RET()
	sixteens(v)
}

// sixteens writes what puts a record into the order of integer.sixteens: words of four
// groups at a time are turned into lanes.
func sixteens(v isa) {
	v.text("sixteens", "(dst, src *[512]byte)", "",
		"	dst = src in the order of sixteensGeneric, bit for bit")
	dst, src := Load(Param("dst"), GP64()).(reg.GPVirtual), Load(Param("src"), GP64()).(reg.GPVirtual)
	for i := range 2 { // groups 0 to 3 and 8 to 11, then the others
		for j := range 2 { // words 0 and 1, then 2 and 3
			x := v.vec()
			VMOVDQU64(at(src, 64*i), x)
			if j == 0 {
				VPUNPCKLDQ(at(src, 128+64*i), x, x)
			} else {
				VPUNPCKHDQ(at(src, 128+64*i), x, x)
			}
			VMOVDQU64(x, at(dst, 128*j+64*i))
		}
	}
	for _, offset := range []int{atScale, atSum16} {
		x := v.vec()
		VMOVUPS(at(src, offset), x)
		VMOVUPS(x, at(dst, offset))
	}
	VZEROUPPER()
	RET()
}
