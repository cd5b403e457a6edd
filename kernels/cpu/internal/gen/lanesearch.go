package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Where fields of a LaneScales and a LaneNear lie.
const (
	scalesOffset = 64
	scalesGain   = 128
	nearOffset   = 64
	nearD        = 128
	nearM        = 192
	nearLeast    = 256
	nearMost     = 260
)

// A choice marks rows: a mask register, or lanes of ones.
type choice struct {
	v isa
	k reg.OpmaskVirtual
	m reg.VecVirtual
}

// Predicates of VCMPPS that are false for NaN.
const (
	less    = 0x11
	greater = 0x1e
	atMost  = 0x12
	equal   = 0x00
)

// compare marks rows where a stands to b as the predicate says.
func (v isa) compare(predicate uint64, a, b reg.VecVirtual) choice {
	c := choice{v: v}
	if v.wide {
		c.k = K()
		VCMPPS(Imm(predicate), b, a, c.k)
	} else {
		c.m = YMM()
		VCMPPS(Imm(predicate), b, a, c.m)
	}
	return c
}

// take replaces the marked rows of old.
func (c choice) take(old, by reg.VecVirtual) {
	if c.v.wide {
		VMOVAPS(by, c.k, old)
	} else {
		VBLENDVPS(c.m, by, old, old)
	}
}

func (c choice) or(d choice) {
	if c.v.wide {
		KORW(d.k, c.k, c.k)
	} else {
		VORPS(d.m, c.m, c.m)
	}
}

// levelSums adds up w*q, w*q*q, w*q*x and w*x, as laneSums does; without an
// offset the second and third.
func (v isa) levelSums(name string, off int, g laneGrid, offset, inv reg.VecVirtual) (acc []reg.VecVirtual) {
	x, w, left := loadPointer("x"), loadPointer("w"), loadPointer("n")
	acc = v.vecs(4)
	for i, a := range acc {
		if offset != nil || i == 1 || i == 2 {
			v.zero(a)
		}
	}
	loop(name+"sums", left, 1, func() {
		value, t, wc, product := v.vec(), v.vec(), v.vec(), v.vec()
		VMOVUPS(at(x, off), value)
		if offset != nil {
			VADDPS(offset, value, t)
			VMULPS(inv, t, t)
		} else {
			VMULPS(inv, value, t)
		}
		g.level(t)
		VBROADCASTSS(at(w, 0), wc)
		VMULPS(t, wc, product)
		if offset != nil {
			VADDPS(product, acc[0], acc[0])
		}
		VMULPS(product, t, t)
		VADDPS(t, acc[1], acc[1])
		VMULPS(product, value, product)
		VADDPS(product, acc[2], acc[2])
		if offset != nil {
			VMULPS(wc, value, wc)
			VADDPS(wc, acc[3], acc[3])
		}
		bump(x, laneBytes)
		bump(w, 4)
	})
	return acc
}

// tries runs body for each of reach with its value, then refine times with nil.
func (v isa) tries(name string, body func(name string, reach reg.VecVirtual)) {
	reach, left := ptr("reach"), length("reach")
	loop(name+"reach", left, 1, func() {
		r := v.vec()
		VBROADCASTSS(at(reach, 0), r)
		bump(reach, 4)
		body(name+"ends", r)
	})
	again := loadPointer("refine")
	loop(name+"refine", again, 1, func() { body(name+"again", nil) })
}

func laneScales(v isa) {
	v.text("laneScales", "(best, top *float32, x, w *float32, n int, reach []float32, refine int, grid, table *float32)", "what laneScalesGeneric does.")
	searchKinds(v, func(off int, g laneGrid, name string) {
		v.tries(name, func(name string, reach reg.VecVirtual) {
			from, to := v.vec(), loadPointer("best")
			if reach != nil {
				top := loadPointer("top")
				VMOVUPS(at(top, off), from)
				VDIVPS(reach, from, from)
			} else {
				VMOVUPS(at(to, off), from)
			}
			acc := v.levelSums(name, off, g, nil, v.inverse(from))
			qq, xq := acc[1], acc[2]
			zero, value, scale, old := v.vec(), v.vec(), v.vec(), v.vec()
			v.zero(zero)
			to = loadPointer("best")
			VMOVUPS(at(to, off), old)
			VDIVPS(qq, xq, scale)
			if reach == nil {
				v.compare(greater, qq, zero).take(old, scale)
				VMOVUPS(old, at(to, off))
				return
			}
			gain := v.vec()
			VMOVUPS(at(to, scalesGain+off), gain)
			VMULPS(xq, xq, value)
			VDIVPS(qq, value, value)
			// Where qq is not positive nothing is gained.
			minus := v.broadcast("laneMinus", -1)
			v.compare(atMost, qq, zero).take(value, minus)
			better := v.compare(greater, value, gain)
			better.take(old, scale)
			better.take(gain, value)
			VMOVUPS(old, at(to, off))
			VMOVUPS(gain, at(to, scalesGain+off))
		})
	})
}

// searchKinds runs body for each half of the rows and both kinds of levels.
func searchKinds(v isa, body func(off int, g laneGrid, name string)) {
	grid, table := loadPointer("grid"), loadPointer("table")
	v.halves(func(off int, name string) {
		v.kinds(name, grid, table, func(g laneGrid, name string) { body(off, g, name) })
	})
	VZEROUPPER()
	RET()
}

