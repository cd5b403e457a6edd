package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// partTile is the bytes of a tile of 16 rows of 32 numbers in bfloat16, or of 16 float32.
const partTile = 16 * 64

func partsFile(v isa) {
	if !v.wide {
		return
	}
	splitParts(v)
	multiplyParts(v)
}

// splitParts rounds to bfloat16 by adding half of what is cut off, three times.
func splitParts(v isa) {
	v.text("splitParts", "(dst []float32, src []float32, stride, second int) (rest uint32)", "",
		"	for i := range 16 {",
		"		for j := range 16 {",
		"			lo, hi := src[i*stride+j], src[i*stride+second+j]",
		"			for p := range 3 {",
		"				l, h := bfloat16(lo), bfloat16(hi) // half away from zero, a NaN to a NaN",
		"				dst[p*256+i*16+j] = l and h as one word of 32 bits, l in its lower half",
		"				lo, hi = lo-l, hi-h",
		"			}",
		"		}",
		"	}",
		"",
		"rest is 0 where parts 1 and 2 are zeros.")
	dst, src := ptr("dst"), ptr("src")
	stride, second := Load(Param("stride"), GP64()).(reg.GPVirtual), Load(Param("second"), GP64()).(reg.GPVirtual)
	SHLQ(Imm(2), stride)
	half, mask, nan, any := v.vec(), v.vec(), v.vec(), v.vec()
	VPBROADCASTD(v.constant("partsHalf", U32(0x8000)), half)
	VPBROADCASTD(v.constant("partsMask", U32(0xffff0000)), mask)
	VPBROADCASTD(v.constant("partsNaN", U32(0x7fc00000)), nan) // the bits of some others would round to 0
	v.zero(any)
	left := GP64()
	MOVQ(U32(16), left)
	loop("rows", left, 1, func() {
		x := v.vecs(2)
		VMOVUPS(at(src, 0), x[0])
		VMOVUPS(Mem{Base: src, Index: second, Scale: 4}, x[1])
		for i := range x {
			odd := K()
			VCMPPS(Imm(3) /* unordered */, x[i], x[i], odd)
			VMOVAPS(nan, odd, x[i])
		}
		for p := range 3 {
			r := v.vecs(2)
			for i := range x {
				VPADDD(half, x[i], r[i])
				VPANDD(mask, r[i], r[i])
				if p < 2 {
					VSUBPS(r[i], x[i], x[i])
				}
			}
			VPSRLD(Imm(16), r[0], r[0])
			VPORD(r[1], r[0], r[0])
			VMOVUPS(r[0], at(dst, p*partTile))
			if p > 0 {
				VPORD(r[0], any, any)
			}
		}
		ADDQ(stride, src)
		bump(dst, 64)
	})
	k, out := K(), GP32()
	VPTESTMD(any, any, k)
	KMOVW(k, out)
	Store(out, Return("rest"))
	VZEROUPPER()
	RET()
}

