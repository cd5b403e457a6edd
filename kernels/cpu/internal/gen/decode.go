package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// decodeFile writes what turns codes into float32: the end of blocks, for AVX2 alone, as
// it outruns memory, and all of trellis codes.
func decodeFile(v isa) {
	if !v.wide {
		for _, group := range []int{16, 32} {
			floats(v, group, false)
			floats(v, group, true)
		}
	}
	tcqCodewords(v)
	for radix := 2; radix <= 8; radix *= 2 {
		butterflies(v, radix)
	}
	turnTiles(v)
	scaleRows(v)
	joinRows(v)
}

// floats ends the decoding of blocks: one product, and one difference, of each code.
func floats(v isa, group int, mins bool) {
	name, value := label("floats%d", group), label("S[i/%d] * code[i]", group)
	if mins {
		name, value = name+"Mins", value+label(" - M[i/%d]", group)
	}
	v.text(name, "(dst []float32, src []byte, runs int, flip uint32)", "",
		"	for i := range 256 {",
		"		dst[i] = "+value,
		"	}",
		"",
		"for runs of src at distance 384, codes being signed bytes once flip is applied to",
		"each four; every result is rounded.")
	dst, src := ptr("dst"), ptr("src")
	runs := Load(Param("runs"), GP64()).(reg.GPVirtual)
	flip := v.vec()
	VBROADCASTSS(mustAddr("flip"), flip)
	loop("run", runs, 1, func() {
		for g := range 256 / group {
			s, m := v.vec(), v.vec()
			VBROADCASTSS(at(src, 256+4*g), s)
			if mins {
				VBROADCASTSS(at(src, 256+4*(256/group)+4*g), m)
			}
			for i := 0; i < group; i += 16 {
				codes, part := XMM(), [2]reg.VecVirtual{v.vec(), v.vec()}
				VPXOR(at(src, g*group+i), flip.AsX(), codes)
				VPMOVSXBD(codes, part[0])
				VPSRLDQ(Imm(8), codes, codes)
				VPMOVSXBD(codes, part[1])
				for h, x := range part {
					VCVTDQ2PS(x, x)
					VMULPS(s, x, x)
					if mins {
						VSUBPS(m, x, x)
					}
					VMOVUPS(x, at(dst, 4*(g*group+i+8*h)))
				}
			}
		}
		bump(src, unpackedBytes)
		bump(dst, 1024)
	})
	VZEROUPPER()
	RET()
}

