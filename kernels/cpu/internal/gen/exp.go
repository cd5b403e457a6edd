package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

func expFile(v isa) {
	expSum(v)
	gated(v)
	swiGLU(v)
	gelu(v)
	softCap(v)
	logAdd(v)
}

// exp replaces r by its exponential: n = round(r / ln 2), f = r - n ln 2 with
// ln 2 in two parts, e^f by its Taylor series to the seventh power (5e-9), times
// 2^n. Arguments saturate where float32 does; a NaN stays.
func (v isa) exp(r reg.VecVirtual) {
	n, p := v.vec(), v.vec()
	// The second source of MIN and MAX is returned for a NaN: it is r.
	VMINPS(r, v.broadcast("expMax", 89), r)
	VMAXPS(r, v.broadcast("expMin", -105), r)
	VMULPS(v.broadcast("log2e", 1.44269504), r, n)
	if v.wide {
		VRNDSCALEPS(Imm(8), n, n)
	} else {
		VROUNDPS(Imm(8), n, n)
	}
	VFNMADD231PS(v.broadcast("ln2Hi", 0.693147182464599609375), n, r)
	VFNMADD231PS(v.broadcast("ln2Lo", -1.9046542e-9), n, r)
	VBROADCASTSS(v.constant("exp7", F32(1.0/5040)), p)
	for _, c := range []struct {
		name string
		f    float32
	}{{"exp6", 1.0 / 720}, {"exp5", 1.0 / 120}, {"exp4", 1.0 / 24}, {"exp3", 1.0 / 6}, {"exp2", 0.5}, {"exp1", 1}, {"exp1", 1}} {
		VFMADD213PS(v.broadcast(c.name, c.f), r, p)
	}
	if v.wide {
		VSCALEFPS(n, p, r)
		return
	}
	v.scaleBy(n, p, r)
}

// scaleBy is r = p * 2^n in two steps, each within the range of exponents.
func (v isa) scaleBy(n, p, r reg.VecVirtual) {
	bias, h := v.vec(), v.vec()
	VPBROADCASTD(v.constant("expBias", U32(127)), bias)
	VCVTPS2DQ(n, n)
	VPSRAD(Imm(1), n, h)
	VPSUBD(h, n, n)
	for _, e := range []reg.VecVirtual{h, n} {
		VPADDD(bias, e, e)
		VPSLLD(Imm(23), e, e)
	}
	VMULPS(h, p, r)
	VMULPS(n, r, r)
}

func expSum(v isa) {
	v.text("expSum", "(x []float32, shift float32) float32", "",
		"	for i := range x {",
		"		x[i] = exp(x[i] - shift)",
		"		sum += x[i]",
		"	}",
		"	return sum")
	shift := v.vec()
	VBROADCASTSS(mustAddr("shift"), shift)
	v.expSumFrom(ptr("x"), length("x"), shift, 0)
}

// expSumFrom is the body of expSum and its end; the sum is result number result.
func (v isa) expSumFrom(x, left reg.GPVirtual, shift reg.VecVirtual, result int) {
	sum := v.vecs(2)
	for _, s := range sum {
		v.zero(s)
	}
	step := func(i int) {
		r := v.vec()
		VMOVUPS(at(x, 4*v.lanes*i), r)
		VSUBPS(shift, r, r)
		v.exp(r)
		VMOVUPS(r, at(x, 4*v.lanes*i))
		VADDPS(r, sum[i], sum[i])
	}
	loop("by2", left, 2*v.lanes, func() { step(0); step(1); bump(x, 8*v.lanes) })
	loop("by1", left, v.lanes, func() { step(0); bump(x, 4*v.lanes) })
	rest(left, "done", func() {
		t, r := v.tail(left), v.vec()
		t.load(at(x, 0), r)
		VSUBPS(shift, r, r)
		v.exp(r)
		t.store(r, at(x, 0))
		t.keep(r)
		VADDPS(r, sum[1], sum[1])
	})
	VADDPS(sum[1], sum[0], sum[0])
	v.sum(sum[0])
	Store(sum[0].AsX(), ReturnIndex(result))
	VZEROUPPER()
	RET()
}

func gated(v isa) {
	v.text("gated", "(dst, x []float32, a1, a3 float32)", "",
		"	for i, v := range x {",
		"		dst[i] = v / (1 + exp(-(a1*v + a3*v*v*v)))",
		"	}",
		"",
		"where the v of the exponent is limited to 1000 either way.")
	dst, x, left := ptr("dst"), ptr("x"), length("x")
	a1, a3 := v.vec(), v.vec()
	VBROADCASTSS(mustAddr("a1"), a1)
	VBROADCASTSS(mustAddr("a3"), a3)
	op := func(r reg.VecVirtual) {
		u, z := v.vec(), v.vec()
		VMINPS(r, v.broadcast("limit", 1000), u)
		VMAXPS(u, v.broadcast("limitMinus", -1000), u)
		VMULPS(u, u, z)
		VFMADD213PS(a1, a3, z) // a1 + a3 u u
		VMULPS(u, z, z)
		v.zero(u)
		VSUBPS(z, u, z)
		v.exp(z)
		VADDPS(v.broadcast("exp1", 1), z, z)
		VDIVPS(z, r, r)
	}
	v.apply(dst, x, left, op)
}

