package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// A quantizer is the quantization of a record in groups of 32 or 16: the largest
// magnitude of every group, then the scales of eight groups at once, then the
// values. Registers of 32 bytes serve LevelAVX512 too: most of the work is on
// single groups.
type quantizer struct {
	isa
	group      int
	dst, x     reg.GPVirtual
	tops, inv  Mem // float32[16]: largest magnitudes, what to multiply values by
	sums       Mem // int32[16]: of q
	candidates Mem // float32[8]: inverses of a group of 16
	best       Mem // float32[16]: 1/n of the divisor chosen
}

const smallestBits = 0x0d800000 // 2^-100

// quantizeFile writes both forms, with the bits of plain Go.
func quantizeFile(v isa) {
	if v.wide {
		return
	}
	v.text("quantize", "(dst *[512]byte, x *[256]float32)", "",
		"	dst = the record of x, as quantizeGeneric makes it, bit for bit")
	newQuantizer(v, 32).write()
	v.text("quantizeFine", "(dst *[512]byte, x *[256]float32)", "",
		"	dst = the record of x, as quantizeFineGeneric makes it, bit for bit")
	newQuantizer(v, 16).write()
}

func newQuantizer(v isa, group int) *quantizer {
	return &quantizer{isa: v, group: group, dst: Load(Param("dst"), GP64()).(reg.GPVirtual), x: Load(Param("x"), GP64()).(reg.GPVirtual),
		tops: AllocLocal(64), inv: AllocLocal(64), sums: AllocLocal(64), candidates: AllocLocal(32), best: AllocLocal(64)}
}

// each runs body for every group, i counting 4 bytes a group.
func (q *quantizer) each(name string, body func(x, i reg.GPVirtual)) {
	x, i := GP64(), GP64()
	MOVQ(q.x, x)
	XORQ(i, i)
	Label(name)
	body(x, i)
	bump(x, 4*q.group)
	ADDQ(Imm(4), i)
	CMPQ(i, Imm(uint64(4*256/q.group)))
	JL(LabelRef(name))
}

func indexed(m Mem, i reg.GPVirtual) Mem {
	m.Index, m.Scale = i, 1
	return m
}

func (q *quantizer) write() {
	magnitude := q.words("magnitude", 0x7fffffff)
	q.each("largest", func(x, i reg.GPVirtual) {
		top := q.vec()
		VPAND(at(x, 0), magnitude, top)
		for j := 8; j < q.group; j += 8 {
			t := q.vec()
			VPAND(at(x, 4*j), magnitude, t)
			VPMAXUD(t, top, top)
		}
		q.fold(top, func(a, b reg.Register) { VPMAXUD(a, b, b) })
		VMOVD(top.AsX(), indexed(q.tops, i))
	})
	if q.group == 16 {
		q.each("divisor", q.choose)
	}
	for h := range 32 / q.group {
		q.scales(32 * h)
	}
	q.each("values", q.round)
	q.derived()
	VZEROUPPER()
	RET()
}

// words fills a register with a 32-bit constant.
func (v isa) words(name string, c uint32) reg.VecVirtual {
	r := v.vec()
	VPBROADCASTD(v.constant(name, U32(c)), r)
	return r
}

// eight is 32 bytes of read-only float32.
func (v isa) eight(name string, value func(i int) float32) Mem {
	if m, ok := v.data[name]; ok {
		return m
	}
	m := GLOBL(name, 8|16 /* RODATA|NOPTR */)
	for i := range 8 {
		DATA(4*i, F32(value(i)))
	}
	v.data[name] = m
	return m
}

// choose finds the divisor of one group of 16 whose rounding leaves least.
func (q *quantizer) choose(x, i reg.GPVirtual) {
	t, lo, hi := q.vec(), q.vec(), q.vec()
	VBROADCASTSS(indexed(q.tops, i), t)
	VMOVUPS(q.eight("divisors", func(i int) float32 { return float32(127 - i) }), lo)
	VDIVPS(t, lo, t)
	VMOVUPS(t, q.candidates)
	VMOVUPS(at(x, 0), lo)
	VMOVUPS(at(x, 32), hi)
	var two [2]reg.VecVirtual
	for half := range two {
		var pairs [2]reg.VecVirtual
		for p := range pairs {
			n := 4*half + 2*p
			pairs[p] = neighbours(q.squares(lo, hi, n), q.squares(lo, hi, n+1))
		}
		two[half] = neighbours(pairs[0], pairs[1])
	}
	e, upper := q.vec(), q.vec()
	VPERM2F128(Imm(0x20), two[1], two[0], e)
	VPERM2F128(Imm(0x31), two[1], two[0], upper)
	VADDPS(upper, e, e)
	VMULPS(q.eight("squares", func(i int) float32 { n := float32(127 - i); return 1 / (n * n) }), e, e)
	least, same, which := q.vec(), q.vec(), GP64()
	VMOVAPS(e, least)
	q.fold(least, func(a, b reg.Register) { VMINPS(a, b, b) })
	VBROADCASTSS(least.AsX(), same)
	VCMPPS(Imm(0), e, same, same)
	VMOVMSKPS(same, which.As32())
	ORL(Imm(0x80), which.As32()) // of a group without a scale no error is a number
	BSFL(which.As32(), which.As32())
	q.pick(q.candidates, which, indexed(q.inv, i))
	table := GP64()
	LEAQ(q.eight("parts", func(i int) float32 { return 1 / float32(127-i) }), table)
	q.pick(Mem{Base: table}, which, indexed(q.best, i))
}