// multiplyParts keeps four sums of 16x16 in tiles 0 to 3, two tiles of rows in 4 and 5, two of
// columns in 6 and 7: registers are chosen by hand. Of the nine products of parts those
// are left out that are 2^-24 of the largest and less.
func multiplyParts(v isa) {
	v.text("multiplyParts", "(c []float32, ldc int, a, b []float32, steps int, exact, add bool)", "",
		"	for i := range 32 {",
		"		for j := range 32 {",
		"			s := sum over the 32*steps numbers of row i of a and column j of b of their products",
		"			c[i*ldc+j] = s, or += s where add is set",
		"		}",
		"	}",
		"",
		"on tiles of bfloat16 (Intel AMX, which the system has to allow first). A step of a is two",
		"times 16 rows, one of b two times 16 columns, each as three tiles of splitParts, or with",
		"exact as the first of them, the others being zeros: the sums are the same. steps is 1 and more.")
	c, ldc, rows, columns, steps := reg.RDI, reg.RSI, reg.RBX, reg.RDX, reg.R10
	Load(Param("c").Base(), c)
	Load(Param("ldc"), ldc)
	SHLQ(Imm(2), ldc)
	Load(Param("a").Base(), rows)
	Load(Param("b").Base(), columns)
	Load(Param("steps"), steps)
	LEAQ(v.tileShapes(), reg.RAX)
	vex(vexNone, 0x49, 0, 0x00) // LDTILECFG (AX)
	corner := func(f func(tile int)) {
		MOVQ(ldc, reg.RCX)
		MOVQ(ldc, reg.R8)
		SHLQ(Imm(4), reg.R8)
		for i := range 2 {
			MOVQ(c, reg.RAX)
			if i == 1 {
				ADDQ(reg.R8, reg.RAX)
			}
			f(2 * i)
			ADDQ(Imm(64), reg.RAX)
			f(2*i + 1)
		}
	}
	load := func(tile int, from reg.Register, disp int) {
		LEAQ(Mem{Base: from, Disp: disp}, reg.RAX)
		vex(vexF2, 0x4b, 0, 0x04|byte(tile)<<3, sibAXCX) // TILELOADD (AX)(CX*1), TMM
	}
	// soon asks for some lines of the next step, so that tiles are loaded from L1.
	next := 0
	soon := func(of int) {
		lines := 8
		if of == 1 {
			lines = 11
		}
		for range lines {
			switch {
			case next < 6*16:
				PREFETCHT0(Mem{Base: rows, Disp: 6*partTile + 64*next})
			case next < (6+2*of)*16:
				PREFETCHT0(Mem{Base: columns, Disp: 2*of*partTile + 64*(next-6*16)})
			}
			next++
		}
	}
	// products adds those of a part of rows and a part of columns; -1: the part that is in the tiles.
	products := func(a, b, of int) {
		for i := range 2 {
			if a >= 0 {
				load(4+i, rows, (3*i+a)*partTile)
			}
			if b >= 0 {
				load(6+i, columns, (of*i+b)*partTile)
			}
		}
		for i := range 4 {
			soon(of)
			vex(vexF3, 0x5c, 6+i%2, 0xc0|byte(i)<<3|byte(4+i/2)) // TDPBF16PS: TMMi += TMM(4+i/2) * TMM(6+i%2)
		}
	}
	sums := func(name string, of int) {
		next = 0
		loopOn(name, steps, func() {
			products(2, 0, of)
			products(1, -1, of)
			products(0, -1, of)
			if of == 3 {
				products(-1, 1, of)
				products(-1, 2, of)
				products(1, 1, of)
			}
			ADDQ(I32(6*partTile), rows)
			ADDQ(I32(int32(2*of*partTile)), columns)
		})
	}
	Load(Param("add"), reg.AL)
	TESTB(reg.AL, reg.AL)
	JZ(LabelRef("zero"))
	corner(func(tile int) { vex(vexF2, 0x4b, 0, 0x04|byte(tile)<<3, sibAXCX) })
	JMP(LabelRef("begin"))
	Label("zero") // sums are stored where nothing was read: their lines are asked for now
	MOVQ(c, reg.RAX)
	MOVQ(U32(2*16), reg.R9)
	loopOn("lines", reg.R9, func() {
		PREFETCHT0(Mem{Base: reg.RAX})
		PREFETCHT0(Mem{Base: reg.RAX, Disp: 64})
		ADDQ(ldc, reg.RAX)
	})
	for i := range 4 {
		vex(vexF2, 0x49, 0, 0xc0|byte(i)<<3) // TILEZERO
	}
	Label("begin")
	MOVQ(I32(64), reg.RCX)
	Load(Param("exact"), reg.AL)
	TESTB(reg.AL, reg.AL)
	JZ(LabelRef("whole"))
	sums("first", 1)
	JMP(LabelRef("store"))
	Label("whole")
	sums("all", 3)
	Label("store")
	corner(func(tile int) { vex(vexF3, 0x4b, 0, 0x04|byte(tile)<<3, sibAXCX) }) // TILESTORED
	vex(vexNone, 0x49, 0, 0xc0)                                                 // TILERELEASE
	RET()
}
