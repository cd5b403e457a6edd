package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

// tcqFile writes, for each number of bits, the product of 16 rows of codewords
// with a record of activations. It takes VBMI and VNNI.
func tcqFile(v isa) {
	if !v.wide {
		return
	}
	for bits := trellisMin; bits <= trellisMax; bits++ {
		tcqProduct(v, bits)
	}
}

// tcqProduct keeps one row of a tile in each lane and goes through the columns.
// A column's 16 windows begin at a byte; two of them are in each 64-bit lane.
func tcqProduct(v isa, bits int) {
	v.text(fmt.Sprintf("tcqProduct%d", bits), "(acc *[16]float32, tiles, record *byte, groups int)", "",
		"	acc[r] += d[g] * (sum over c of code[r][c] * q[c])",
		"for groups of 32 columns of two tiles each, codewords being those of codebook 1.")
	acc, tiles, record := loadPointer("acc"), loadPointer("tiles"), loadPointer("record")
	left := GP64()
	Load(Param("groups"), left)
	sum := v.vec()
	VMOVUPS(at(acc, 0), sum)
	place, cut := v.vec(), v.vec()
	VMOVUPS(tcqPlaces(v, bits), place)
	VMOVUPS(tcqCuts(v, bits), cut)
	low := K()
	mask := GP64()
	MOVQ(Imm(0x3333333333333333), mask) // the lower two bytes of each state
	KMOVQ(mask, low)
	factor, flip := v.words("tcqFactor", 0xCE5C43), v.words("tcqFlip", 0x80808080)
	shift, scale := GP64(), GP64()
	LEAQ(at(record, 384), shift)
	LEAQ(at(record, 256), scale)
	loop("group", left, 1, func() {
		whole := v.vec()
		VPBROADCASTD(at(shift, 0), whole)
		VPSLLD(Imm(2), whole, whole) // codewords are sums of four bytes, each 128 too large
		other := v.vec()
		zeroed(other)
		for column := range 32 {
			tile, c := column/16*32*bits, column%16
			window := v.vec()
			if c == 15 { // its last bits are the ring's first
				VMOVDQU(at(tiles, tile+30*bits), window.AsX())
				VPINSRW(Imm(uint64(bits)), at(tiles, tile), window.AsX(), window.AsX())
				VSHUFI32X4(Imm(0), window, window, window)
			} else {
				VBROADCASTI32X4(at(tiles, tile+2*bits*c), window)
			}
			VPSHUFB(place, window, window)
			VPMULTISHIFTQB_Z(window, cut, low, window)
			VPMULLD(factor, window, window)
			VPXORD(flip, window, window)
			q := v.vec()
			VPBROADCASTB(at(record, column), q)
			into := whole
			if column%2 == 1 {
				into = other
			}
			VPDPBUSD(q, window, into)
		}
		VPADDD(other, whole, whole)
		VCVTDQ2PS(whole, whole)
		VFMADD231PS_BCST(at(scale, 0), whole, sum)
		bump(tiles, 64*bits)
		bump(record, 32)
		bump(shift, 4)
		bump(scale, 4)
	})
	VMOVUPS(sum, at(acc, 0))
	VZEROUPPER()
	RET()
}

// tcqPlaces brings to each 64-bit lane the bytes in which its two windows lie.
func tcqPlaces(v isa, bits int) Mem {
	m := GLOBL(fmt.Sprintf("tcqPlaces%d", bits), 8|16 /* RODATA|NOPTR */)
	for pair := range 8 {
		first := 2 * pair * bits / 8
		for b := range 8 {
			DATA(8*pair+b, U8(uint8(min(first+b, 15))))
		}
	}
	return m
}

// tcqCuts says from which bits of its lane each byte of a state comes.
func tcqCuts(v isa, bits int) Mem {
	m := GLOBL(fmt.Sprintf("tcqCuts%d", bits), 8|16 /* RODATA|NOPTR */)
	for pair := range 8 {
		from := 2 * pair * bits % 8
		for half := range 2 {
			for b := range 4 {
				DATA(8*pair+4*half+b, U8(uint8((from+half*bits+8*b)%64)))
			}
		}
	}
	return m
}
