package main

import (
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/reg"
)

// stripsFile writes the matrix-vector kernels of rows that something else has
// unpacked: for groups of 16 and 32, with minimums and without. Codes stand 128 too
// high where there are no minimums; in groups of 32 with minimums they are below 128.
func stripsFile(v isa) {
	for _, group := range []int{16, 32} {
		for _, mins := range []bool{false, true} {
			name := label("Strip%d", group)
			if mins {
				name += "Min"
			}
			f := facts{name, unpackedBytes, group, mins}
			wide := &integer{facts: f, near: true, whole: !mins,
				setup: setupStrip, scales: scalesStrip, codes: codesStrip}
			slim := &narrow{facts: f, signed: group == 16 || !mins, near: true,
				scales: narrowScalesStrip, codes: narrowCodesStrip}
			for _, tokens := range []int{1, 2, 4} {
				if v.wide {
					wide.matVec(v, tokens)
				} else {
					slim.matVec(v, tokens)
				}
			}
		}
	}
}

func setupStrip(g *integerGen) {
	if g.whole {
		g.register("high", 1, 128)
	}
}

func scalesStrip(g *integerGen) (s, m reg.VecVirtual) {
	s = g.vec()
	if g.group == 32 && !g.mins {
		VBROADCASTF64X4(at(g.w, 256), s)
		return s, s
	}
	VMOVUPS(at(g.w, 256), s)
	if g.group == 32 || !g.mins {
		return s, s
	}
	m = g.vec()
	VMOVUPS(at(g.w, 320), m)
	return s, m
}

func codesStrip(g *integerGen, i int) reg.VecVirtual {
	c := g.vec()
	VMOVDQU64(at(g.w, 64*i), c)
	return c
}

// narrowScalesStrip takes 128*S off the minimums where codes are taken for signed
// bytes: VPMADDUBSW does not hold two products of 255.
func narrowScalesStrip(g *narrowGen) (s, m []reg.VecVirtual) {
	n := g.group / 16
	for h := range 2 / n {
		x := g.vec()
		VMOVUPS(at(g.w, 256+32*h), x)
		s = append(s, x)
	}
	if !g.mins {
		return s, nil
	}
	for h, x := range s {
		y := g.vec()
		VMOVUPS(at(g.w, 320-32*(n-1)+32*h), y)
		if g.signed {
			VFNMADD231PS(g.fill("times128", 4, floatBits(128)), x, y)
		}
		m = append(m, y)
	}
	return s, m
}

func narrowCodesStrip(g *narrowGen, i int) reg.VecVirtual {
	c := g.vec()
	VMOVDQU(at(g.w, 32*i), c)
	if g.signed {
		VPXOR(g.fill("sign", 1, 128), c, c)
	}
	return c
}
