package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// kvCodesFile writes what spreads codes of keys and values to the levels that they
// stand for; both vector lengths use it.
func kvCodesFile(v isa) {
	if v.wide {
		return
	}
	for _, bits := range []int{3, 4, 5} {
		keyLevels(v, bits)
		valueLevels(v, bits)
	}
}

// A levelsGen spreads one group of 32 codes at a time.
type levelsGen struct {
	narrowGen
	bits   int
	dst    reg.GPVirtual
	levels reg.VecVirtual // of up to 4 bits, the same in both lanes
}

func newLevelsGen(v isa, name string, bits int, doc ...string) *levelsGen {
	v.text(label("%s%d", name, bits), "(dst, src []byte, groups int, levels *[32]int8)", doc...)
	g := &levelsGen{narrowGen: narrowGen{isa: v, narrow: &narrow{}, w: ptr("src")}, bits: bits, dst: ptr("dst")}
	if bits < 5 {
		g.levels = g.vec()
		VBROADCASTI128(at(Load(Param("levels"), GP64()).(reg.GPVirtual), 0), g.levels)
	}
	return g
}

// finish turns codes of up to 4 bits into levels; those of 5 bits lie in bits 3 to 7.
func (g *levelsGen) finish(c reg.VecVirtual) {
	if g.bits == 5 {
		VPXOR(g.fill("bit7", 1, 0x80), c, c)
	} else {
		VPSHUFB(c, g.levels, c)
	}
}

// shifted returns x by so many bits to the left, or to the right where negative, of
// which mask stays in each byte.
func (g *levelsGen) shifted(x reg.VecVirtual, by, mask int) reg.VecVirtual {
	c := g.vec()
	m := g.fill(label("mask%d", mask), 1, mask)
	switch {
	case by > 0:
		VPSLLW(Imm(uint64(by)), x, c)
	case by < 0:
		VPSRLW(Imm(uint64(-by)), x, c)
	default:
		VPAND(m, x, c)
		return c
	}
	VPAND(m, c, c)
	return c
}

// keyLevels spreads rows of 64 positions.
func keyLevels(v isa, bits int) {
	g := newLevelsGen(v, "keyLevels", bits, "",
		"	levelsByFeature("+label("%d", bits)+")(dst, src, groups, levels)",
		"",
		"which levels are those of kvLevels.")
	groups := Load(Param("groups"), GP64()).(reg.GPVirtual)
	loop("group", groups, 1, func() {
		halves := GP64()
		MOVQ(U32(2), halves)
		loop("half", halves, 1, func() {
			low, width := 16, 4
			if bits == 3 {
				low, width = 8, 2
			}
			for i := range low {
				row := g.vec()
				VMOVDQU(at(g.w, 64*i), row)
				for j := i; j < 32; j += low {
					up := 0 // where the code's lowest bit goes
					if bits == 5 {
						up = 3
					}
					c := g.shifted(row, up-j/low*width, (1<<width-1)<<up)
					if bits > width {
						high := g.vec()
						VMOVDQU(at(g.w, 64*(low+j/8)), high)
						VPOR(g.shifted(high, up+width-j%8, 1<<(up+width)), c, c)
					}
					g.finish(c)
					VMOVDQU(c, at(g.dst, 64*j))
				}
			}
			bump(g.w, 32)
			bump(g.dst, 32)
		})
		bump(g.w, 64*4*bits-64)
		bump(g.dst, 64*32-64)
	})
	VZEROUPPER()
	RET()
}

// valueLevels spreads codes that lie in order.
func valueLevels(v isa, bits int) {
	g := newLevelsGen(v, "valueLevels", bits, "",
		"	levelsInOrder("+label("%d", bits)+")(dst, src, groups, levels)",
		"",
		"which levels are those of kvLevels.")
	groups := Load(Param("groups"), GP64()).(reg.GPVirtual)
	loop("group", groups, 1, func() {
		var c reg.VecVirtual
		up := 0
		switch bits {
		case 3:
			c = g.vec()
			VPBROADCASTQ(at(g.w, 0), c)
			VPSRLVQ(g.fill("shifts", 8, 0, 2, 4, 6), c, c)
			VPAND(g.fill("mask3", 1, 3), c, c)
		default:
			if bits == 5 {
				up = 3
			}
			x := g.vec()
			VMOVDQU(at(g.w, 0), x.AsX())
			high := g.shifted(x, up-4, 15<<up)
			c = g.shifted(x, up, 15<<up)
			VINSERTI128(Imm(1), high.AsX(), c, c)
		}
		if bits != 4 {
			b, low, place := g.vec(), 16, 16<<up
			if bits == 3 {
				low, place = 8, 4
			}
			VPBROADCASTD(at(g.w, low), b)
			VPSHUFB(g.fill("spread", 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3), b, b)
			each := g.vec()
			VMOVDQU(g.fill("eachBit", 1, 1, 2, 4, 8, 16, 32, 64, 128), each)
			VPAND(each, b, b)
			VPCMPEQB(each, b, b)
			VPAND(g.fill(label("mask%d", place), 1, place), b, b)
			VPOR(b, c, c)
		}
		g.finish(c)
		VMOVDQU(c, at(g.dst, 0))
		bump(g.w, 4*bits)
		bump(g.dst, 32)
	})
	VZEROUPPER()
	RET()
}
