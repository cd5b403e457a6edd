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
	v.columns(left, out, col, func(name string, width int, load func(m Mem, r reg.VecVirtual), store func(r reg.VecVirtual, m Mem)) {
		told, sums := v.vecs(width), v.vecs(width)
		for i := range told {
			x := v.vec()
			load(at(out, 4*v.lanes*i), x)
			VMULPS(rate, x, told[i])
			VMULPS(skip, x, sums[i])
		}
		learnColumn(v, name, told, sums, col, ld, fade, load, store)
		for i := range sums {
			store(sums[i], at(out, 4*v.lanes*i))
		}
	})
}
