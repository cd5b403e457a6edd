package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// halfFile writes the conversions for AVX2 only: they move bytes faster than
// memory gives them, and AVX-512 uses the same.
func halfFile(v isa) {
	if v.wide {
		return
	}
	ws := weights()
	decode(v, "F16", ws[2])
	decode(v, "BF16", ws[1])
	encode(v, "F16", encodeF16)
	encode(v, "BF16", v.encodeBF16)
}

func decode(v isa, name string, w weight) {
	v.text("decode"+name, "(dst []float32, src []byte)", "",
		"	for i := range dst {",
		"		dst[i] = the "+w.name+" value of src[2*i:]",
		"	}")
	dst, left, src := ptr("dst"), length("dst"), ptr("src")
	loop("by4", left, 32, func() {
		for i := range 4 {
			r := YMM()
			w.load(v, at(src, 16*i), r)
			VMOVUPS(r, at(dst, 32*i))
		}
		bump(src, 64)
		bump(dst, 128)
	})
	loop("by1", left, 1, func() {
		r := XMM()
		w.one(at(src, 0), r)
		VMOVSS(r, at(dst, 0))
		bump(src, 2)
		bump(dst, 4)
	})
	VZEROUPPER()
	RET()
}

// encode converts eight floats, and at the end single ones through the same
// instructions.
func encode(v isa, name string, convert func(r reg.VecVirtual) reg.VecVirtual) {
	v.text("encode"+name, "(dst []byte, src []float32)", "",
		"	for i, f := range src {",
		"		dst[2*i:] = f rounded to nearest, ties to even, as "+name,
		"	}")
	dst, src, left := ptr("dst"), ptr("src"), length("src")
	loop("by1", left, 8, func() {
		r := YMM()
		VMOVUPS(at(src, 0), r)
		VMOVDQU(convert(r).AsX(), at(dst, 0))
		bump(dst, 16)
		bump(src, 32)
	})
	loop("single", left, 1, func() {
		r, g := YMM(), GP32()
		VMOVSS(at(src, 0), r.AsX())
		VMOVD(convert(r).AsX(), g)
		MOVW(g.As16(), at(dst, 0))
		bump(dst, 2)
		bump(src, 4)
	})
	VZEROUPPER()
	RET()
}

func encodeF16(r reg.VecVirtual) reg.VecVirtual {
	VCVTPS2PH(Imm(0), r, r.AsX())
	return r
}

// encodeBF16 adds 0x7fff and the last kept bit, except that a NaN has its quiet
// bit set instead, and packs the upper halves.
func (v isa) encodeBF16(r reg.VecVirtual) reg.VecVirtual {
	round, one, quiet := YMM(), YMM(), YMM()
	VPBROADCASTD(v.constant("bf16Round", U32(0x7fff)), round)
	VPBROADCASTD(v.constant("bf16One", U32(1)), one)
	VPBROADCASTD(v.constant("bf16Quiet", U32(0x400000)), quiet)
	odd, nan := YMM(), YMM()
	VPSRLD(Imm(16), r, odd)
	VPAND(one, odd, odd)
	VPADDD(round, odd, odd)
	VPADDD(r, odd, odd)
	VPOR(quiet, r, quiet)
	VCMPPS(Imm(3) /* unordered */, r, r, nan)
	VBLENDVPS(nan, quiet, odd, odd)
	VPSRLD(Imm(16), odd, odd)
	hi := YMM()
	VEXTRACTI128(Imm(1), odd, hi.AsX())
	VPACKUSDW(hi.AsX(), odd.AsX(), odd.AsX())
	return odd
}
