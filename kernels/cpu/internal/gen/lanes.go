package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Bytes of a value of 16 rows, and where a LaneGrid's fields lie.
const (
	laneBytes   = 64
	gridOffset  = 64
	gridInverse = 128
	gridLow     = 192
	gridHigh    = 196
)

// lanesFile writes the kernels of lanes.go. Products and sums are rounded one
// by one, so that every level gives the same bits.
func lanesFile(v isa) {
	laneSums(v)
	laneError(v)
	laneRange(v)
	laneAnswer(v)
	laneRound(v)
	laneScales(v)
	laneOffsets(v)
	laneNear(v)
}

// halves runs body for each vector of a value of 16 rows.
func (v isa) halves(body func(off int, name string)) {
	for off := 0; off < laneBytes; off += 4 * v.lanes {
		body(off, label("at%d", off))
	}
}

// A laneGrid is the values that codes may take, in registers.
type laneGrid struct {
	v                 isa
	low, high, magic  reg.VecVirtual
	table             reg.GPVirtual
	least, most, from reg.VecVirtual // of table indices
}

func (v isa) laneGrid(grid reg.Register, table reg.GPVirtual, tabled bool) laneGrid {
	g := laneGrid{v: v, table: table, magic: v.broadcast("laneMagic", 3<<22)}
	if tabled {
		g.least, g.most, g.from = v.broadcast("laneLeast", -256), v.broadcast("laneMost", 255), v.broadcast("laneFrom", 256)
		return g
	}
	g.low, g.high = v.vec(), v.vec()
	VBROADCASTSS(at(grid, gridLow), g.low)
	VBROADCASTSS(at(grid, gridHigh), g.high)
	return g
}

// level turns t into the nearest level.
func (g laneGrid) level(t reg.VecVirtual) {
	if g.low != nil {
		VADDPS(g.magic, t, t)
		VSUBPS(g.magic, t, t)
		VMAXPS(g.low, t, t)
		VMINPS(g.high, t, t)
		return
	}
	VADDPS(t, t, t)
	VADDPS(g.magic, t, t)
	VSUBPS(g.magic, t, t)
	VMAXPS(g.least, t, t)
	VMINPS(g.most, t, t)
	VADDPS(g.from, t, t)
	index := g.v.vec()
	VCVTTPS2DQ(t, index)
	from := Mem{Base: g.table, Index: index, Scale: 4}
	if g.v.wide {
		k := K()
		KXNORW(k, k, k)
		VGATHERDPS(from, k, t)
		return
	}
	mask := g.v.vec()
	VPCMPEQD(mask, mask, mask)
	VGATHERDPS(mask, from, t)
}

// kinds writes body twice, for whole levels and for those of a table.
func (v isa) kinds(name string, grid reg.Register, table reg.GPVirtual, body func(g laneGrid, name string)) {
	TESTQ(table, table)
	JNZ(LabelRef(name + "table"))
	body(v.laneGrid(grid, table, false), name+"whole")
	JMP(LabelRef(name + "end"))
	Label(name + "table")
	body(v.laneGrid(grid, table, true), name+"levels")
	Label(name + "end")
}

// inverse returns 1/scale, or 0 where that is not finite.
func (v isa) inverse(scale reg.VecVirtual) reg.VecVirtual {
	inv, rest := v.broadcast("laneOne", 1), v.vec()
	VDIVPS(scale, inv, inv)
	VSUBPS(inv, inv, rest) // 0, or NaN
	if v.wide {
		k := K()
		VCMPPS(Imm(7), rest, rest, k) // ordered
		VMOVAPS_Z(inv, k, inv)
	} else {
		VCMPPS(Imm(7), rest, rest, rest)
		VANDPS(rest, inv, inv)
	}
	return inv
}

func laneSums(v isa) {
	v.text("laneSums", "(sums, x, w *float32, n int, grid, table *float32)", "what laneSumsGeneric does.")
	sums, grid, table := loadPointer("sums"), loadPointer("grid"), loadPointer("table")
	v.halves(func(off int, name string) {
		v.kinds(name, grid, table, func(g laneGrid, name string) {
			offset, inv := v.vec(), v.vec()
			VMOVUPS(at(grid, gridOffset+off), offset)
			VMOVUPS(at(grid, gridInverse+off), inv)
			acc := v.levelSums(name, off, g, offset, inv)
			for i, a := range acc {
				VMOVUPS(a, at(sums, laneBytes*i+off))
			}
		})
	})
	VZEROUPPER()
	RET()
}

func laneError(v isa) {
	v.text("laneError", "(sum, x, w *float32, n int, grid, table *float32)", "what laneErrorGeneric does.")
	sum, grid, table := loadPointer("sum"), loadPointer("grid"), loadPointer("table")
	v.halves(func(off int, name string) {
		v.kinds(name, grid, table, func(g laneGrid, name string) {
			scale, offset := v.vec(), v.vec()
			VMOVUPS(at(grid, off), scale)
			VMOVUPS(at(grid, gridOffset+off), offset)
			acc := v.errorSum(name, off, g, scale, offset)
			VMOVUPS(acc, at(sum, off))
		})
	})
	VZEROUPPER()
	RET()
}

