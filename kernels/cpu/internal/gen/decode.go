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
	tcqCodewords(v, false)
	for radix := 2; radix <= 8; radix *= 2 {
		butterflies(v, radix)
	}
	turnTiles(v, false)
	scaleRows(v)
	joinRows(v)
	if v.wide { // of registers enough to go through memory less often
		tcqCodewords(v, true)
		butterflies(v, 16)
		turnTiles(v, true)
	}
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
// window goes on with the ring's first word. joined begins the transform of rows, while
// eight columns are in registers.
func tcqCodewords(v isa, joined bool) {
	name, then := "tcqCodewords", []string{}
	if joined {
		name, then = "tcqCodewords8", []string{"	butterflies8(dst, 16)"}
	}
	v.text(name, "(dst []float32, tiles *byte, count, bits int, cut *[40]uint32, factor uint32, scale float32)",
		append(append([]string{"", "	for i := range 256*count {",
			"		dst[i] = scale * (the codeword of weight i%256 of tile i/256)",
			"	}"}, then...),
			"",
			"codewords being the sums of the bytes of state * factor. Up to 16 bytes behind the",
			"last tile are read.")...)
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
	column := func(window reg.VecVirtual, keep func(h int, x reg.VecVirtual)) {
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
			keep(h, x)
		}
		ADDQ(step, tiles)
	}
	window := func() reg.VecVirtual {
		w := v.vec()
		if v.wide {
			VBROADCASTI32X4(at(tiles, 0), w)
		} else {
			VBROADCASTI128(at(tiles, 0), w)
		}
		return w
	}
	last := func(first reg.VecVirtual) reg.VecVirtual {
		w := v.vec()
		VPSHUFB(wrap, first, first)
		VPAND(at(tiles, 0), keep, w.AsX())
		VPOR(first, w.AsX(), w.AsX())
		if v.wide {
			VSHUFI64X2(Imm(0), w, w, w)
		} else {
			VINSERTI128(Imm(1), w.AsX(), w, w)
		}
		return w
	}
	loop("tile", count, 1, func() {
		first := XMM()
		VMOVD(at(tiles, 0), first)
		if joined {
			for half := range 2 {
				a := make([]reg.VecVirtual, 8)
				for c := range a {
					w := reg.VecVirtual(nil)
					if half*8+c < 15 {
						w = window()
					} else {
						w = last(first)
					}
					column(w, func(_ int, x reg.VecVirtual) { a[c] = x })
				}
				v.hadamard(a)
				for c, x := range a {
					VMOVUPS(x, at(dst, 64*c))
				}
				bump(dst, 512)
			}
			return
		}
		store := func(h int, x reg.VecVirtual) { VMOVUPS(x, at(dst, 32*h)) }
		columns := GP64()
		MOVQ(U32(15), columns)
		loop("column", columns, 3, func() {
			for range 3 {
				column(window(), store)
				bump(dst, 64)
			}
		})
		column(last(first), store)
		bump(dst, 64)
	})
	VZEROUPPER()
	RET()
}

