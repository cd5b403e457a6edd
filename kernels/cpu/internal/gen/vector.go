package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

func vectorFile(v isa) {
	accumRows(v)
	scale(v)
	pairwise(v, "add", "+", func(m Op, r reg.VecVirtual) { VADDPS(m, r, r) })
	pairwise(v, "mul", "*", func(m Op, r reg.VecVirtual) { VMULPS(m, r, r) })
	maximum(v)
}

// accumRows keeps up to four vectors of dst in registers and walks down the
// rows with them.
func accumRows(v isa) {
	v.text("accumRows", "(dst, p, v []float32, ld int)", "",
		"	for t := range p {",
		"		for d := range dst {",
		"			dst[d] += p[t] * v[t*ld+d]",
		"		}",
		"	}",
		"",
		"each product and sum rounded once; ld counts elements.")
	dst, left, col := ptr("dst"), length("dst"), ptr("v")
	ld := Load(Param("ld"), GP64()).(reg.GPVirtual)
	SHLQ(Imm(2), ld)
	v.columns(left, dst, col, func(name string, width int, load func(m Mem, r reg.VecVirtual), store func(r reg.VecVirtual, m Mem)) {
		sums := v.vecs(width)
		for i, s := range sums {
			load(at(dst, 4*v.lanes*i), s)
		}
		accumColumn(v, name, "p", sums, col, ld, load)
		for i, s := range sums {
			store(s, at(dst, 4*v.lanes*i))
		}
	})
}

// columns is the whole of a kernel that goes through columns by four vectors, by one, and
// by what is left of one: column does width vectors from out and col on.
func (v isa) columns(left, out, col reg.GPVirtual, column func(name string, width int, load func(m Mem, r reg.VecVirtual), store func(r reg.VecVirtual, m Mem))) {
	each := func(name string, width int, load func(m Mem, r reg.VecVirtual), store func(r reg.VecVirtual, m Mem)) {
		column(name, width, load, store)
		bump(out, 4*v.lanes*width)
		bump(col, 4*v.lanes*width)
	}
	load := func(m Mem, r reg.VecVirtual) { VMOVUPS(m, r) }
	store := func(r reg.VecVirtual, m Mem) { VMOVUPS(r, m) }
	loop("by4", left, 4*v.lanes, func() { each("rows4", 4, load, store) })
	loop("by1", left, v.lanes, func() { each("rows1", 1, load, store) })
	rest(left, "done", func() {
		t := v.tail(left)
		each("rowsTail", 1, t.load, t.store)
	})
	VZEROUPPER()
	RET()
}

// accumColumn adds the rows from col down, times factors, to sums.
func accumColumn(v isa, name, factors string, sums []reg.VecVirtual, col, ld reg.GPVirtual, load func(m Mem, r reg.VecVirtual)) {
	p, t, row := ptr(factors), length(factors), GP64()
	MOVQ(col, row)
	loop(name, t, 1, func() {
		a := v.vec()
		VBROADCASTSS(at(p, 0), a)
		for i, s := range sums {
			x := v.vec()
			load(at(row, 4*v.lanes*i), x)
			VFMADD231PS(x, a, s)
		}
		bump(p, 4)
		ADDQ(ld, row)
	})
}

func scale(v isa) {
	v.text("scale", "(x []float32, a float32)", "",
		"	for i := range x {",
		"		x[i] *= a",
		"	}")
	x, left, a := ptr("x"), length("x"), v.vec()
	VBROADCASTSS(mustAddr("a"), a)
	v.inPlace(x, left, func(r reg.VecVirtual, _ int) { VMULPS(a, r, r) })
	RET()
}

func mustAddr(name string) Mem {
	b, err := Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	return b.Addr
}

func pairwise(v isa, name, sign string, op func(m Op, r reg.VecVirtual)) {
	v.text(name, "(dst, x []float32)", "",
		"	for i, v := range x {",
		"		dst[i] "+sign+"= v",
		"	}")
	dst, x, left := ptr("dst"), ptr("x"), length("x")
	loop("by4", left, 4*v.lanes, func() {
		for i := range 4 {
			r := v.vec()
			VMOVUPS(at(dst, 4*v.lanes*i), r)
			op(at(x, 4*v.lanes*i), r)
			VMOVUPS(r, at(dst, 4*v.lanes*i))
		}
		bump(dst, 16*v.lanes)
		bump(x, 16*v.lanes)
	})
	loop("by1", left, v.lanes, func() {
		r := v.vec()
		VMOVUPS(at(dst, 0), r)
		op(at(x, 0), r)
		VMOVUPS(r, at(dst, 0))
		bump(dst, 4*v.lanes)
		bump(x, 4*v.lanes)
	})
	rest(left, "done", func() {
		t := v.tail(left)
		r, y := v.vec(), v.vec()
		t.load(at(dst, 0), r)
		t.load(at(x, 0), y)
		op(y, r)
		t.store(r, at(dst, 0))
	})
	VZEROUPPER()
	RET()
}

// inPlace runs op on every vector of x, the last one masked; op is told the
// number of its copy, 0 to 3 in the unrolled loop.
func (v isa) inPlace(x, left reg.GPVirtual, op func(r reg.VecVirtual, copy int)) {
	loop("by4", left, 4*v.lanes, func() {
		for i := range 4 {
			r := v.vec()
			VMOVUPS(at(x, 4*v.lanes*i), r)
			op(r, i)
			VMOVUPS(r, at(x, 4*v.lanes*i))
		}
		bump(x, 16*v.lanes)
	})
	loop("by1", left, v.lanes, func() {
		r := v.vec()
		VMOVUPS(at(x, 0), r)
		op(r, 0)
		VMOVUPS(r, at(x, 0))
		bump(x, 4*v.lanes)
	})
	rest(left, "done", func() {
		t := v.tail(left)
		r := v.vec()
		t.load(at(x, 0), r)
		op(r, 0)
		t.store(r, at(x, 0))
	})
	VZEROUPPER()
}

func maximum(v isa) {
	v.text("maximum", "(x []float32) float32", "",
		"	m := x[0]",
		"	for _, v := range x {",
		"		if v > m {",
		"			m = v",
		"		}",
		"	}",
		"",
		"for at least one element; it may pass over a NaN.")
	x, left := ptr("x"), length("x")
	m := v.vecs(2)
	for _, r := range m {
		VBROADCASTSS(at(x, 0), r)
	}
	loop("by2", left, 2*v.lanes, func() {
		VMAXPS(at(x, 0), m[0], m[0])
		VMAXPS(at(x, 4*v.lanes), m[1], m[1])
		bump(x, 8*v.lanes)
	})
	loop("by1", left, v.lanes, func() {
		VMAXPS(at(x, 0), m[0], m[0])
		bump(x, 4*v.lanes)
	})
	VMAXPS(m[1], m[0], m[0])
	v.fold(m[0], func(a, b reg.Register) { VMAXPS(a, b, b) })
	loop("single", left, 1, func() {
		VMAXSS(at(x, 0), m[0].AsX(), m[0].AsX())
		bump(x, 4)
	})
	Store(m[0].AsX(), ReturnIndex(0))
	VZEROUPPER()
	RET()
}
