package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// tcqFile writes, for each number of bits, the product of 16 rows of codewords
// with a record of activations. It takes VBMI and VNNI.
func tcqFile(v isa) {
	for bits := trellisMin; bits <= trellisMax; bits++ {
		if v.wide {
			tcqProduct(v, bits)
		} else {
			tcqNarrow(v, bits)
		}
	}
}

// tcqText opens the product of a number of bits.
func tcqText(v isa, bits int) {
	v.text(fmt.Sprintf("tcqProduct%d", bits), "(acc *[16]float32, tiles, record *byte, groups int, factor uint32)", "",
		"	acc[r] += d[g] * (sum over c of code[r][c] * q[c])",
		"for groups of 32 columns of two tiles each, codewords being the sums of the bytes of state * factor.")
}

// tcqFactor broadcasts the argument of that name.
func tcqFactor(v isa) reg.VecVirtual {
	factor, scalar := v.vec(), Load(Param("factor"), GP32()).(reg.GPVirtual)
	if v.wide {
		VPBROADCASTD(scalar, factor)
	} else {
		VMOVD(scalar, factor.AsX())
		VPBROADCASTD(factor.AsX(), factor)
	}
	return factor
}

// tcqWindow loads the 16 bytes in which a column's windows begin.
func tcqWindow(tiles reg.GPVirtual, bits, column int, window reg.VecVirtual, spread func(m Op)) {
	tile, c := column/16*32*bits, column%16
	if c < 15 {
		spread(at(tiles, tile+2*bits*c))
		return
	}
	// Its last bits are the ring's first.
	VMOVDQU(at(tiles, tile+30*bits), window.AsX())
	VPINSRW(Imm(uint64(bits)), at(tiles, tile), window.AsX(), window.AsX())
	spread(window.AsX())
}

// tcqNarrow keeps eight rows of a tile in each of two registers. The bytes of a
// product are added before they are multiplied: sums of two fit 16 bits.
func tcqNarrow(v isa, bits int) {
	tcqText(v, bits)
	acc, tiles, record := loadPointer("acc"), loadPointer("tiles"), loadPointer("record")
	left := GP64()
	Load(Param("groups"), left)
	sums, places := v.vecs(2), v.vecs(2)
	shift := v.vec()
	for half := range 2 {
		VMOVUPS(at(acc, 32*half), sums[half])
		VMOVDQU(tcqWindows(fmt.Sprintf("tcqNarrow%d%d", bits, half), bits, 8*half, 8), places[half])
	}
	VMOVDQU(tcqStarts(fmt.Sprintf("tcqShifts%d", bits), bits, 8), shift)
	factor, ones, twice := tcqFactor(v), v.vec(), v.vec()
	VPCMPEQB(ones, ones, ones)
	VPABSB(ones, ones)
	VMOVDQU(tcqTwice(v), twice)
	mask := v.words("tcqState", 0xffff)
	values := AllocLocal(128) // each activation twice, as words
	scale := GP64()
	LEAQ(at(record, 256), scale)
	loop("group", left, 1, func() {
		for i := range 4 {
			q := v.vec()
			VPMOVSXBD(at(record, 8*i), q)
			VPSHUFB(twice, q, q)
			VMOVDQU(q, values.Offset(32*i))
		}
		whole := v.vecs(2)
		for column := range 32 {
			window, q := v.vec(), v.vec()
			tcqWindow(tiles, bits, column, window, func(m Op) {
				if from, ok := m.(Mem); ok {
					VBROADCASTI128(from, window)
				} else {
					VINSERTI128(Imm(1), m, window, window)
				}
			})
			VPBROADCASTD(values.Offset(4*column), q)
			for half := range 2 {
				state := v.vec()
				VPSHUFB(places[half], window, state)
				VPSRLVD(shift, state, state)
				VPAND(mask, state, state)
				VPMULLD(factor, state, state)
				VPMADDUBSW(state, ones, state)
				if column == 0 {
					VPMADDWD(q, state, whole[half])
					continue
				}
				VPMADDWD(q, state, state)
				VPADDD(state, whole[half], whole[half])
			}
		}
		d := v.vec()
		VBROADCASTSS(at(scale, 0), d)
		for half := range 2 {
			VCVTDQ2PS(whole[half], whole[half])
			VFMADD231PS(d, whole[half], sums[half])
		}
		bump(tiles, 64*bits)
		bump(record, 32)
		bump(scale, 4)
	})
	for half := range 2 {
		VMOVUPS(sums[half], at(acc, 32*half))
	}
	VZEROUPPER()
	RET()
}

// tcqWindows brings to each of some rows, from one on, the four bytes in which its
// window lies.
func tcqWindows(name string, bits, first, rows int) Mem {
	m := GLOBL(name, 8|16 /* RODATA|NOPTR */)
	for row := range rows {
		for b := range 4 {
			DATA(4*row+b, U8(uint8(min((first+row)*bits/8+b, 15))))
		}
	}
	return m
}

// tcqStarts is where in these bytes each row's window begins; it repeats after 8.
func tcqStarts(name string, bits, rows int) Mem {
	m := GLOBL(name, 8|16 /* RODATA|NOPTR */)
	for row := range rows {
		DATA(4*row, U32(uint32(row*bits%8)))
	}
	return m
}

// tcqTwice repeats the low word of each 32 bits.
func tcqTwice(v isa) Mem {
	const name = "tcqTwice"
	if m, ok := v.data[name]; ok {
		return m
	}
	m := GLOBL(name, 8|16 /* RODATA|NOPTR */)
	for i := range 8 {
		low := uint32(4*i) % 16
		DATA(4*i, U32((low|(low+1)<<8)*0x10001))
	}
	v.data[name] = m
	return m
}