func laneRange(v isa) {
	v.text("laneRange", "(low, high, x *float32, n int)", "what laneRangeGeneric does.")
	low, high := loadPointer("low"), loadPointer("high")
	v.halves(func(off int, name string) {
		x, left := loadPointer("x"), loadPointer("n")
		least, most := v.vec(), v.vec()
		VMOVUPS(at(x, off), least)
		VMOVAPS(least, most)
		loop(name+"range", left, 1, func() {
			value := v.vec()
			VMOVUPS(at(x, off), value)
			VMINPS(value, least, least)
			VMAXPS(value, most, most)
			bump(x, laneBytes)
		})
		VMOVUPS(least, at(low, off))
		VMOVUPS(most, at(high, off))
	})
	VZEROUPPER()
	RET()
}

// laneAnswer takes four columns at a time through all errors.
func laneAnswer(v isa) {
	v.text("laneAnswer", "(z, e *float32, n int, m *float32, ld int)", "what laneAnswerGeneric does, for n >= 1.")
	z, rows := loadPointer("z"), loadPointer("m")
	ld := loadPointer("ld")
	SHLQ(Imm(2), ld)
	s := newStride(ld)
	parts := laneBytes / (4 * v.lanes)
	count := GP64()
	MOVQ(U32(4), count)
	loop("columns", count, 1, func() {
		e, left, m := loadPointer("e"), loadPointer("n"), GP64()
		MOVQ(rows, m)
		acc := v.vecs(4 * parts)
		for i, a := range acc {
			VMOVUPS(at(z, 4*v.lanes*i), a)
		}
		loop("errors", left, 1, func() {
			value := v.vecs(parts)
			for i, r := range value {
				VMOVUPS(at(e, 4*v.lanes*i), r)
			}
			for j := range 4 {
				a := v.vec()
				VBROADCASTSS(s.row(m, j, 0), a)
				for i, r := range value {
					t := v.vec()
					VMULPS(r, a, t)
					VADDPS(t, acc[j*parts+i], acc[j*parts+i])
				}
			}
			bump(e, laneBytes)
			bump(m, 4)
		})
		for i, a := range acc {
			VMOVUPS(a, at(z, 4*v.lanes*i))
		}
		bump(z, 4*laneBytes)
		LEAQ(Mem{Base: rows, Index: ld, Scale: 4}, rows)
	})
	VZEROUPPER()
	RET()
}

func laneRound(v isa) {
	v.text("laneRound", "(q, z, e, loss, d, m *float32, ld int, grid, table *float32)", "what laneRoundGeneric does; m may be nil.")
	grid, table, ld := loadPointer("grid"), loadPointer("table"), loadPointer("ld")
	SHLQ(Imm(2), ld)
	v.halves(func(off int, name string) {
		v.kinds(name, grid, table, func(g laneGrid, name string) {
			q, z, e, d, m := loadPointer("q"), loadPointer("z"), loadPointer("e"), loadPointer("d"), loadPointer("m")
			scale, offset, loss := v.vec(), v.vec(), v.vec()
			VMOVUPS(at(grid, off), scale)
			VMOVUPS(at(grid, gridOffset+off), offset)
			inv := v.inverse(scale)
			total := loadPointer("loss")
			VMOVUPS(at(total, off), loss)
			left := GP64()
			MOVQ(U32(16), left)
			loop(name+"round", left, 1, func() {
				target, t, dc, err := v.vec(), v.vec(), v.vec(), v.vec()
				VMOVUPS(at(z, off), target)
				VADDPS(offset, target, t)
				VMULPS(inv, t, t)
				g.level(t)
				VMOVUPS(t, at(q, off))
				VMULPS(scale, t, t)
				VSUBPS(offset, t, t)
				VMOVUPS(at(e, off), err)
				VSUBPS(t, err, err)
				VMOVUPS(err, at(e, off))
				VSUBPS(t, target, target)
				VBROADCASTSS(at(d, 0), dc)
				VMULPS(target, dc, dc)
				VMULPS(target, dc, dc)
				VADDPS(dc, loss, loss)
				bump(q, laneBytes)
				bump(z, laneBytes)
				bump(e, laneBytes)
				bump(d, 4)
				TESTQ(m, m)
				JZ(LabelRef(name + "next"))
				ADDQ(ld, m) // to the row of the next column
				next, row, more := GP64(), GP64(), GP64()
				MOVQ(z, next)
				MOVQ(m, row)
				LEAQ(Mem{Base: left, Disp: -1}, more)
				loop(name+"answer", more, 1, func() {
					a := v.vec()
					VBROADCASTSS(at(row, 0), a)
					VMULPS(err, a, a)
					VADDPS(at(next, off), a, a)
					VMOVUPS(a, at(next, off))
					bump(next, laneBytes)
					ADDQ(ld, row)
				})
				bump(m, 4)
				Label(name + "next")
			})
			VMOVUPS(loss, at(total, off))
		})
	})
	VZEROUPPER()
	RET()
}
