package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// quantizeFile writes the quantization of a record; both vector lengths have
// the same bits as plain Go.
func quantizeFile(v isa) {
	if !v.wide {
		return
	}
	v.text("quantize", "(dst *[512]byte, x *[256]float32)", "",
		"	dst = the record of x, as quantizeGeneric makes it, bit for bit")
	dst, x := Load(Param("dst"), GP64()).(reg.GPVirtual), Load(Param("x"), GP64()).(reg.GPVirtual)
	half := GP64()
	MOVQ(dst, half)
	magnitude := v.words("magnitude", 0x7fffffff)
	left := GP64()
	MOVQ(U32(8), left)
	values := GP64()
	MOVQ(dst, values)
	loop("block", left, 1, func() {
		quantizeBlock(v, dst, half, values, x, magnitude)
		bump(x, 128)
		bump(values, 32)
		bump(dst, 4)
		bump(half, 8)
	})
	z := v.vec()
	zeroed(z)
	VMOVDQU64(z.AsY(), at(dst, atShift16+64-32)) // dst has moved on by 32
	VZEROUPPER()
	RET()
}

// words fills a register with a 32-bit constant.
func (v isa) words(name string, c uint32) reg.VecVirtual {
	r := v.vec()
	VPBROADCASTD(v.constant(name, U32(c)), r)
	return r
}

func quantizeBlock(v isa, dst, half, values, x reg.GPVirtual, magnitude reg.VecVirtual) {
	lo, hi, top, t := v.vec(), v.vec(), v.vec(), v.vec()
	VMOVUPS(at(x, 0), lo)
	VMOVUPS(at(x, 64), hi)
	VPANDD(magnitude, lo, top)
	VPANDD(magnitude, hi, t)
	VPMAXUD(t, top, top)
	fold(top, func(a, b reg.Register) { VPMAXUD(a, b, b) })
	d, inverse := scaleOf(v, top)
	for _, r := range []reg.VecVirtual{lo, hi} {
		VMULPS(inverse, r, r)
		VCVTPS2DQ(r, r)
	}
	VPMOVDB(lo, at(values, 0))
	VPMOVDB(hi, at(values, 16))
	// The sums of both halves, in the lowest lanes.
	add := func(a, b reg.Register) { VPADDD(a, b, b) }
	fold(lo, add)
	fold(hi, add)
	VPUNPCKLDQ(hi.AsX(), lo.AsX(), lo.AsX())
	storeSums(v, dst, half, d, lo)
}

// scaleOf is the plain scaleOf of one block, top being the bits of its largest
// magnitude; inverse fills its register, d is in a lowest lane.
func scaleOf(v isa, top reg.VecVirtual) (d, inverse reg.VecVirtual) {
	d, inverse = v.vec(), v.vec()
	bits, zero := GP32(), GP32()
	VMOVD(top.AsX(), bits)
	XORL(zero, zero)
	CMPL(bits, U32(0x0d800000)) // 2^-100
	CMOVLLT(zero, bits)
	VMOVD(bits, top.AsX())
	VMOVSS(v.constant("f127", F32(127)), inverse.AsX())
	VDIVSS(top.AsX(), inverse.AsX(), inverse.AsX())
	VMULSS(v.constant("f1_127", U32(0x3c010204)), top.AsX(), d.AsX())
	// Zero and not finite: the inverse is 0, and d 0 or NaN.
	ib, nan := GP32(), GP32()
	VMOVD(inverse.AsX(), ib)
	TESTL(bits, bits)
	CMOVLEQ(zero, ib)
	db := GP32()
	VMOVD(d.AsX(), db)
	MOVL(U32(0x7fc00000), nan)
	CMPL(bits, U32(0x7f800000))
	CMOVLGE(zero, ib)
	CMOVLGE(nan, db)
	VMOVD(db, d.AsX())
	VPBROADCASTD(ib, inverse)
	return d, inverse
}

// storeSums writes d and what is derived from the sums of q of both halves.
func storeSums(v isa, dst, half reg.GPVirtual, d, sums reg.VecVirtual) {
	VMOVSS(d.AsX(), at(dst, atScale))
	both, f, all := v.vec(), v.vec(), v.vec()
	VPBROADCASTD(d.AsX(), both.AsX())
	VCVTDQ2PS(sums.AsX(), f.AsX())
	VMULPS(both.AsX(), f.AsX(), f.AsX())
	VMOVQ(f.AsX(), at(half, atSum16))
	VPSHUFD(Imm(1), sums.AsX(), all.AsX())
	VPADDD(sums.AsX(), all.AsX(), all.AsX())
	VCVTDQ2PS(all.AsX(), f.AsX())
	VMULSS(d.AsX(), f.AsX(), f.AsX())
	VMOVSS(f.AsX(), at(dst, atSum))
	zero := v.vec()
	zeroed(zero)
	for _, r := range []reg.VecVirtual{sums, all} {
		VPSLLD(Imm(7), r.AsX(), r.AsX())
		VPSUBD(r.AsX(), zero.AsX(), r.AsX())
	}
	VMOVQ(sums.AsX(), at(half, atShift16))
	VMOVD(all.AsX(), at(dst, atShift))
}
