package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

func normFile(v isa) {
	moments(v)
	rmsApply(v)
	layerApply(v)
	ropeHalf(v)
	ropeInterleaved(v)
}

// widen reads lanes/2 float32 values as float64.
func (v isa) widen(m Mem, r reg.VecVirtual) { VCVTPS2PD(m, r) }

// moments adds in four registers, float64 throughout.
func moments(v isa) {
	v.text("moments", "(x []float32, mean float64) (float64, float64)", "",
		"	for _, f := range x {",
		"		d := float64(f) - mean",
		"		sum += d",
		"		squares += d * d",
		"	}",
		"	return sum, squares")
	x, left := ptr("x"), length("x")
	mean, sum, squares := v.vec(), v.vecs(4), v.vecs(4)
	VBROADCASTSD(mustAddr("mean"), mean)
	for i := range sum {
		v.zero(sum[i])
		v.zero(squares[i])
	}
	half := v.lanes / 2
	add := func(i int) {
		d := v.vec()
		v.widen(at(x, 4*half*i), d)
		VSUBPD(mean, d, d)
		VADDPD(d, sum[i], sum[i])
		VFMADD231PD(d, d, squares[i])
	}
	loop("by4", left, 4*half, func() {
		for i := range 4 {
			add(i)
		}
		bump(x, 16*half)
	})
	loop("by1", left, half, func() { add(0); bump(x, 4*half) })
	for _, s := range [][]reg.VecVirtual{sum, squares} {
		VADDPD(s[1], s[0], s[0])
		VADDPD(s[3], s[2], s[2])
		VADDPD(s[2], s[0], s[0])
		v.sum64(s[0])
	}
	loop("single", left, 1, func() {
		d := XMM()
		VCVTSS2SD(at(x, 0), mean.AsX(), d)
		VSUBSD(mean.AsX(), d, d)
		VADDSD(d, sum[0].AsX(), sum[0].AsX())
		VFMADD231SD(d, d, squares[0].AsX())
		bump(x, 4)
	})
	Store(sum[0].AsX(), ReturnIndex(0))
	Store(squares[0].AsX(), ReturnIndex(1))
	VZEROUPPER()
	RET()
}

// sum64 adds the float64 lanes of r into its lowest.
func (v isa) sum64(r reg.VecVirtual) {
	t := v.vec()
	if v.wide {
		VEXTRACTF64X4(Imm(1), r, t.AsY())
		VADDPD(t.AsY(), r.AsY(), r.AsY())
	}
	VEXTRACTF128(Imm(1), r.AsY(), t.AsX())
	VADDPD(t.AsX(), r.AsX(), r.AsX())
	VMOVHLPS(r.AsX(), r.AsX(), t.AsX())
	VADDSD(t.AsX(), r.AsX(), r.AsX())
}

func rmsApply(v isa) {
	v.text("rmsApply", "(dst, x, w []float32, r, offset float32)", "",
		"	for i, f := range x {",
		"		dst[i] = f * r * (w[i] + offset)",
		"	}")
	dst, x, w, left := ptr("dst"), ptr("x"), ptr("w"), length("x")
	r, offset := v.vec(), v.vec()
	VBROADCASTSS(mustAddr("r"), r)
	VBROADCASTSS(mustAddr("offset"), offset)
	op := func(f, g reg.VecVirtual) {
		VMULPS(r, f, f)
		VADDPS(offset, g, g)
		VMULPS(g, f, f)
	}
	step := func(i int) {
		f, g := v.vec(), v.vec()
		VMOVUPS(at(x, 4*v.lanes*i), f)
		VMOVUPS(at(w, 4*v.lanes*i), g)
		op(f, g)
		VMOVUPS(f, at(dst, 4*v.lanes*i))
	}
	advance := func(n int) {
		for _, p := range []reg.GPVirtual{dst, x, w} {
			bump(p, 4*v.lanes*n)
		}
	}
	loop("by2", left, 2*v.lanes, func() { step(0); step(1); advance(2) })
	loop("by1", left, v.lanes, func() { step(0); advance(1) })
	rest(left, "done", func() {
		t, f, g := v.tail(left), v.vec(), v.vec()
		t.load(at(x, 0), f)
		t.load(at(w, 0), g)
		op(f, g)
		t.store(f, at(dst, 0))
	})
	VZEROUPPER()
	RET()
}

// layerApply has a loop with a bias and one without.
func layerApply(v isa) {
	v.text("layerApply", "(dst, x, w, b []float32, mean, r float64)", "",
		"	for i, f := range x {",
		"		dst[i] = (float64(f) - mean) * r * float64(w[i]) + float64(b[i])",
		"	}",
		"",
		"in float64, rounded once at the end; nothing is added where b is empty.")
	has := length("b")
	TESTQ(has, has)
	JZ(LabelRef("plain"))
	v.layerLoop("biased", true)
	Label("plain")
	v.layerLoop("plain", false)
}