// pick copies the float32 of a number.
func (q *quantizer) pick(from Mem, which reg.GPVirtual, to Mem) {
	from.Index, from.Scale = which, 4
	r := GP32()
	MOVL(from, r)
	MOVL(r, to)
}

// neighbours adds the first and second, third and fourth of every four of a, and
// then of b.
func neighbours(a, b reg.VecVirtual) reg.VecVirtual {
	even, odd := YMM(), YMM()
	VSHUFPS(Imm(0x88), b, a, even)
	VSHUFPS(Imm(0xdd), b, a, odd)
	VADDPS(odd, even, even)
	return even
}

// squares returns what candidate n leaves of values j and j+8, squared and added.
func (q *quantizer) squares(lo, hi reg.VecVirtual, n int) reg.VecVirtual {
	inverse, s := q.vec(), q.vecs(2)
	VBROADCASTSS(q.candidates.Offset(4*n), inverse)
	for i, x := range []reg.VecVirtual{lo, hi} {
		r := q.vec()
		VMULPS(inverse, x, s[i])
		VROUNDPS(Imm(0), s[i], r)
		VSUBPS(r, s[i], s[i])
		VMULPS(s[i], s[i], s[i])
	}
	VADDPS(s[1], s[0], s[0])
	return s[0]
}

// scales writes d of eight groups and completes what values are multiplied by.
func (q *quantizer) scales(from int) {
	top, d, inverse := q.vec(), q.vec(), q.vec()
	VMOVUPS(q.tops.Offset(from), top)
	if q.group == 16 {
		VMULPS(q.best.Offset(from), top, d)
		VMOVUPS(q.inv.Offset(from), inverse)
	} else {
		VMULPS(q.eight("f1_127", func(int) float32 { return 1. / 127 }), top, d)
		VMOVUPS(q.eight("f127", func(int) float32 { return 127 }), inverse)
		VDIVPS(top, inverse, inverse)
	}
	small, special, nan := q.vec(), q.vec(), q.vec()
	VPCMPGTD(top, q.words("smallest", smallestBits), small)
	VPCMPGTD(q.words("finite", 0x7f7fffff), top, special)
	VPANDN(d, small, d)
	VPAND(q.words("quietNaN", 0x7fc00000), special, nan)
	VPANDN(d, special, d)
	VPOR(nan, d, d)
	VPOR(special, small, small)
	VPANDN(inverse, small, inverse)
	VMOVUPS(d, at(q.dst, atScale+from))
	VMOVUPS(inverse, q.inv.Offset(from))
}

// round writes the values of one group and leaves their sum.
func (q *quantizer) round(x, i reg.GPVirtual) {
	inverse, some, zero := q.vec(), q.vec(), q.vec()
	VBROADCASTSS(indexed(q.inv, i), inverse)
	VXORPS(zero, zero, zero)
	VCMPPS(Imm(4), zero, inverse, some) // not equal: else no product counts
	n := q.group / 8
	r := q.vecs(n)
	for j := range r {
		VMULPS(at(x, 32*j), inverse, r[j])
		VCVTPS2DQ(r[j], r[j])
		VPAND(some, r[j], r[j])
	}
	sum := q.vec()
	VPADDD(r[1], r[0], sum)
	for j := 2; j < n; j++ {
		VPADDD(r[j], sum, sum)
	}
	q.fold(sum, func(a, b reg.Register) { VPADDD(a, b, b) })
	VMOVD(sum.AsX(), indexed(q.sums, i))
	to := Mem{Base: q.dst, Index: i, Scale: uint8(q.group / 4)}
	VPACKSSDW(r[1], r[0], r[0])
	if n == 2 {
		VPACKSSWB(r[0], r[0], r[0])
		VMOVDQU(q.order("order16", 0, 4, 1, 5, 0, 4, 1, 5), r[1])
		VPERMD(r[0], r[1], r[0])
		VMOVDQU(r[0].AsX(), to)
		return
	}
	VPACKSSDW(r[3], r[2], r[2])
	VPACKSSWB(r[2], r[0], r[0])
	VMOVDQU(q.order("order32", 0, 4, 1, 5, 2, 6, 3, 7), r[1])
	VPERMD(r[0], r[1], r[0])
	VMOVDQU(r[0], to)
}

// order is 32 bytes of read-only indices.
func (v isa) order(name string, index ...uint32) Mem {
	if m, ok := v.data[name]; ok {
		return m
	}
	m := GLOBL(name, 8|16 /* RODATA|NOPTR */)
	for i, n := range index {
		DATA(4*i, U32(n))
	}
	v.data[name] = m
	return m
}

// derived writes what follows from d and the sums of q, and zeros for the rest.
func (q *quantizer) derived() {
	zero := q.vec()
	VXORPS(zero, zero, zero)
	groups, sumAt := 8, atSum
	if q.group == 16 {
		groups, sumAt = 16, atSum16
	}
	for from := 0; from < 4*groups; from += 32 {
		sum, f := q.vec(), q.vec()
		VMOVDQU(q.sums.Offset(from), sum)
		VCVTDQ2PS(sum, f)
		VMULPS(at(q.dst, atScale+from), f, f)
		VMOVUPS(f, at(q.dst, sumAt+from))
		VPSLLD(Imm(7), sum, sum)
		VPSUBD(sum, zero, sum)
		VMOVDQU(sum, at(q.dst, atShift+from))
	}
	unused := []int{448, 480}
	if q.group == 32 {
		unused = []int{320, 352, 416, 448, 480}
	}
	for _, u := range unused {
		VMOVDQU(zero, at(q.dst, u))
	}
}
