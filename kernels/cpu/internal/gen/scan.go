package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// scanFile takes some vectors of columns at a time, down all rows: their sums stay in
// registers.
func scanFile(v isa) {
	v.text("scanStep", "(memory, q, k, v []float32, fade, rate, skip float32)", "",
		"	for j := range v {",
		"		u, sum := rate*v[j], skip*v[j]",
		"		for i := range k {",
		"			memory[i*len(v)+j] = fade*memory[i*len(v)+j] + k[i]*u",
		"			sum += q[i] * memory[i*len(v)+j]",
		"		}",
		"		v[j] = sum",
		"	}")
	col, out, left, ld := ptr("memory"), ptr("v"), length("v"), length("v")
	SHLQ(Imm(2), ld)
	fade, rate, skip := v.vec(), v.vec(), v.vec()
	VBROADCASTSS(mustAddr("fade"), fade)
	VBROADCASTSS(mustAddr("rate"), rate)
	VBROADCASTSS(mustAddr("skip"), skip)
	column := func(name string, width int, load func(m Mem, r reg.VecVirtual), store func(r reg.VecVirtual, m Mem)) {
		told, sums := v.vecs(width), v.vecs(width)
		for i := range told {
			x := v.vec()
			load(at(out, 4*v.lanes*i), x)
			VMULPS(rate, x, told[i])
			VMULPS(skip, x, sums[i])
		}
		k, q, row, t := ptr("k"), ptr("q"), GP64(), length("k")
		MOVQ(col, row)
		loop(name, t, 1, func() {
			a, b := v.vec(), v.vec()
			VBROADCASTSS(at(k, 0), a)
			VBROADCASTSS(at(q, 0), b)
			for i := range told {
				x := v.vec()
				load(at(row, 4*v.lanes*i), x)
				VMULPS(fade, x, x)
				VFMADD231PS(told[i], a, x)
				store(x, at(row, 4*v.lanes*i))
				VFMADD231PS(x, b, sums[i])
			}
			bump(k, 4)
			bump(q, 4)
			ADDQ(ld, row)
		})
		for i := range sums {
			store(sums[i], at(out, 4*v.lanes*i))
		}
		bump(out, 4*v.lanes*width)
		bump(col, 4*v.lanes*width)
	}
	load := func(m Mem, r reg.VecVirtual) { VMOVUPS(m, r) }
	store := func(r reg.VecVirtual, m Mem) { VMOVUPS(r, m) }
	loop("by4", left, 4*v.lanes, func() { column("rows4", 4, load, store) })
	loop("by1", left, v.lanes, func() { column("rows1", 1, load, store) })
	rest(left, "done", func() {
		t := v.tail(left)
		column("rowsTail", 1, t.load, t.store)
	})
	VZEROUPPER()
	RET()
}
