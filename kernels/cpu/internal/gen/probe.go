package main

import (
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// probeFile writes the loops that a machine's limits are measured with: one that
// only reads, and for each kind of multiplication one that only multiplies.
func probeFile(v isa) {
	readWords(v)
	v.peak("peakF32", "1 * 1, in float32", func(acc, x, _ reg.VecVirtual) { VFMADD231PS(x, x, acc) },
		func(x, _ reg.VecVirtual) { VBROADCASTSS(v.constant("exp1", F32(1)), x) })
	if v.wide {
		v.peak("peakVNNI", "1*1 + 1*1 + 1*1 + 1*1, of bytes in int32", func(acc, x, _ reg.VecVirtual) { VPDPBUSD(x, x, acc) },
			func(x, _ reg.VecVirtual) { VPBROADCASTD(v.constant("ones8", U32(0x01010101)), x) })
		peakBF16(v)
		v.peakTiles("peakTileInt8", "the sum over 64 of 1*1, of signed bytes in int32", 0x01010101, 0x5e, vexF2)
		v.peakTiles("peakTileBF16", "the sum over 32 of 1*1, of bfloat16 in float32", 0x3f803f80, 0x5c, vexF3)
		return
	}
	v.peak("peakInt8", "1*1 + 1*1 + 1*1 + 1*1, of bytes by way of int16 in int32", func(acc, x, y reg.VecVirtual) {
		t := v.vec()
		VPMADDUBSW(x, x, t)
		VPMADDWD(y, t, t)
		VPADDD(t, acc, acc)
	}, func(x, y reg.VecVirtual) {
		VPBROADCASTD(v.constant("ones8", U32(0x01010101)), x)
		VPBROADCASTD(v.constant("ones16", U32(0x00010001)), y)
	})
}

// readWords keeps eight sums, so that no instruction waits for another.
func readWords(v isa) {
	const sums = 8
	step := sums * 4 * v.lanes
	v.text("readWords", "(p []byte) uint64", "",
		"	for ; len(p) > 0; p = p[8:] {",
		"		x ^= binary.LittleEndian.Uint64(p)",
		"	}",
		"	return x",
		"",
		label("where len(p) is a multiple of %d.", step))
	p, left, acc := ptr("p"), length("p"), v.vecs(sums)
	for _, a := range acc {
		v.zero(a)
	}
	loop("words", left, step, func() {
		for i, a := range acc {
			if v.wide {
				VPXORQ(at(p, 64*i), a, a)
			} else {
				VPXOR(at(p, 32*i), a, a)
			}
		}
		bump(p, step)
	})
	for n := sums / 2; n > 0; n /= 2 {
		for i := range n {
			if v.wide {
				VPXORQ(acc[n+i], acc[i], acc[i])
			} else {
				VPXOR(acc[n+i], acc[i], acc[i])
			}
		}
	}
	a, t, x := acc[0], acc[1], GP64()
	if v.wide {
		VEXTRACTI64X4(Imm(1), a, t.AsY())
		VPXOR(t.AsY(), a.AsY(), a.AsY())
	}
	VEXTRACTI128(Imm(1), a.AsY(), t.AsX())
	VPXOR(t.AsX(), a.AsX(), a.AsX())
	VPSRLDQ(Imm(8), a.AsX(), t.AsX())
	VPXOR(t.AsX(), a.AsX(), a.AsX())
	VMOVQ(a.AsX(), x)
	Store(x, ReturnIndex(0))
	VZEROUPPER()
	RET()
}

// peakSums is how many sums a peak loop keeps in flight: two instructions a cycle,
// each waiting for the one six before it, are more than any latency needs.
const peakSums = 12

func (v isa) peakText(name, product string) (dst, rounds reg.GPVirtual) {
	v.text(name, "(dst []float32, rounds int)", "",
		"	for range rounds {",
		"		for i := range dst {",
		"			dst[i] += "+product,
		"		}",
		"	}",
		"",
		label("on registers alone, from zero, for len(dst) = %d; int32 sums are stored as their bits.", peakSums*v.lanes))
	return ptr("dst"), Load(Param("rounds"), GP64()).(reg.GPVirtual)
}

// peak writes one multiplying loop; set fills the factors, and step multiplies.
func (v isa) peak(name, product string, step func(acc, x, y reg.VecVirtual), set func(x, y reg.VecVirtual)) {
	dst, rounds := v.peakText(name, product)
	x, y, acc := v.vec(), v.vec(), v.vecs(peakSums)
	set(x, y)
	for _, a := range acc {
		v.zero(a)
	}
	loop("round", rounds, 1, func() {
		for _, a := range acc {
			step(a, x, y)
		}
	})
	for i, a := range acc {
		VMOVUPS(a, at(dst, 4*v.lanes*i))
	}
	VZEROUPPER()
	RET()
}

// peakBF16 spells its one instruction in bytes: neither avo nor Go's assembler
// knows VDPBF16PS. TestPeaks holds it to the sums that it must give.
func peakBF16(v isa) {
	dst, rounds := v.peakText("peakBF16", "1*1 + 1*1, of bfloat16 in float32")
	one := reg.Z12
	VPBROADCASTD(v.constant("onesBF16", U32(0x3f803f80)), one)
	acc := []reg.VecPhysical{reg.Z0, reg.Z1, reg.Z2, reg.Z3, reg.Z4, reg.Z5, reg.Z6, reg.Z7, reg.Z8, reg.Z9, reg.Z10, reg.Z11}
	for _, a := range acc {
		VPXORD(a, a, a)
	}
	loop("round", rounds, 1, func() {
		for i := range acc {
			bytes(dpbf16(i, 12, 12)...)
		}
	})
	for i, a := range acc {
		VMOVUPS(a, at(dst, 64*i))
	}
	VZEROUPPER()
	RET()
}

// dpbf16 encodes VDPBF16PS zmm<a>, zmm<x>, zmm<acc> for registers below 16:
// EVEX.512.F3.0F38.W0 52 /r (Intel SDM, volume 2).
func dpbf16(acc, x, a int) []byte {
	p0 := byte(0xf2) // R, X, B and R' inverted; map 0F38
	p0 &^= byte(acc>>3)<<7 | byte(a>>3)<<5
	p1 := byte(^x&15)<<3 | 0x06 // vvvv inverted, a fixed 1, prefix F3
	return []byte{0x62, p0, p1, 0x48, 0x52, 0xc0 | byte(acc&7)<<3 | byte(a&7)}
}

// Prefixes of VEX instructions.
const (
	vexNone, vexF3, vexF2 = 0, 2, 3
)

// vex encodes an instruction of 128 bits from map 0F38 on registers below 8, with
// the second source v: VEX.128.pp.0F38.W0 (Intel SDM, volume 2, AMX). v is 0 where
// there is none.
func vex(pp, opcode, v int, rest ...byte) {
	bytes(append([]byte{0xc4, 0xe2, byte(^v&15)<<3 | byte(pp), byte(opcode)}, rest...)...)
}

// peakTiles multiplies tiles of 16 rows of 64 bytes (AMX), into four sums of 16x16.
// The system has to allow it first.
func (v isa) peakTiles(name, product string, ones uint32, opcode, pp int) {
	const sums, tile = 4, 16 * 16
	v.text(name, "(dst []float32, rounds int)", "",
		"	for range rounds {",
		"		for i := range dst {",
		"			dst[i] += "+product,
		"		}",
		"	}",
		"",
		label("on tiles alone, from zero, for len(dst) = %d; int32 sums are stored as their bits.", sums*tile))
	Load(Param("dst").Base(), reg.RDX)
	Load(Param("rounds"), reg.RBX)
	LEAQ(v.tileShapes(), reg.RAX)
	vex(vexNone, 0x49, 0, 0x00) // LDTILECFG (AX)
	LEAQ(v.tileOnes(name+"Ones", ones), reg.RAX)
	XORQ(reg.RCX, reg.RCX)                  // the same 64 bytes for every row
	vex(vexF2, 0x4b, 0, 0x04|4<<3, sibAXCX) // TILELOADD (AX)(CX*1), TMM4
	vex(vexF2, 0x4b, 0, 0x04|5<<3, sibAXCX) // TMM5
	for i := range sums {
		vex(vexF2, 0x49, 0, 0xc0|byte(i)<<3) // TILEZERO
	}
	loopOn("round", reg.RBX, func() {
		for i := range sums {
			vex(pp, opcode, 5, 0xc0|byte(i)<<3|4) // TMMi += TMM4 * TMM5
		}
	})
	MOVQ(reg.RDX, reg.RAX)
	MOVQ(I32(64), reg.RCX)
	for i := range sums {
		vex(vexF3, 0x4b, 0, 0x04|byte(i)<<3, sibAXCX) // TILESTORED TMMi, (AX)(CX*1)
		bump(reg.RAX, 4*tile)
	}
	vex(vexNone, 0x49, 0, 0xc0) // TILERELEASE
	RET()
}

// loopOn is loop by steps of one on a register that is chosen by hand.
func loopOn(name string, left reg.Register, body func()) {
	Label(name)
	CMPQ(left, Imm(1))
	JL(LabelRef(name + "_end"))
	body()
	DECQ(left)
	JMP(LabelRef(name))
	Label(name + "_end")
}

// sibAXCX addresses AX + CX.
const sibAXCX = 0x08

// tileShapes is the configuration: palette 1, eight tiles of 16 rows of 64 bytes.
func (v isa) tileShapes() Mem {
	const name = "tileShapes"
	if m, ok := v.data[name]; ok {
		return m
	}
	m := GLOBL(name, 8|16 /* RODATA|NOPTR */)
	DATA(0, U64(1))
	DATA(8, U64(0))
	for i := 16; i < 32; i += 8 {
		DATA(i, U64(0x0040004000400040))
	}
	DATA(32, U64(0))
	DATA(40, U64(0))
	DATA(48, U64(0x1010101010101010))
	DATA(56, U64(0))
	v.data[name] = m
	return m
}

func (v isa) tileOnes(name string, ones uint32) Mem {
	m := GLOBL(name, 8|16 /* RODATA|NOPTR */)
	for i := range 16 {
		DATA(4*i, U32(ones))
	}
	return m
}

// bytes writes an instruction as it is.
func bytes(code ...byte) {
	for _, b := range code {
		Instruction(&ir.Instruction{Opcode: "BYTE", Operands: []Op{Imm(uint64(b))}})
	}
}
