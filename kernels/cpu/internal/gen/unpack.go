package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// An unpacker is a kernel that expands runs of 256 weights to 256 codes and
// float32 S, for schemes that have no kernels of their own; both levels use it.
// Work space on the stack holds what is looked up byte by byte.
type unpacker struct {
	narrowGen
	dst     reg.GPVirtual
	grid    reg.GPVirtual // table of points
	indices Mem           // uint16[32] or [64]
	signs   Mem           // 32 bytes
}

// An unpackScheme is a scheme's block and what one run of it takes.
type unpackScheme struct {
	facts
	table string // the type of its table, "" without
	run   func(u *unpacker)
}

func unpackFile(v isa) {
	if v.wide {
		return
	}
	for _, s := range []unpackScheme{
		{of("tq10"), "", unpackTQ10}, {of("tq20"), "", unpackTQ20},
		{of("iq1s"), "*[2048]uint64", unpackIQ1S}, {of("iq1m"), "*[2048]uint64", unpackIQ1M},
		{of("iq2xxs"), "*[256]uint64", unpackIQ2XXS}, {of("iq2xs"), "*[512]uint64", unpackIQ2XS}, {of("iq2s"), "*[1024]uint64", unpackIQ2S},
		{of("iq3xxs"), "*[256]uint32", unpackIQ3XXS}, {of("iq3s"), "*[512]uint32", unpackIQ3S},
	} {
		s.write(v)
	}
}

func (s *unpackScheme) write(v isa) {
	signature, doc := "(dst []byte, w []byte, runs int)", "float32 S in dst[384*i:]"
	if s.table != "" {
		signature = "(dst []byte, w []byte, runs int, grid " + s.table + ")"
		doc += ", of points of grid"
	}
	v.text("unpack"+s.name, signature, "",
		"	for i := range runs {",
		label("		the run w[%d*i:] as 256 codes, 128 for the weight 0, and", s.bytes),
		"		"+doc,
		"	}")
	u := &unpacker{narrowGen: narrowGen{isa: v, narrow: &narrow{}, w: ptr("w")}, dst: ptr("dst"), indices: AllocLocal(128), signs: AllocLocal(32)}
	if s.table != "" {
		u.grid = Load(Param("grid"), GP64()).(reg.GPVirtual)
	}
	runs := Load(Param("runs"), GP64()).(reg.GPVirtual)
	loop("run", runs, 1, func() {
		for i := 0; i < s.bytes; i += 64 {
			ask(at(u.w, i))
		}
		s.run(u)
		bump(u.w, s.bytes)
		bump(u.dst, unpackedBytes)
	})
	VZEROUPPER()
	RET()
}

// put stores 32 codes of group g.
func (u *unpacker) put(g int, c reg.VecVirtual) { VMOVDQU(c, at(u.dst, 32*g)) }

// putScales stores S of groups 8*h on.
func (u *unpacker) putScales(h int, s reg.VecVirtual) { VMOVUPS(s, at(u.dst, 256+32*h)) }

// integers makes S of whole numbers x: d * (add + x) * factor.
func (u *unpacker) scaled(x, d reg.VecVirtual, add, factor float32) reg.VecVirtual {
	VCVTDQ2PS(x, x)
	if add != 0 {
		VADDPS(u.fill(label("add%d", bitsOf(add)), 4, bitsOf(add)), x, x)
	}
	VMULPS(d, x, x)
	if factor != 1 {
		VMULPS(u.fill(label("factor%d", bitsOf(factor)), 4, bitsOf(factor)), x, x)
	}
	return x
}

// odd turns s into 2s+1.
func (u *unpacker) odd(x reg.VecVirtual) {
	VPADDD(x, x, x)
	VPOR(u.fill("one32", 4, 1), x, x)
}

// sameScale gives all groups the f16 at an offset.
func (u *unpacker) sameScale(offset int) { u.putScales(0, u.half(offset)) }

func unpackTQ20(u *unpacker) {
	u.sameScale(64)
	for g := range 8 {
		c := u.field(32*(g/4), -2*(g%4), 3)
		VPADDB(u.fill("add127", 1, 127), c, c)
		u.put(g, c)
	}
}

// trits turns fractions into their first digit plus 127: a digit is one more from
// a third of 256 on, and from two thirds.
func (u *unpacker) trits(q reg.VecVirtual) reg.VecVirtual {
	c, m := u.vec(), u.vec()
	VMOVDQU(u.fill("add127", 1, 127), c)
	for _, from := range []int{86, 171} {
		VPMAXUB(u.fill(label("third%d", from), 1, from), q, m)
		VPCMPEQB(m, q, m)
		VPSUBB(m, c, c)
	}
	return c
}

func unpackTQ10(u *unpacker) {
	u.sameScale(52)
	q, twice := u.vec(), u.vec()
	VMOVDQU(at(u.w, 0), q)
	for n := range 5 {
		VMOVDQU(u.trits(q), at(u.dst, 32*n))
		VPADDB(q, q, twice)
		VPADDB(twice, q, q)
	}
	r := u.vec()
	VMOVDQU(at(u.w, 32), r.AsX())
	for n := range 5 {
		VMOVDQU(u.trits(r).AsX(), at(u.dst, 160+16*n))
		VPADDB(r, r, twice)
		VPADDB(twice, r, r)
	}
	s, t := u.vec(), u.vec()
	VPBROADCASTD(at(u.w, 48), s.AsX())
	VPMOVZXBW(s.AsX(), s)
	VPMULLW(u.fill("powers", 2, 1, 1, 1, 1, 3, 3, 3, 3, 9, 9, 9, 9, 27, 27, 27, 27), s, s)
	VPAND(u.fill("bytes16", 2, 255), s, s)
	VEXTRACTI128(Imm(1), s, t.AsX())
	VPACKUSWB(t.AsX(), s.AsX(), s.AsX())
	VMOVDQU(u.trits(s).AsX(), at(u.dst, 240))
}