// tcqCodewords goes through a tile by columns, 16 rows in one register or two. The last
// window goes on with the ring's first word.
func tcqCodewords(v isa) {
	v.text("tcqCodewords", "(dst []float32, tiles *byte, count, bits int, cut *[40]uint32, factor uint32, scale float32)", "",
		"	for i := range 256*count {",
		"		dst[i] = scale * (the codeword of weight i%256 of tile i/256)",
		"	}",
		"",
		"codewords being the sums of the bytes of state * factor. Up to 16 bytes behind the",
		"last tile are read.")
	dst, tiles, cut := ptr("dst"), loadPointer("tiles"), loadPointer("cut")
	count := Load(Param("count"), GP64()).(reg.GPVirtual)
	step := Load(Param("bits"), GP64()).(reg.GPVirtual)
	SHLQ(Imm(1), step) // bytes of a column
	factor, scale := tcqFactor(v), v.vec()
	VBROADCASTSS(mustAddr("scale"), scale)
	halves := 16 / v.lanes
	places, shifts := v.vecs(halves), v.vecs(halves)
	for h := range halves {
		VMOVUPS(at(cut, 32*h), places[h])
		VMOVUPS(at(cut, 64+32*h), shifts[h])
	}
	keep, wrap := XMM(), XMM()
	VMOVDQU(at(cut, 128), keep)
	VMOVDQU(at(cut, 144), wrap)
	bytes, words, mask := v.words("tcqOneByte", 0x01010101), v.words("tcqOneWord", 0x00010001), v.words("tcqState", 0xffff)
	column := func(window reg.VecVirtual) {
		for h := range halves {
			x := v.vec()
			VPSHUFB(places[h], window, x)
			VPSRLVD(shifts[h], x, x)
			if v.wide {
				VPANDD(mask, x, x)
			} else {
				VPAND(mask, x, x)
			}
			VPMULLD(factor, x, x)
			VPMADDUBSW(x, bytes, x)
			VPMADDWD(words, x, x)
			VCVTDQ2PS(x, x)
			VMULPS(scale, x, x)
			VMOVUPS(x, at(dst, 32*h))
		}
		ADDQ(step, tiles)
		bump(dst, 64)
	}
	loop("tile", count, 1, func() {
		first, columns := XMM(), GP64()
		VMOVD(at(tiles, 0), first)
		MOVQ(U32(15), columns)
		loop("column", columns, 3, func() {
			for range 3 {
				window := v.vec()
				if v.wide {
					VBROADCASTI32X4(at(tiles, 0), window)
				} else {
					VBROADCASTI128(at(tiles, 0), window)
				}
				column(window)
			}
		})
		window := v.vec()
		VPSHUFB(wrap, first, first)
		VPAND(at(tiles, 0), keep, window.AsX())
		VPOR(first, window.AsX(), window.AsX())
		if v.wide {
			VSHUFI64X2(Imm(0), window, window, window)
		} else {
			VINSERTI128(Imm(1), window.AsX(), window, window)
		}
		column(window)
	})
	VZEROUPPER()
	RET()
}

// butterflies is one pass of Hadamard transforms, of 16 columns side by side: as many
// stages as a number of vectors in registers allows.
func butterflies(v isa, radix int) {
	v.text(label("butterflies%d", radix), "(x []float32, step int)", "",
		label("	for s := step; s < %d*step; s *= 2 {", radix),
		"		for i := 0; i < len(x); i += 2*s {",
		"			for j := i; j < i+s; j++ {",
		"				x[j], x[j+s] = x[j]+x[j+s], x[j]-x[j+s]",
		"			}",
		"		}",
		"	}",
		"",
		label("for steps of a multiple of 16 numbers and whole blocks of %d steps.", radix))
	x, left := ptr("x"), length("x")
	step := Load(Param("step"), GP64()).(reg.GPVirtual)
	SHLQ(Imm(2), step)
	rows := newStride(step)
	SHLQ(Imm(2), left)
	width := 4 * v.lanes
	fourth := GP64()
	Label("block")
	TESTQ(left, left)
	JZ(LabelRef("block_end"))
	here := GP64()
	MOVQ(step, here)
	loop("column", here, width, func() {
		if radix == 8 {
			LEAQ(Mem{Base: x, Index: step, Scale: 4}, fourth)
		}
		place := func(i int) Mem {
			if i < 4 {
				return rows.row(x, i, 0)
			}
			return rows.row(fourth, i-4, 0)
		}
		a := v.vecs(radix)
		for i := range a {
			VMOVUPS(place(i), a[i])
		}
		for s := 1; s < radix; s *= 2 {
			for i := 0; i < radix; i += 2 * s {
				for j := i; j < i+s; j++ {
					sum := v.vec()
					VADDPS(a[j+s], a[j], sum)
					VSUBPS(a[j+s], a[j], a[j+s])
					a[j] = sum
				}
			}
		}
		for i := range a {
			VMOVUPS(a[i], place(i))
		}
		bump(x, width)
		SUBQ(U32(uint32(width)), left)
	})
	// The block's other vectors are done too.
	for range radix - 1 {
		ADDQ(step, x)
		SUBQ(step, left)
	}
	JMP(LabelRef("block"))
	Label("block_end")
	VZEROUPPER()
	RET()
}