func (v isa) layerLoop(name string, biased bool) {
	dst, x, w, b, left := ptr("dst"), ptr("x"), ptr("w"), ptr("b"), length("x")
	half := v.lanes / 2
	mean, r := v.vec(), v.vec()
	VBROADCASTSD(mustAddr("mean"), mean)
	VBROADCASTSD(mustAddr("r"), r)
	loop(name+"Vectors", left, half, func() {
		f, g := v.vec(), v.vec()
		v.widen(at(x, 0), f)
		v.widen(at(w, 0), g)
		VSUBPD(mean, f, f)
		VMULPD(r, f, f)
		if biased {
			h := v.vec()
			v.widen(at(b, 0), h)
			VFMADD213PD(h, g, f)
		} else {
			VMULPD(g, f, f)
		}
		out := v.store64(f)
		VMOVUPS(out, at(dst, 0))
		for _, p := range []reg.GPVirtual{dst, x, w, b} {
			bump(p, 4*half)
		}
	})
	loop(name+"Singles", left, 1, func() {
		f, g := XMM(), XMM()
		VCVTSS2SD(at(x, 0), r.AsX(), f)
		VCVTSS2SD(at(w, 0), r.AsX(), g)
		VSUBSD(mean.AsX(), f, f)
		VMULSD(r.AsX(), f, f)
		if biased {
			h := XMM()
			VCVTSS2SD(at(b, 0), r.AsX(), h)
			VFMADD213SD(h, g, f)
		} else {
			VMULSD(g, f, f)
		}
		VCVTSD2SS(f, f, f)
		VMOVSS(f, at(dst, 0))
		for _, p := range []reg.GPVirtual{dst, x, w, b} {
			bump(p, 4)
		}
	})
	VZEROUPPER()
	RET()
}

// store64 narrows a register of float64 to float32.
func (v isa) store64(f reg.VecVirtual) reg.Register {
	if v.wide {
		out := YMM()
		VCVTPD2PS(f, out)
		return out
	}
	out := XMM()
	VCVTPD2PSY(f, out)
	return out
}

func ropeHalf(v isa) {
	v.text("ropeHalf", "(x, cos, sin []float32)", "",
		"	h := len(cos)",
		"	for i := range h {",
		"		x[i], x[i+h] = x[i]*cos[i] - x[i+h]*sin[i], x[i+h]*cos[i] + x[i]*sin[i]",
		"	}")
	lo, hi, cos, sin, left := ptr("x"), GP64(), ptr("cos"), ptr("sin"), length("cos")
	LEAQ(Mem{Base: lo, Index: left, Scale: 4}, hi)
	turn := func(load func(m Mem, r reg.VecVirtual), store func(r reg.VecVirtual, m Mem)) {
		a, b, c, s, t, u := v.vec(), v.vec(), v.vec(), v.vec(), v.vec(), v.vec()
		load(at(lo, 0), a)
		load(at(hi, 0), b)
		load(at(cos, 0), c)
		load(at(sin, 0), s)
		VMULPS(s, b, t)
		VFMSUB231PS(c, a, t) // a c - b s
		VMULPS(s, a, u)
		VFMADD231PS(c, b, u) // b c + a s
		store(t, at(lo, 0))
		store(u, at(hi, 0))
	}
	loop("by1", left, v.lanes, func() {
		turn(func(m Mem, r reg.VecVirtual) { VMOVUPS(m, r) }, func(r reg.VecVirtual, m Mem) { VMOVUPS(r, m) })
		for _, p := range []reg.GPVirtual{lo, hi, cos, sin} {
			bump(p, 4*v.lanes)
		}
	})
	rest(left, "done", func() {
		t := v.tail(left)
		turn(t.load, t.store)
	})
	VZEROUPPER()
	RET()
}

// ropeInterleaved doubles each cosine and sine and swaps neighbours; the fused
// instruction subtracts in even lanes and adds in odd ones.
func ropeInterleaved(v isa) {
	v.text("ropeInterleaved", "(x, cos, sin []float32)", "",
		"	for i := range cos {",
		"		x[2*i], x[2*i+1] = x[2*i]*cos[i] - x[2*i+1]*sin[i], x[2*i+1]*cos[i] + x[2*i]*sin[i]",
		"	}")
	x, cos, sin, left := ptr("x"), ptr("cos"), ptr("sin"), length("cos")
	half := v.lanes / 2
	turn := func(f, c, s reg.VecVirtual) {
		other := v.vec()
		VMOVSLDUP(c, c)
		VMOVSLDUP(s, s)
		VPERMILPS(Imm(0xb1), f, other)
		VMULPS(s, other, other)
		VFMADDSUB213PS(other, c, f)
	}
	loop("by1", left, half, func() {
		f, c, s := v.vec(), v.vec(), v.vec()
		VMOVUPS(at(x, 0), f)
		VPMOVZXDQ(at(cos, 0), c)
		VPMOVZXDQ(at(sin, 0), s)
		turn(f, c, s)
		VMOVUPS(f, at(x, 0))
		bump(x, 4*v.lanes)
		bump(cos, 4*half)
		bump(sin, 4*half)
	})
	loop("single", left, 1, func() {
		a, b, c, s, t, u := XMM(), XMM(), XMM(), XMM(), XMM(), XMM()
		VMOVSS(at(x, 0), a)
		VMOVSS(at(x, 4), b)
		VMOVSS(at(cos, 0), c)
		VMOVSS(at(sin, 0), s)
		VMULSS(s, b, t)
		VFMSUB231SS(c, a, t)
		VMULSS(s, a, u)
		VFMADD231SS(c, b, u)
		VMOVSS(t, at(x, 0))
		VMOVSS(u, at(x, 4))
		bump(x, 8)
		bump(cos, 4)
		bump(sin, 4)
	})
	VZEROUPPER()
	RET()
}