func swiGLU(v isa) {
	v.text("swiGLU", "(dst, gate, up []float32, alpha, limit, offset float32)", "",
		"	for i, g := range gate {",
		"		g, u := min(g, limit), min(max(up[i], -limit), limit)",
		"		dst[i] = g / (1 + exp(-alpha*g)) * (u + offset)",
		"	}")
	dst, gate, up, left := ptr("dst"), ptr("gate"), ptr("up"), length("gate")
	minusAlpha, limit, minusLimit, offset := v.vec(), v.vec(), v.vec(), v.vec()
	VBROADCASTSS(mustAddr("alpha"), minusAlpha)
	VBROADCASTSS(mustAddr("limit"), limit)
	VBROADCASTSS(mustAddr("offset"), offset)
	sign := v.broadcastBits("signMask", 0x80000000)
	VXORPS(sign, minusAlpha, minusAlpha)
	VXORPS(sign, limit, minusLimit)
	op := func(g, u reg.VecVirtual) {
		// The second source of MIN and MAX is returned for a NaN.
		VMINPS(g, limit, g)
		VMINPS(u, limit, u)
		VMAXPS(u, minusLimit, u)
		VADDPS(offset, u, u)
		z := v.vec()
		VMULPS(minusAlpha, g, z)
		v.exp(z)
		VADDPS(v.broadcast("exp1", 1), z, z)
		VDIVPS(z, g, g)
		VMULPS(u, g, g)
	}
	loop("by1", left, v.lanes, func() {
		g, u := v.vec(), v.vec()
		VMOVUPS(at(gate, 0), g)
		VMOVUPS(at(up, 0), u)
		op(g, u)
		VMOVUPS(g, at(dst, 0))
		for _, p := range []reg.GPVirtual{dst, gate, up} {
			bump(p, 4*v.lanes)
		}
	})
	rest(left, "done", func() {
		t, g, u := v.tail(left), v.vec(), v.vec()
		t.load(at(gate, 0), g)
		t.load(at(up, 0), u)
		op(g, u)
		t.store(g, at(dst, 0))
	})
	VZEROUPPER()
	RET()
}

// apply writes dst = op(x), the last vector masked, and returns.
func (v isa) apply(dst, x, left reg.GPVirtual, op func(r reg.VecVirtual)) {
	loop("by1", left, v.lanes, func() {
		r := v.vec()
		VMOVUPS(at(x, 0), r)
		op(r)
		VMOVUPS(r, at(dst, 0))
		bump(dst, 4*v.lanes)
		bump(x, 4*v.lanes)
	})
	rest(left, "done", func() {
		t, r := v.tail(left), v.vec()
		t.load(at(x, 0), r)
		op(r)
		t.store(r, at(dst, 0))
	})
	VZEROUPPER()
	RET()
}

// gelu takes the tail of the normal distribution as exp(-x^2/2) t Q(t) with t =
// 1 / (1 + |x| / sqrt(8)). Q, of degree 9, was fitted to erfcx(z) / (2 t) = exp(z^2)
// erfc(z) / (2 t), z = |x| / sqrt(2), on 0 <= z <= 14 by least squares with
// Lawson's weights; its relative error is 3.8e-8. The rounding of x^2 is put right
// by the remainder that a fused multiplication gives.
func gelu(v isa) {
	v.text("gelu", "(dst, x []float32)", "",
		"	for i, v := range x {",
		"		dst[i] = v * (1 + erf(v/sqrt(2))) / 2",
		"	}")
	dst, x, left := ptr("dst"), ptr("x"), length("x")
	v.apply(dst, x, left, func(r reg.VecVirtual) {
		a, t, q := v.vec(), v.vec(), v.vec()
		VANDPS(v.broadcastBits("absMask", 0x7fffffff), r, a)
		VMINPS(a, v.broadcast("tailEnd", 20), a) // the tail is 0 from 14.5 on
		VMOVAPS(v.broadcast("exp1", 1), t)
		VFMADD231PS(v.broadcast("root8", 0.353553391), a, t)
		VMOVAPS(v.broadcast("exp1", 1), q)
		VDIVPS(t, q, t)
		VBROADCASTSS(v.constant("tail9", F32(tailQ()[9])), q)
		for i := 8; i >= 0; i-- {
			VFMADD213PS(v.broadcast(label("tail%d", i), tailQ()[i]), t, q)
		}
		VMULPS(t, q, q)
		square, rest := v.vec(), v.vec()
		VMULPS(a, a, square)
		VMOVAPS(square, rest)
		VFMSUB231PS(a, a, rest) // a*a - square
		half := v.broadcast("minusHalf", -0.5)
		VMULPS(half, square, square)
		VMULPS(half, rest, rest)
		v.exp(square)
		VFMADD231PS(rest, square, square)
		VMULPS(square, q, q) // the tail beyond |x|
		one := v.broadcast("exp1", 1)
		VSUBPS(q, one, one)
		v.choose(r, q, one) // negative ones take the tail itself
		VMULPS(one, r, r)
	})
}