// hadamard transforms vectors as they stand, all but the factor.
func (v isa) hadamard(a []reg.VecVirtual) {
	for s := 1; s < len(a); s *= 2 {
		for i := 0; i < len(a); i += 2 * s {
			for j := i; j < i+s; j++ {
				sum := v.vec()
				VADDPS(a[j+s], a[j], sum)
				VSUBPS(a[j+s], a[j], a[j+s])
				a[j] = sum
			}
		}
	}
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
	fours := []reg.Register{x} // every fourth row
	for range radix/4 - 1 {
		fours = append(fours, GP64())
	}
	Label("block")
	TESTQ(left, left)
	JZ(LabelRef("block_end"))
	here := GP64()
	MOVQ(step, here)
	loop("column", here, width, func() {
		for i := range len(fours) - 1 {
			LEAQ(Mem{Base: fours[i], Index: step, Scale: 4}, fours[i+1])
		}
		place := func(i int) Mem { return rows.row(fours[i/4], i%4, 0) }
		a := v.vecs(radix)
		for i := range a {
			VMOVUPS(place(i), a[i])
		}
		v.hadamard(a)
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

// turnTiles transposes, and ends the transform of what were columns. joined begins that of what
// were rows, while sixteen are in registers.
func turnTiles(v isa, joined bool) {
	name, then := "turnTiles", []string{}
	if joined {
		name, then = "turnTiles16", []string{"	for each tile: butterflies16(dst[c/16*ld:][:256], 16)"}
	}
	v.text(name, "(dst []float32, ld int, x, post []float32, factor float32)",
		append(append([]string{"", "	for c := range post {",
			"		for r := range 16 {",
			"			dst[c/16*ld+16*r+c%16] = x[16*c+r] * factor * post[c]",
			"		}",
			"	}"}, then...),
			"",
			"for a multiple of 16 columns, ld counting elements.")...)
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
			turned := transposed16(a)
			if joined {
				v.hadamard(turned)
			}
			for r, y := range turned {
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
	dst, x, post, left := ptr("dst"), ptr("x"), ptr("post"), length("post")
	ld := Load(Param("ld"), GP64()).(reg.GPVirtual)
	SHLQ(Imm(2), ld)
	pitch := GP64()
	MOVQ(left, pitch)
	SHLQ(Imm(6), pitch)
	factor := v.vec()
	VBROADCASTSS(mustAddr("factor"), factor)
	loop("row", left, 1, func() {
		p, from, to := v.vec(), GP64(), GP64()
		VBROADCASTSS(at(post, 0), p)
		MOVQ(x, from)
		MOVQ(dst, to)
		panels := Load(Param("panels"), GP64()).(reg.GPVirtual)
		loop("panel", panels, 1, func() {
			for i := range 16 / v.lanes {
				a := v.vec()
				VMULPS(at(from, 32*i), factor, a)
				VMULPS(p, a, a)
				VMOVUPS(a, at(to, 32*i))
			}
			ADDQ(pitch, from)
			bump(to, 64)
		})
		bump(x, 64)
		bump(post, 4)
		ADDQ(ld, dst)
	})
	VZEROUPPER()
	RET()
}

// joinRows is scaleRows of 128 rows with the transform's last three steps, which join every
// sixteenth row. The lines behind those that it writes are asked for: what is decoded lies row by
// row, and a processor does not follow a hundred rows by itself.
func joinRows(v isa) {
	v.text("joinRows", "(dst []float32, ld int, x []float32, panels int, post []float32, factor float32)", "",
		"	for p := range panels {",
		"		butterflies8(x[2048*p:][:2048], 256)",
		"	}",
		"	scaleRows(dst, ld, x, panels, post, factor)",
		"",
		"for 128 rows, ld counting elements; x stays as it is.")
	dst, x, post := ptr("dst"), ptr("x"), ptr("post")
	ld := Load(Param("ld"), GP64()).(reg.GPVirtual)
	SHLQ(Imm(2), ld)
	far := GP64() // from a row to the next that it is joined with
	MOVQ(ld, far)
	SHLQ(Imm(4), far)
	rows := newStride(far)
	factor := v.vec()
	VBROADCASTSS(mustAddr("factor"), factor)
	left := GP64()
	MOVQ(U32(16), left)
	loop("row", left, 1, func() {
		from, to, fourth := GP64(), GP64(), GP64()
		MOVQ(x, from)
		MOVQ(dst, to)
		LEAQ(Mem{Base: to, Index: far, Scale: 4}, fourth)
		place := func(i, disp int) Mem {
			if i < 4 {
				return rows.row(to, i, disp)
			}
			return rows.row(fourth, i-4, disp)
		}
		var p []reg.VecVirtual
		for i := range 8 {
			if v.wide {
				p = append(p, v.vec())
				VBROADCASTSS(at(post, 64*i), p[i])
			}
		}
		panels := Load(Param("panels"), GP64()).(reg.GPVirtual)
		loop("panel", panels, 1, func() {
			for i := range 8 {
				PREFETCHT1(place(i, 512))
			}
			for h := range 16 / v.lanes {
				a := v.vecs(8)
				for i := range a {
					VMOVUPS(at(from, 1024*i+32*h), a[i])
				}
				v.hadamard(a)
				for i := range a {
					VMULPS(factor, a[i], a[i])
					if v.wide {
						VMULPS(p[i], a[i], a[i])
					} else {
						q := v.vec()
						VBROADCASTSS(at(post, 64*i), q)
						VMULPS(q, a[i], a[i])
					}
					VMOVUPS(a[i], place(i, 32*h))
				}
			}
			bump(from, 8192)
			bump(to, 64)
			bump(fourth, 64)
		})
		bump(x, 64)
		bump(post, 4)
		ADDQ(ld, dst)
	})
	VZEROUPPER()
	RET()
}