// turnTiles transposes, and ends the transform of what were columns.
func turnTiles(v isa) {
	v.text("turnTiles", "(dst []float32, ld int, x, post []float32, factor float32)", "",
		"	for c := range post {",
		"		for r := range 16 {",
		"			dst[c/16*ld+16*r+c%16] = x[16*c+r] * factor * post[c]",
		"		}",
		"	}",
		"",
		"for a multiple of 16 columns, ld counting elements.")
	dst, x, post, left := ptr("dst"), ptr("x"), ptr("post"), length("post")
	ld := Load(Param("ld"), GP64()).(reg.GPVirtual)
	SHLQ(Imm(2), ld)
	factor := v.vec()
	VBROADCASTSS(mustAddr("factor"), factor)
	loop("tile", left, 16, func() {
		if v.wide {
			a := v.vecs(16)
			for c := range a {
				VMULPS(at(x, 64*c), factor, a[c])
				VMULPS_BCST(at(post, 4*c), a[c], a[c])
			}
			for r, y := range transposed16(a) {
				VMOVUPS(y, at(dst, 64*r))
			}
		} else {
			for i := range 4 { // quarters of eight columns and rows
				c0, r0 := i/2*8, i%2*8
				a := v.vecs(8)
				for c := range a {
					p := v.vec()
					VMULPS(at(x, 64*(c0+c)+4*r0), factor, a[c])
					VBROADCASTSS(at(post, 4*(c0+c)), p)
					VMULPS(p, a[c], a[c])
				}
				for r, y := range transposed8(a) {
					VMOVUPS(y, at(dst, 64*(r0+r)+4*c0))
				}
			}
		}
		bump(x, 1024)
		bump(post, 64)
		ADDQ(ld, dst)
	})
	VZEROUPPER()
	RET()
}

// transposed4 transposes each 4x4 words of four registers' quarters.
func transposed4(v isa, a []reg.VecVirtual) []reg.VecVirtual {
	t, u := v.vecs(4), v.vecs(4)
	VUNPCKLPS(a[1], a[0], t[0])
	VUNPCKHPS(a[1], a[0], t[1])
	VUNPCKLPS(a[3], a[2], t[2])
	VUNPCKHPS(a[3], a[2], t[3])
	VUNPCKLPD(t[2], t[0], u[0])
	VUNPCKHPD(t[2], t[0], u[1])
	VUNPCKLPD(t[3], t[1], u[2])
	VUNPCKHPD(t[3], t[1], u[3])
	return u
}

func transposed8(a []reg.VecVirtual) []reg.VecVirtual {
	v := avx2(nil)
	low, high := transposed4(v, a[:4]), transposed4(v, a[4:])
	y := v.vecs(8)
	for i := range low {
		VPERM2F128(Imm(0x20), high[i], low[i], y[i])
		VPERM2F128(Imm(0x31), high[i], low[i], y[4+i])
	}
	return y
}

// transposed16 has, after the quarters, row 4q+i in quarter q of the four registers i.
func transposed16(a []reg.VecVirtual) []reg.VecVirtual {
	v := avx512(nil)
	var parts [4][]reg.VecVirtual
	for i := range parts {
		parts[i] = transposed4(v, a[4*i:4*i+4])
	}
	y := make([]reg.VecVirtual, 16)
	for i := range 4 {
		even, odd := v.vecs(2), v.vecs(2)
		for h := range 2 {
			VSHUFF32X4(Imm(0x88), parts[2*h+1][i], parts[2*h][i], even[h])
			VSHUFF32X4(Imm(0xdd), parts[2*h+1][i], parts[2*h][i], odd[h])
		}
		for q, pair := range [][]reg.VecVirtual{even, odd} {
			y[4*q+i], y[4*(q+2)+i] = v.vec(), v.vec()
			VSHUFF32X4(Imm(0x88), pair[1], pair[0], y[4*q+i])
			VSHUFF32X4(Imm(0xdd), pair[1], pair[0], y[4*(q+2)+i])
		}
	}
	return y
}

