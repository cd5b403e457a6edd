package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// A narrow is how the AVX2 kernels read one scheme: 256 weights as eight
// registers of 32 codes, their scales in memory where they are broadcast from.
type narrow struct {
	facts
	zero   int // the code that stands for 0; 0 where codes are signed bytes
	signed bool
	near   bool // weights are in a cache
	// scales returns S of 8 groups in a register, or of 16 in two, and M where
	// there are minimums.
	scales func(g *narrowGen) (s, m []reg.VecVirtual)
	codes  func(g *narrowGen, i int) reg.VecVirtual // weights 32*i on
}

type narrowGen struct {
	isa
	*narrow
	w, a   reg.GPVirtual
	scaled Mem // [T][16] float32 on the stack
	ones   reg.VecVirtual
}

// matVec is the AVX2 form of integer.matVec: the same rows, records and order,
// with VPMADDUBSW and VPMADDWD in place of VPDPBUSD. Signed codes give their
// signs to the activations, so that no sum of two products leaves int16.
func (s *narrow) matVec(v isa, tokens int) {
	v.text(label("matVec%sx%d", s.name, tokens), "(y []float32, ldy int, rows int, w []byte, ldw int, a []byte, step int, runs int)", "",
		"	for n := range rows {",
		label("		for t := range %d {", tokens),
		"			y[t*ldy+n] = row w[n*ldw:] times the records a[t*512:], runs of both",
		"		}",
		"	}",
		"",
		"with runs >= 1, records at distance step; group sums are exact, then float32.")
	g := &narrowGen{isa: v, narrow: s, w: GP64(), a: GP64(), scaled: AllocLocal(64 * tokens), ones: v.vec()}
	VMOVDQU(g.fill("ones16", 2, 1), g.ones)
	y, row, left := ptr("y"), ptr("w"), Load(Param("rows"), GP64()).(reg.GPVirtual)
	loop("row", left, 1, func() {
		MOVQ(row, g.w)
		Load(Param("a").Base(), g.a)
		g.row(y, tokens)
		ADDQ(Imm(4), y)
		ADDQ(Load(Param("ldw"), GP64()), row)
	})
	VZEROUPPER()
	RET()
}

func (g *narrowGen) row(y reg.GPVirtual, tokens int) {
	sums := g.vecs(2 * tokens)
	for _, r := range sums {
		VXORPS(r, r, r)
	}
	runs, step := Load(Param("runs"), GP64()).(reg.GPVirtual), Load(Param("step"), GP64()).(reg.GPVirtual)
	loop("run", runs, 1, func() {
		for i := 0; i < g.bytes && !g.near; i += 64 {
			ask(at(g.w, i))
		}
		g.scale(tokens, sums)
		for i := range 8 {
			g.products(i, tokens, sums)
		}
		bump(g.w, g.bytes)
		ADDQ(step, g.a)
	})
	ldy, out := Load(Param("ldy"), GP64()).(reg.GPVirtual), GP64()
	SHLQ(Imm(2), ldy)
	MOVQ(y, out)
	for t := range tokens {
		VADDPS(sums[2*t+1], sums[2*t], sums[2*t])
		g.sum(sums[2*t])
		VMOVSS(sums[2*t].AsX(), at(out, 0))
		ADDQ(ldy, out)
	}
}

// scale leaves S*d of every token on the stack, and takes the minimums, or what
// codes stand too high, off the sums.
func (g *narrowGen) scale(tokens int, sums []reg.VecVirtual) {
	s, m := g.scales(g)
	for h := range s {
		for t := range tokens {
			p := g.vec()
			VMULPS(at(g.a, recordBytes*t+atScale+32*h), s[h], p)
			VMOVUPS(p, g.scaled.Offset(64*t+32*h))
		}
		high := s[h]
		if g.mins {
			high = m[h]
		} else if g.narrow.zero > 0 {
			VMULPS(g.fill(label("times%d", g.narrow.zero), 4, floatBits(g.narrow.zero)), high, high)
		} else {
			continue
		}
		for t := range tokens {
			from := recordBytes*t + atSum
			if g.group == 16 {
				from = recordBytes*t + atSum16 + 32*h
			}
			VFNMADD231PS(at(g.a, from), high, sums[2*t])
		}
	}
}

// products multiplies 32 weights.
func (g *narrowGen) products(i, tokens int, sums []reg.VecVirtual) {
	c := g.codes(g, i)
	size := c
	if g.signed {
		size = g.vec()
		VPABSB(c, size)
	}
	for t := range tokens {
		p, f := g.vec(), g.vec()
		if g.signed {
			VMOVDQU(at(g.a, recordBytes*t+32*i), p)
			VPSIGNB(c, p, p)
			VPMADDUBSW(p, size, p)
		} else {
			VPMADDUBSW(at(g.a, recordBytes*t+32*i), c, p)
		}
		VPMADDWD(g.ones, p, p)
		VCVTDQ2PS(p, p)
		if g.group == 16 {
			VBROADCASTSD(g.scaled.Offset(64*t+8*i), f)
			VPERMILPS(g.fill("halves01", 4, 0, 0, 0, 0, 1, 1, 1, 1), f, f)
		} else {
			VBROADCASTSS(g.scaled.Offset(64*t+4*i), f)
		}
		VFMADD231PS(p, f, sums[2*t+i%2])
	}
}

// fill places 32 bytes of read-only data, values of the given size repeated.
func (g *narrowGen) fill(name string, size int, values ...int) Mem {
	name = "narrow_" + name
	if m, ok := g.data[name]; ok {
		return m
	}
	m := GLOBL(name, 8|16 /* RODATA|NOPTR */)
	for i := range 32 / size {
		v := uint64(int64(values[i%len(values)]))
		switch size {
		case 1:
			DATA(i, U8(v))
		case 2:
			DATA(2*i, U16(v))
		case 4:
			DATA(4*i, U32(v))
		case 8:
			DATA(8*i, U64(v))
		}
	}
	g.data[name] = m
	return m
}