func laneOffsets(v isa) {
	v.text("laneOffsets", "(best, low, high *float32, x, w *float32, n int, reach []float32, refine int, o *float32, grid, table *float32)", "what laneOffsetsGeneric does.")
	searchKinds(v, func(off int, g laneGrid, name string) {
		v.tries(name, func(name string, reach reg.VecVirtual) {
			offset, from := v.vec(), v.vec()
			if reach != nil {
				low, high, least := loadPointer("low"), loadPointer("high"), v.vec()
				VMOVUPS(at(low, off), least)
				VMOVUPS(at(high, off), from)
				VSUBPS(least, from, from)
				VDIVPS(reach, from, from)
				v.zero(offset)
				VSUBPS(least, offset, offset)
			} else {
				best := loadPointer("best")
				VMOVUPS(at(best, off), from)
				VMOVUPS(at(best, scalesOffset+off), offset)
			}
			acc := v.levelSums(name, off, g, offset, v.inverse(from))
			v.solve(name, off, acc)
		})
	})
}

// solve takes the scale and offset that suit the levels best, where they gain.
func (v isa) solve(name string, off int, acc []reg.VecVirtual) {
	q, qq, xq, x := acc[0], acc[1], acc[2], acc[3]
	o := loadPointer("o")
	total, all, det, t, s, m := v.vec(), v.vec(), v.vec(), v.vec(), v.vec(), v.vec()
	VBROADCASTSS(at(o, 0), total)
	VMULPS(total, qq, all)
	VMULPS(q, q, t)
	VSUBPS(t, all, det)
	VMULPS(total, xq, s)
	VMULPS(x, q, t)
	VSUBPS(t, s, s)
	VDIVPS(det, s, s)
	VMULPS(q, xq, m)
	VMULPS(x, qq, t)
	VSUBPS(t, m, m)
	VDIVPS(det, m, m)
	small := v.broadcast("laneSingle", 1e-5)
	VMULPS(all, small, small)
	single := v.compare(atMost, det, small)
	zero, positive := v.vec(), v.vec()
	v.zero(zero)
	VBROADCASTSS(at(o, 4), positive)
	// Without a limit nothing is below it: 0 times what is negative is not.
	VMULPS(m, positive, positive)
	single.or(v.compare(less, positive, zero))
	VDIVPS(qq, xq, t)
	v.compare(equal, qq, zero).take(t, zero)
	single.take(s, t)
	single.take(m, zero)
	value := v.vec()
	VMULPS(s, xq, value)
	VMULPS(m, x, t)
	VSUBPS(t, value, value)
	best, gain := loadPointer("best"), v.vec()
	VMOVUPS(at(best, scalesGain+off), gain)
	better := v.compare(greater, value, gain)
	better.take(gain, value)
	VMOVUPS(gain, at(best, scalesGain+off))
	for i, r := range []reg.VecVirtual{s, m} {
		old := v.vec()
		VMOVUPS(at(best, laneBytes*i+off), old)
		better.take(old, r)
		VMOVUPS(old, at(best, laneBytes*i+off))
	}
}

func laneNear(v isa) {
	v.text("laneNear", "(sum, scale, offset *float32, x, w *float32, n int, near *float32, steps *float32, count int, grid, table *float32)", "what laneNearGeneric does.")
	searchKinds(v, func(off int, g laneGrid, name string) {
		steps, count := loadPointer("steps"), loadPointer("count")
		most, to := v.broadcast("laneLargest", math.MaxFloat32), loadPointer("sum")
		VMOVUPS(most, at(to, off))
		loop(name+"steps", count, 1, func() {
			near := loadPointer("near")
			sc, mn, scale, offset, limit := v.vec(), v.vec(), v.vec(), v.vec(), v.vec()
			VBROADCASTSS(at(steps, 0), sc)
			VADDPS(at(near, off), sc, sc)
			VBROADCASTSS(at(near, nearLeast), limit)
			VMAXPS(limit, sc, sc)
			v.zero(limit)
			VBROADCASTSS(at(steps, 4), mn)
			VADDPS(at(near, nearOffset+off), mn, mn)
			VMAXPS(limit, mn, mn)
			VBROADCASTSS(at(near, nearMost), limit)
			VMINPS(limit, sc, sc)
			VMINPS(limit, mn, mn)
			VMULPS(at(near, nearD+off), sc, scale)
			VMULPS(at(near, nearM+off), mn, offset)
			acc := v.errorSum(name, off, g, scale, offset)
			old, to := v.vec(), loadPointer("sum")
			VMOVUPS(at(to, off), old)
			better := v.compare(less, acc, old)
			keep := func(x reg.VecVirtual) {
				better.take(old, x)
				VMOVUPS(old, at(to, off))
			}
			keep(acc)
			for _, r := range []struct {
				name string
				x    reg.VecVirtual
			}{{"scale", sc}, {"offset", mn}} {
				to = loadPointer(r.name)
				VMOVUPS(at(to, off), old)
				keep(r.x)
			}
			bump(steps, 8)
		})
	})
}

// errorSum adds up weighted squares of errors, as laneError does.
func (v isa) errorSum(name string, off int, g laneGrid, scale, offset reg.VecVirtual) (acc reg.VecVirtual) {
	x, w, left := loadPointer("x"), loadPointer("w"), loadPointer("n")
	acc = v.vec()
	inv := v.inverse(scale)
	v.zero(acc)
	loop(name+"error", left, 1, func() {
		value, t, wc := v.vec(), v.vec(), v.vec()
		VADDPS(at(x, off), offset, value)
		VMULPS(inv, value, t)
		g.level(t)
		VMULPS(scale, t, t)
		VSUBPS(t, value, value)
		VBROADCASTSS(at(w, 0), wc)
		VMULPS(value, wc, wc)
		VMULPS(value, wc, wc)
		VADDPS(wc, acc, acc)
		bump(x, laneBytes)
		bump(w, 4)
	})
	return acc
}