// scaleRows ends the transform of what were rows, and puts them where they belong.
func scaleRows(v isa) {
	v.text("scaleRows", "(dst []float32, ld int, x []float32, panels int, post []float32, factor float32)", "",
		"	for r := range post {",
		"		for i := range 16*panels {",
		"			dst[r*ld+i] = x[(i/16*len(post)+r)*16+i%16] * factor * post[r]",
		"		}",
		"	}",
		"",
		"ld counting elements.")
	v.placeRows(false)
}

// joinRows is scaleRows with the transform's last step, which pairs rows of the halves. The
// lines behind those that it writes are asked for: what is decoded lies row by row, and a
// processor does not follow a hundred rows by itself.
func joinRows(v isa) {
	v.text("joinRows", "(dst []float32, ld int, x []float32, panels int, post []float32, factor float32)", "",
		"	half := len(post) / 2",
		"	for r := range half {",
		"		for i := range 16*panels {",
		"			a, b := x[(i/16*len(post)+r)*16+i%16], x[(i/16*len(post)+half+r)*16+i%16]",
		"			dst[r*ld+i] = (a + b) * factor * post[r]",
		"			dst[(half+r)*ld+i] = (a - b) * factor * post[half+r]",
		"		}",
		"	}",
		"",
		"ld counting elements.")
	v.placeRows(true)
}

// placeRows is the body of both.
func (v isa) placeRows(joined bool) {
	dst, x, post, left := ptr("dst"), ptr("x"), ptr("post"), length("post")
	ld := Load(Param("ld"), GP64()).(reg.GPVirtual)
	SHLQ(Imm(2), ld)
	pitch, half, far := GP64(), GP64(), GP64() // far: from a row to its partner, in dst
	MOVQ(left, pitch)
	SHLQ(Imm(6), pitch)
	if joined {
		SHRQ(Imm(1), left)
		MOVQ(left, half)
		MOVQ(ld, far)
		IMULQ(half, far)
	}
	factor := v.vec()
	VBROADCASTSS(mustAddr("factor"), factor)
	loop("row", left, 1, func() {
		p, q, from, other, to := v.vec(), v.vec(), GP64(), GP64(), GP64()
		VBROADCASTSS(at(post, 0), p)
		if joined {
			VBROADCASTSS(Mem{Base: post, Index: half, Scale: 4}, q)
			MOVQ(pitch, other)
			SHRQ(Imm(1), other)
			ADDQ(x, other)
		}
		MOVQ(x, from)
		MOVQ(dst, to)
		panels := Load(Param("panels"), GP64()).(reg.GPVirtual)
		loop("panel", panels, 1, func() {
			if joined {
				PREFETCHT1(at(to, 512))
				PREFETCHT1(Mem{Base: to, Index: far, Scale: 1, Disp: 512})
			}
			for i := range 16 / v.lanes {
				a, b, sum := v.vec(), v.vec(), v.vec()
				if !joined {
					VMULPS(at(from, 32*i), factor, a)
					VMULPS(p, a, a)
					VMOVUPS(a, at(to, 32*i))
					continue
				}
				VMOVUPS(at(from, 32*i), a)
				VMOVUPS(at(other, 32*i), b)
				VADDPS(b, a, sum)
				VSUBPS(b, a, a)
				VMULPS(factor, sum, sum)
				VMULPS(factor, a, a)
				VMULPS(p, sum, sum)
				VMULPS(q, a, a)
				VMOVUPS(sum, at(to, 32*i))
				VMOVUPS(a, Mem{Base: to, Index: far, Scale: 1, Disp: 32 * i})
			}
			ADDQ(pitch, from)
			if joined {
				ADDQ(pitch, other)
			}
			bump(to, 64)
		})
		bump(x, 64)
		bump(post, 4)
		ADDQ(ld, dst)
	})
	VZEROUPPER()
	RET()
}
