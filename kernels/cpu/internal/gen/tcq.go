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
	p := &tcqNarrowPipe{isa: v, tiles: tiles, values: GP64(), bits: bits, shift: v.vec(), ones: v.vec()}
	for half := range p.places {
		p.places[half] = v.vec()
		VMOVDQU(tcqWindows(fmt.Sprintf("tcqNarrow%d%d", bits, half), bits, 8*half, 8), p.places[half])
	}
	VMOVDQU(tcqStarts(fmt.Sprintf("tcqShifts%d", bits), bits, 8), p.shift)
	p.factor = tcqFactor(v)
	VPCMPEQB(p.ones, p.ones, p.ones)
	VPABSB(p.ones, p.ones)
	local := AllocLocal(128 + 32) // aligned as for tcqProduct
	LEAQ(local.Offset(31), p.values)
	ANDQ(I32(-32), p.values)
	scale := GP64()
	LEAQ(at(record, 256), scale)
	loop("group", left, 1, func() {
		for i := range 4 {
			q := v.vec()
			VPMOVSXBD(at(record, 8*i), q)
			VPSHUFB(tcqTwice(v), q, q)
			VMOVDQA(q, at(p.values, 32*i))
		}
		whole := v.vecs(2)
		p.group(whole)
		d := v.vec()
		VBROADCASTSS(at(scale, 0), d)
		for half := range whole {
			VCVTDQ2PS(whole[half], whole[half])
			VFMADD213PS(at(acc, 32*half), d, whole[half])
			VMOVUPS(whole[half], at(acc, 32*half))
		}
		bump(tiles, 64*bits)
		bump(record, 32)
		bump(scale, 4)
	})
	VZEROUPPER()
	RET()
}

// A tcqNarrowPipe multiplies a group's states and activations. Masks and sums are left in
// memory, so that there are registers for several states.
type tcqNarrowPipe struct {
	isa
	tiles, values       reg.GPVirtual // codes; each activation of the group twice, as words
	bits                int
	places              [2]reg.VecVirtual
	shift, factor, ones reg.VecVirtual
	window, column      reg.VecVirtual // bytes of the column in work, and its activation
}

// group makes the sums of 32 columns, of eight rows each.
func (p *tcqNarrowPipe) group(whole []reg.VecVirtual) {
	tcqTurns(p.isa, 64, []tcqStage{
		{0, p.place},
		{1, func(_ int, state reg.VecVirtual) {
			VPSRLVD(p.shift, state, state)
			VPAND(tcqMask(p.isa), state, state)
		}},
		{2, func(_ int, state reg.VecVirtual) { VPMULLD(p.factor, state, state) }},
		{3, func(_ int, state reg.VecVirtual) { VPMADDUBSW(state, p.ones, state) }},
		{4, func(n int, state reg.VecVirtual) { p.add(n, state, whole[n%2]) }},
	})
}

// place brings the bytes of a column's windows to their lanes.
func (p *tcqNarrowPipe) place(n int, state reg.VecVirtual) {
	if n%2 == 0 {
		p.window = p.vec()
		tcqWindow(p.tiles, p.bits, n/2, p.window, func(m Op) {
			if from, ok := m.(Mem); ok {
				VBROADCASTI128(from, p.window)
			} else {
				VINSERTI128(Imm(1), m, p.window, p.window)
			}
		})
	}
	VPSHUFB(p.places[n%2], p.window, state)
}

// add adds the products of a column's codewords to the sums of eight rows.
func (p *tcqNarrowPipe) add(n int, state, sum reg.VecVirtual) {
	if n%2 == 0 {
		p.column = p.vec()
		VPBROADCASTD(at(p.values, 2*n), p.column)
	}
	if n < 2 {
		VPMADDWD(p.column, state, sum)
		return
	}
	VPMADDWD(p.column, state, state)
	VPADDD(state, sum, sum)
}

// A tcqStage is what is done with registers of states some registers after the first stage.
type tcqStage struct {
	after int
	do    func(n int, state reg.VecVirtual)
}