// tcqProduct keeps one row of a tile in each lane and goes through the columns.
// A column's 16 windows begin at a byte. They are cut out in one of two ways, some
// columns so and some so, as Zen 4 does multiplications, dot products and the cut on one
// pair of its pipes, shuffles and shifts on the other.
func tcqProduct(v isa, bits int) {
	tcqText(v, bits)
	acc, tiles, record := loadPointer("acc"), loadPointer("tiles"), loadPointer("record")
	left := GP64()
	Load(Param("groups"), left)
	sum := v.vec()
	VMOVUPS(at(acc, 0), sum)
	cutter := newTCQCutter(v, tiles, bits)
	factor, flip := tcqFactor(v), v.words("tcqFlip", 0x80808080)
	values := AllocLocal(128) // each activation four times
	fours := v.vecs(2)
	for i := range fours {
		VMOVUPS(tcqFours(v, i), fours[i])
	}
	shift, scale := GP64(), GP64()
	LEAQ(at(record, 384), shift)
	LEAQ(at(record, 256), scale)
	loop("group", left, 1, func() {
		for i := range fours {
			q := v.vec()
			VPERMB(at(record, 0), fours[i], q) // reads 64 bytes of the record
			VMOVDQU64(q, values.Offset(64*i))
		}
		whole := v.vec()
		VPBROADCASTD(at(shift, 0), whole)
		VPSLLD(Imm(2), whole, whole) // codewords are sums of four bytes, each 128 too large
		other := v.vec()
		zeroed(other)
		for column := range 32 {
			window := cutter.windows(column)
			VPMULLD(factor, window, window)
			VPXORD(flip, window, window)
			into := whole
			if column%2 == 1 {
				into = other
			}
			VPDPBUSD_BCST(values.Offset(4*column), window, into)
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

// A tcqCutter cuts windows of 16 bits out of the codes, zeros above them.
type tcqCutter struct {
	isa
	tiles        reg.GPVirtual
	bits         int
	place, cut   reg.VecVirtual // bytes to 64-bit lanes; bits of them to bytes
	apart, shift reg.VecVirtual // bytes to 32-bit lanes; where in them windows begin
	mask         reg.VecVirtual
	low          reg.OpmaskVirtual // the lower two bytes of each 32 bits
}

func newTCQCutter(v isa, tiles reg.GPVirtual, bits int) *tcqCutter {
	k := &tcqCutter{isa: v, tiles: tiles, bits: bits, cut: v.vec(), apart: v.vec(), shift: v.vec(), low: K()}
	if bits > 3 {
		k.place = v.vec()
		VMOVUPS(tcqPlaces(v, bits), k.place)
	}
	VMOVUPS(tcqCuts(v, bits), k.cut)
	VMOVUPS(tcqWindows(fmt.Sprintf("tcqApart%d", bits), bits, 0, 16), k.apart)
	VMOVUPS(tcqStarts(fmt.Sprintf("tcqWideShifts%d", bits), bits, 16), k.shift)
	k.mask = v.words("tcqState", 0xffff)
	mask := GP64()
	MOVQ(Imm(0x3333333333333333), mask)
	KMOVQ(mask, k.low)
	return k
}

// windows returns those of a column, one in each lane.
func (k *tcqCutter) windows(column int) reg.VecVirtual {
	w := k.vec()
	switch {
	case k.bits <= 3 && column%2 == 0:
		k.cutWhole(column, w)
	case k.bits > 3 && column%3 != 2:
		VPERMB(k.bytes(column), k.place, w)
		VPMULTISHIFTQB_Z(w, k.cut, k.low, w)
	default:
		VPERMB(k.bytes(column), k.apart, w)
		VPSRLVD(k.shift, w, w)
		VPANDD(k.mask, w, w)
	}
	return w
}

// bytes returns those from a column's first window on: 64 in memory, or the 16 that are
// needed.
func (k *tcqCutter) bytes(column int) Op {
	from, w := Op(nil), k.vec()
	tcqWindow(k.tiles, k.bits, column, w, func(m Op) { from = m })
	if _, ok := from.(Mem); ok {
		return from
	}
	return w
}

// cutWhole is for up to 3 bits, where all windows of a column lie in 64 bits, which every
// lane is given.
func (k *tcqCutter) cutWhole(column int, window reg.VecVirtual) {
	tile, c := column/16*32*k.bits, column%16
	if c == 15 {
		panic("gen: a column with the ring's end is cut otherwise")
	}
	VPMULTISHIFTQB_BCST_Z(at(k.tiles, tile+2*k.bits*c), k.cut, k.low, window)
}

// tcqFours repeats each of 16 bytes, from 16*i on, four times.
func tcqFours(v isa, i int) Mem {
	name := fmt.Sprintf("tcqFours%d", i)
	if m, ok := v.data[name]; ok {
		return m
	}
	m := GLOBL(name, 8|16 /* RODATA|NOPTR */)
	for j := range 16 {
		DATA(4*j, U32(uint32(16*i+j)*0x01010101))
	}
	v.data[name] = m
	return m
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
		from := 2 * pair * bits
		if bits > 3 {
			from %= 8
		}
		for half := range 2 {
			for b := range 4 {
				DATA(8*pair+4*half+b, U8(uint8((from+half*bits+8*b)%64)))
			}
		}
	}
	return m
}
