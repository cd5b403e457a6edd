package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

func deltaFile(v isa) {
	mulAdd(v)
	deltaStep(v, false)
	deltaStep(v, true)
}

func mulAdd(v isa) {
	v.text("mulAdd", "(dst, a, b []float32)", "",
		"	for i := range dst {",
		"		dst[i] += a[i] * b[i]",
		"	}")
	dst, a, b, left := ptr("dst"), ptr("a"), ptr("b"), length("dst")
	step := func(i int) {
		r, x := v.vec(), v.vec()
		VMOVUPS(at(dst, 4*v.lanes*i), r)
		VMOVUPS(at(a, 4*v.lanes*i), x)
		VFMADD231PS(at(b, 4*v.lanes*i), x, r)
		VMOVUPS(r, at(dst, 4*v.lanes*i))
	}
	next := func(n int) {
		for _, p := range []reg.Register{dst, a, b} {
			bump(p, 4*v.lanes*n)
		}
	}
	loop("by4", left, 4*v.lanes, func() {
		for i := range 4 {
			step(i)
		}
		next(4)
	})
	loop("by1", left, v.lanes, func() { step(0); next(1) })
	rest(left, "done", func() {
		t := v.tail(left)
		r, x, y := v.vec(), v.vec(), v.vec()
		t.load(at(dst, 0), r)
		t.load(at(a, 0), x)
		t.load(at(b, 0), y)
		VFMADD231PS(y, x, r)
		t.store(r, at(dst, 0))
	})
	VZEROUPPER()
	RET()
}

// deltaStep takes some vectors of columns at a time, down all rows twice: their sums
// stay in registers, and the rows in a cache between the two. By channel every row has
// a fade of its own.
func deltaStep(v isa, byChannel bool) {
	name, args, told, kept := "deltaStep", "(memory, q, k, v []float32, fade, rate float32)", "k[i]", "fade"
	scaled := "fade*told"
	if byChannel {
		name, args, told, kept = "deltaStepByChannel", "(memory, q, k, v, fade []float32, rate float32)", "k[i] * fade[i]", "fade[i]"
		scaled = "told"
	}
	v.text(name, args, "",
		"	for j := range v {",
		"		told := 0",
		"		for i := range k {",
		"			told += "+told+" * memory[i*len(v)+j]",
		"		}",
		"		u, sum := rate * (v[j] - "+scaled+"), 0",
		"		for i := range k {",
		"			memory[i*len(v)+j] = "+kept+"*memory[i*len(v)+j] + k[i]*u",
		"			sum += q[i] * memory[i*len(v)+j]",
		"		}",
		"		v[j] = sum",
		"	}")
	col, out, left, ld := ptr("memory"), ptr("v"), length("v"), length("v")
	SHLQ(Imm(2), ld)
	var fade reg.VecVirtual
	if !byChannel {
		fade = v.vec()
		VBROADCASTSS(mustAddr("fade"), fade)
	}
	rate := v.vec()
	VBROADCASTSS(mustAddr("rate"), rate)
	v.columns(left, out, col, func(name string, width int, load func(m Mem, r reg.VecVirtual), store func(r reg.VecVirtual, m Mem)) {
		told := v.vecs(width)
		for _, r := range told {
			v.zero(r)
		}
		if byChannel {
			accumFadedColumn(v, name+"_told", told, col, ld, load)
		} else {
			accumColumn(v, name+"_told", "k", told, col, ld, load)
		}
		for i := range told {
			x := v.vec()
			load(at(out, 4*v.lanes*i), x)
			if byChannel {
				VSUBPS(told[i], x, told[i])
				VMULPS(rate, told[i], told[i])
				continue
			}
			VFNMADD231PS(told[i], fade, x)
			VMULPS(rate, x, told[i])
		}
		sums := v.vecs(width)
		for _, r := range sums {
			v.zero(r)
		}
		learnColumn(v, name+"_learn", told, sums, col, ld, fade, load, store)
		for i := range sums {
			store(sums[i], at(out, 4*v.lanes*i))
		}
	})
}

// accumFadedColumn adds the rows from col down, times k and what each fades by, to sums.
func accumFadedColumn(v isa, name string, sums []reg.VecVirtual, col, ld reg.GPVirtual, load func(m Mem, r reg.VecVirtual)) {
	k, fade, t, row := ptr("k"), ptr("fade"), length("k"), GP64()
	MOVQ(col, row)
	loop(name, t, 1, func() {
		a, f := v.vec(), v.vec()
		VBROADCASTSS(at(k, 0), a)
		VBROADCASTSS(at(fade, 0), f)
		VMULPS(f, a, a)
		for i, s := range sums {
			x := v.vec()
			load(at(row, 4*v.lanes*i), x)
			VFMADD231PS(x, a, s)
		}
		bump(k, 4)
		bump(fade, 4)
		ADDQ(ld, row)
	})
}

// learnColumn writes what the rows from col down remember, with what they are told, and
// adds what q asks of it to sums. Without a fade each row has its own.
func learnColumn(v isa, name string, told, sums []reg.VecVirtual, col, ld reg.GPVirtual, fade reg.VecVirtual, load func(m Mem, r reg.VecVirtual), store func(r reg.VecVirtual, m Mem)) {
	k, q, row, t := ptr("k"), ptr("q"), GP64(), length("k")
	var fades reg.Register
	if fade == nil {
		fades = ptr("fade")
	}
	MOVQ(col, row)
	loop(name, t, 1, func() {
		a, b, f := v.vec(), v.vec(), fade
		VBROADCASTSS(at(k, 0), a)
		VBROADCASTSS(at(q, 0), b)
		if fades != nil {
			f = v.vec()
			VBROADCASTSS(at(fades, 0), f)
		}
		for i := range told {
			x := v.vec()
			load(at(row, 4*v.lanes*i), x)
			VMULPS(f, x, x)
			VFMADD231PS(told[i], a, x)
			store(x, at(row, 4*v.lanes*i))
			VFMADD231PS(x, b, sums[i])
		}
		bump(k, 4)
		bump(q, 4)
		if fades != nil {
			bump(fades, 4)
		}
		ADDQ(ld, row)
	})
}