// tcqTurns brings registers of states through stages. Several are in work at a time, so that
// few instructions wait for the one before.
func tcqTurns(v isa, registers int, stages []tcqStage) {
	states := make([]reg.VecVirtual, registers)
	for n := range registers + stages[len(stages)-1].after {
		if n < registers {
			states[n] = v.vec()
		}
		for _, s := range stages {
			if m := n - s.after; m >= 0 && m < registers {
				s.do(m, states[m])
			}
		}
	}
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

// tcqProduct goes through a tile by four columns at a time. Lane 4r+c of a
// register of kind i has row 4r+i of column c, so 16 bytes of activations serve four
// registers. Columns meet in their lanes at the end.
func tcqProduct(v isa, bits int) {
	tcqText(v, bits)
	acc, tiles, record := loadPointer("acc"), loadPointer("tiles"), loadPointer("record")
	left := GP64()
	Load(Param("groups"), left)
	cutter := newTCQCutter(v, tiles, bits)
	p := &tcqPipe{cutter: cutter, factor: tcqFactor(v), flip: v.words("tcqFlip", 0x80808080), values: GP64()}
	sums := v.vecs(tcqKinds)
	for i := range sums {
		v.zero(sums[i])
	}
	// Loads of what was stored across cache lines wait for the cache.
	local := AllocLocal(128 + 64)
	LEAQ(local.Offset(63), p.values)
	ANDQ(I32(-64), p.values)
	shift, scale := GP64(), GP64()
	LEAQ(at(record, 384), shift)
	LEAQ(at(record, 256), scale)
	loop("group", left, 1, func() {
		for i := range 2 {
			fours := v.vec()
			VMOVUPS(tcqFours(v, i), fours)
			VPERMB(at(record, 0), fours, fours) // reads 64 bytes of the record
			VMOVDQU64(fours, at(p.values, 64*i))
		}
		whole := v.vecs(tcqKinds)
		for i := range whole { // codewords are sums of four bytes, each 128 too large, rows of four lanes
			VPBROADCASTD(at(shift, 0), whole[i])
		}
		p.group(whole)
		for i := range whole {
			VCVTDQ2PS(whole[i], whole[i])
			VFMADD231PS_BCST(at(scale, 0), whole[i], sums[i])
		}
		bump(tiles, 64*bits)
		bump(record, 32)
		bump(shift, 4)
		bump(scale, 4)
	})
	tcqColumns(v, sums)
	VADDPS(at(acc, 0), sums[0], sums[0])
	VMOVUPS(sums[0], at(acc, 0))
	VZEROUPPER()
	RET()
}

// tcqColumns adds, in each 128 bits, the four lanes of sums[i] into lane i of sums[0].
func tcqColumns(v isa, sums []reg.VecVirtual) {
	t := v.vec()
	for i := range 2 {
		VUNPCKHPS(sums[2*i+1], sums[2*i], t)
		VUNPCKLPS(sums[2*i+1], sums[2*i], sums[2*i])
		VADDPS(t, sums[2*i], sums[2*i])
	}
	VUNPCKHPD(sums[2], sums[0], t)
	VUNPCKLPD(sums[2], sums[0], sums[0])
	VADDPS(t, sums[0], sums[0])
}

// tcqKinds is how many registers have the windows of four columns.
const tcqKinds = 4

// A tcqPipe multiplies a group's states and activations.
type tcqPipe struct {
	cutter       *tcqCutter
	factor, flip reg.VecVirtual
	values       reg.GPVirtual  // each activation of the group four times
	columns      reg.VecVirtual // those of the four columns in work
}

// activations returns those that register n of a group's states is multiplied with.
func (p *tcqPipe) activations(n int) reg.VecVirtual {
	if n%tcqKinds == 0 {
		p.columns = p.cutter.vec()
		VBROADCASTI32X4(at(p.values, 4*n), p.columns)
	}
	return p.columns
}

// group adds 32 columns to the sums of each kind.
func (p *tcqPipe) group(whole []reg.VecVirtual) {
	tcqTurns(p.cutter.isa, 8*tcqKinds, []tcqStage{
		{0, func(n int, state reg.VecVirtual) { p.cutter.windows(n/tcqKinds, n%tcqKinds, state) }},
		{3, func(_ int, state reg.VecVirtual) { VPMULLD(p.factor, state, state) }},
		{6, func(_ int, state reg.VecVirtual) { VPXORD(p.flip, state, state) }},
		{8, func(n int, state reg.VecVirtual) { VPDPBUSD(p.activations(n), state, whole[n%tcqKinds]) }},
	})
}

// A tcqCutter cuts windows of 16 bits out of the codes, zeros above them. Windows of a
// kind that begin at a byte in all lanes are one permutation. Others are shifted and
// masked, or cut, which takes one instruction less but one of the pipes of
// multiplications and dot products: so one kind of four.
type tcqCutter struct {
	isa
	tiles  reg.GPVirtual
	bits   int
	kinds  [tcqKinds]tcqKind
	places [2]reg.VecVirtual // bytes to lanes, from the window of kind 0 on and from a byte on
	bytes  [2]reg.VecVirtual // of four columns, so placed
	mask   reg.VecVirtual
	all    reg.OpmaskVirtual
	low    reg.OpmaskVirtual // the lower two bytes of each 32 bits
}

// A tcqKind says how the windows of one kind are cut.
type tcqKind struct {
	placed int // which of the cutter's places
	shift  int // from there on, bits; in odd rows of odd bits 4 more
	byByte bool
	shifts reg.VecVirtual // of odd bits
	cut    reg.VecVirtual // of the last kind
}

func newTCQCutter(v isa, tiles reg.GPVirtual, bits int) *tcqCutter {
	k := &tcqCutter{isa: v, tiles: tiles, bits: bits, all: K(), low: K()}
	for i := range k.kinds {
		k.kinds[i] = newTCQKind(v, bits, i)
		if on := k.kinds[i].placed; k.places[on] == nil {
			k.places[on] = v.vec()
			VMOVUPS(tcqPlaces(v, bits, on), k.places[on])
		}
	}
	k.mask = v.words("tcqState", 0xffff)
	mask := GP64()
	MOVQ(Imm(0x3333333333333333), mask)
	KMOVQ(mask, k.low)
	KXNORQ(k.low, k.low, k.all)
	return k
}

func newTCQKind(v isa, bits, i int) tcqKind {
	kind := tcqKind{shift: i * bits}
	kind.byByte = bits%2 == 0 && bits <= 4 && kind.shift%8 == 0 // at 6 bits a mask is faster
	if kind.byByte || kind.shift+16+bits%2*4 > 32 {
		kind.placed = min(kind.shift/8, 1)
		kind.shift -= 8 * kind.placed
	}
	switch {
	case kind.byByte:
	case i == tcqKinds-1:
		kind.cut = v.vec()
		VMOVUPS(tcqCuts(v, bits, kind.shift), kind.cut)
	case bits%2 == 1:
		kind.shifts = v.vec()
		VMOVUPS(tcqShifts(v, bits, kind.shift), kind.shifts)
	}
	return kind
}

// windows cuts those of kind i of four columns of a group.
func (k *tcqCutter) windows(quad, i int, w reg.VecVirtual) {
	if i == 0 {
		k.bytes = [2]reg.VecVirtual{}
	}
	kind := k.kinds[i]
	if kind.byByte {
		k.place(quad, kind.placed, k.low, w)
		return
	}
	from := k.bytes[kind.placed]
	if from == nil {
		from = k.vec()
		k.place(quad, kind.placed, k.all, from)
		k.bytes[kind.placed] = from
	}
	switch {
	case kind.cut != nil:
		VPMULTISHIFTQB_Z(from, kind.cut, k.low, w)
		return
	case kind.shifts != nil:
		VPSRLVD(kind.shifts, from, w)
		from = w
	case kind.shift > 0:
		VPSRLD(Imm(uint64(kind.shift)), from, w)
		from = w
	}
	VPANDD(k.mask, from, w)
}

// place brings the masked bytes of four columns to their lanes, zeros for others.
func (k *tcqCutter) place(quad, on int, mask reg.OpmaskVirtual, w reg.VecVirtual) {
	tile, column := quad/4*32*k.bits, quad%4*8*k.bits
	if quad%4 < 3 {
		VPERMB_Z(at(k.tiles, tile+column), k.places[on], mask, w)
		return
	}
	// Their last bits are the ring's first, and the tile's last 64 bytes come before.
	end := k.vec()
	VMOVDQU64(at(k.tiles, tile+32*k.bits-64), end)
	VMOVDQU64(tcqPlaces(k.isa, k.bits, 64-8*k.bits+on), w)
	VPERMI2B_Z(at(k.tiles, tile), end, mask, w)
}

// tcqLanes is 16 lanes of four bytes.
func tcqLanes(v isa, name string, value func(lane, b int) int) Mem {
	if m, ok := v.data[name]; ok {
		return m
	}
	m := GLOBL(name, 8|16 /* RODATA|NOPTR */)
	for i := range 64 {
		DATA(i, U8(uint8(value(i/4, i%4))))
	}
	v.data[name] = m
	return m
}

// tcqMask is the lower two bytes of each 32 bits.
func tcqMask(v isa) Mem {
	return tcqLanes(v, "tcqMask", func(_, b int) int { return 255 * (1 - b/2) })
}

// tcqFours repeats each of 16 bytes, from 16*i on, four times.
func tcqFours(v isa, i int) Mem {
	return tcqLanes(v, fmt.Sprintf("tcqFours%d", i), func(lane, _ int) int { return 16*i + lane })
}

// tcqPlaces brings to lane 4r+c four bytes, from that on in which the window of row 4r and
// column c begins, the first window lying on bytes from the table's first.
func tcqPlaces(v isa, bits, on int) Mem {
	return tcqLanes(v, fmt.Sprintf("tcqPlaces%d_%d", bits, on), func(lane, b int) int {
		return on + lane%4*2*bits + lane/4*bits/2 + b
	})
}

// tcqOdd is how many bits after a byte's first the window of the lane's row 4r begins.
func tcqOdd(bits, lane int) int { return lane / 4 * bits % 2 * 4 }

func tcqShifts(v isa, bits, shift int) Mem {
	return tcqLanes(v, fmt.Sprintf("tcqShifts%d_%d", bits, shift), func(lane, b int) int {
		if b > 0 {
			return 0
		}
		return tcqOdd(bits, lane) + shift
	})
}

// tcqCuts says from which bits of its 64 each byte of a state comes.
func tcqCuts(v isa, bits, shift int) Mem {
	return tcqLanes(v, fmt.Sprintf("tcqCuts%d", bits), func(lane, b int) int {
		return (lane%2*32 + tcqOdd(bits, lane) + shift + 8*b) % 64
	})
}