func tailQ() [10]float32 {
	return [...]float32{0.1410406, 0.14124396, 0.12103777, 0.1039538, -0.02144969,
		0.15522215, -0.2642172, 0.15854566, -0.036759857, 0.0013828094}
}

// softCap is limit * tanh(u) for u = x / limit: (1-e)/(1+e) with e = exp(-2|u|), and
// where that would cancel, under 1/4, the odd Taylor series to the ninth power.
func softCap(v isa) {
	v.text("softCap", "(x []float32, limit float32)", "",
		"	for i, v := range x {",
		"		x[i] = limit * tanh(v/limit)",
		"	}")
	x, left, limit := ptr("x"), length("x"), v.vec()
	VBROADCASTSS(mustAddr("limit"), limit)
	dst := GP64()
	MOVQ(x, dst)
	v.apply(dst, x, left, func(r reg.VecVirtual) {
		u, a, e, p := v.vec(), v.vec(), v.vec(), v.vec()
		VDIVPS(limit, r, u)
		VANDPS(v.broadcastBits("absMask", 0x7fffffff), u, a)
		VMULPS(v.broadcast("minusTwo", -2), a, e)
		v.exp(e)
		one, far := v.broadcast("exp1", 1), v.vec()
		VSUBPS(e, one, far)
		VADDPS(e, one, e)
		VDIVPS(e, far, far)
		s := v.vec()
		VMULPS(a, a, s)
		VBROADCASTSS(v.constant("tanh9", F32(62.0/2835)), p)
		for _, c := range []struct {
			name string
			f    float32
		}{{"tanh7", -17.0 / 315}, {"tanh5", 2.0 / 15}, {"tanh3", -1.0 / 3}} {
			VFMADD213PS(v.broadcast(c.name, c.f), s, p)
		}
		VMULPS(s, p, p)
		VFMADD213PS(a, a, p) // a + a (s P)
		VSUBPS(v.broadcast("quarter", 0.25), a, s)
		v.choose(s, p, far)
		sign := v.vec()
		VANDPS(v.broadcastBits("signMask", 0x80000000), u, sign)
		VORPS(sign, far, far)
		VMULPS(limit, far, r)
	})
}

// choose replaces r by other in the lanes where the sign of by is set.
func (v isa) choose(by, other, r reg.VecVirtual) {
	if v.wide {
		k := K()
		VPMOVD2M(by, k)
		VMOVAPS(other, k, r)
	} else {
		VBLENDVPS(by, other, r, r)
	}
}

// broadcastBits fills a register with a pattern.
func (v isa) broadcastBits(name string, bits uint32) reg.VecVirtual {
	r := v.vec()
	VBROADCASTSS(v.constant(name, U32(bits)), r)
	return r
}

// logAdd takes the exponent and a mantissa m within sqrt(1/2) and sqrt(2) apart: with
// t = (m-1)/(m+1), ln m = 2t (1 + t^2/3 + t^4/5 + t^6/7 + t^8/9), within 1e-9.
func logAdd(v isa) {
	v.text("logAdd", "(dst, x []float32)", "",
		"	for i, v := range x {",
		"		dst[i] += log(v)",
		"	}",
		"",
		"of normal numbers; len(x) is a multiple of 16.")
	dst, x, left := ptr("dst"), ptr("x"), length("x")
	root, mask, one := v.vec(), v.vec(), v.broadcast("exp1", 1)
	VPBROADCASTD(v.constant("rootHalf", U32(0x3f3504f3)), root)
	VPBROADCASTD(v.constant("mantissa", U32(0x7fffff)), mask)
	loop("one", left, v.lanes, func() {
		m, e, u := v.vec(), v.vec(), v.vec()
		VMOVUPS(at(x, 0), m)
		VPSUBD(root, m, e) // the bits from those of sqrt(1/2) on
		if v.wide {
			VPANDD(e, mask, m)
		} else {
			VPAND(e, mask, m)
		}
		VPADDD(root, m, m)
		VPSRAD(Imm(23), e, e)
		VCVTDQ2PS(e, e)
		VADDPS(one, m, u)
		VSUBPS(one, m, m)
		VDIVPS(u, m, m)
		VMULPS(m, m, u)
		p := v.vec()
		VBROADCASTSS(v.constant("log9", F32(2.0/9)), p)
		for _, c := range []struct {
			name string
			f    float32
		}{{"log7", 2.0 / 7}, {"log5", 2.0 / 5}, {"log3", 2.0 / 3}, {"log1", 2}} {
			VFMADD213PS(v.broadcast(c.name, c.f), u, p)
		}
		VMULPS(p, m, m)
		VFMADD231PS(v.broadcast("ln2", 0.693147182464599609375), e, m)
		VADDPS(at(dst, 0), m, m)
		VMOVUPS(m, at(dst, 0))
		bump(dst, 4*v.lanes)
		bump(x, 4*v.lanes)
	})
	VZEROUPPER()
	RET()
}
