package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// panelFile writes the two products of attention, scores and the sum of values,
// for each form in which keys and values are stored.
func panelFile(v isa) {
	for _, e := range []element{
		{"F32", "[]float32", 4, func(m Mem, r reg.VecVirtual) { VMOVUPS(m, r) }},
		{"F16", "[]byte", 2, func(m Mem, r reg.VecVirtual) { VCVTPH2PS(m, r) }},
		{"Q8", "[]byte", 1, func(m Mem, r reg.VecVirtual) { VPMOVSXBD(m, r); VCVTDQ2PS(r, r) }},
	} {
		panel(v, e)
	}
	scatterF16(v)
	scatterQ8(v)
	expPart(v)
	expPages(v)
}

// An element is how one number of a panel is stored.
type element struct {
	name, slice string
	size        int // bytes
	load        func(m Mem, r reg.VecVirtual)
}

// A height is how many rows of a are multiplied at once, and how many vectors of
// columns, widest first. Each sum has a register.
type height struct {
	rows   int
	widths []int
}

func (v isa) heights() []height {
	if v.wide {
		return []height{{12, []int{2, 1}}, {8, []int{2, 1}}, {4, []int{4, 2, 1}}, {2, []int{4, 2, 1}}, {1, []int{4, 2, 1}}}
	}
	return []height{{6, []int{2}}, {4, []int{2}}, {2, []int{4, 2}}, {1, []int{4, 2}}}
}

// panel multiplies rows of a with a panel whose rows are converted in registers:
// a conversion serves all rows of a. Each number of rows is a kernel of its own.
func panel(v isa, e element) {
	for _, h := range v.heights() {
		v.text(label("panel%sx%d", e.name, h.rows), "(c []float32, ldc int, a []float32, lda int, b "+e.slice+", ldb, n, k int, add bool)", "",
			label("	for i := range %d {", h.rows),
			"		for j := range n {",
			"			s := 0, or c[i*ldc+j] where add is set",
			"			for p := range k {",
			"				s += a[i*lda+p] * b[p*ldb+j]",
			"			}",
			"			c[i*ldc+j] = s",
			"		}",
			"	}",
			"",
			"fused, p ascending. n is a multiple of 16; strides count elements.")
		panelRows(v, e, h)
		VZEROUPPER()
		RET()
	}
}

// panelPrefetch is how many bytes ahead of the multiplication a panel is asked
// for: measured, a sixth faster from memory with few rows. It may lie behind the
// end: prefetching never faults.
const panelPrefetch = 2048

// A strip is a number of vectors of columns, for all rows of a height.
type strip struct {
	v    isa
	e    element
	rows int
	c, b reg.GPVirtual // first column of the strip
}

func panelRows(v isa, e element, h height) {
	s := strip{v: v, e: e, rows: h.rows, c: ptr("c"), b: ptr("b")}
	n := Load(Param("n"), GP64()).(reg.GPVirtual)
	for _, w := range h.widths {
		loop(label("columns%dx%d", h.rows, w), n, w*v.lanes, func() {
			s.multiply(w)
			bump(s.c, 4*v.lanes*w)
			bump(s.b, e.size*v.lanes*w)
		})
	}
}

// multiply computes one strip of w vectors.
func (s *strip) multiply(w int) {
	v, name := s.v, label("%dx%d", s.rows, w)
	sums := v.vecs(s.rows * w)
	s.start(sums, w, name)
	lda, ldb := Load(Param("lda"), GP64()).(reg.GPVirtual), Load(Param("ldb"), GP64()).(reg.GPVirtual)
	SHLQ(Imm(2), lda)
	if s.e.size > 1 {
		SHLQ(Imm(uint64(s.e.size/2)), ldb)
	}
	panelRow, base := stride{one: ldb}, tileRows(s.rows, lda)
	b, k := GP64(), Load(Param("k"), GP64()).(reg.GPVirtual)
	MOVQ(s.b, b)
	step := func(u int) {
		cols := v.vecs(w)
		if s.rows <= 4 { // more rows take longer than reading
			for i := 0; i < s.e.size*v.lanes*w; i += 64 {
				PREFETCHT0(panelRow.row(b, u, panelPrefetch+i))
			}
		}
		for j, r := range cols {
			s.e.load(panelRow.row(b, u, s.e.size*v.lanes*j), r)
		}
		for i := range s.rows {
			x := v.vec()
			VBROADCASTSS(stride{one: lda}.row(base[i/3], i%3, 4*u), x)
			for j, r := range cols {
				VFMADD231PS(r, x, sums[i*w+j])
			}
		}
	}
	advance := func(n int) {
		for _, r := range base {
			bump(r, 4*n)
		}
		if n == 1 {
			ADDQ(ldb, b)
		} else {
			LEAQ(Mem{Base: b, Index: ldb, Scale: 2}, b)
		}
	}
	loop("by2x"+name, k, 2, func() { step(0); step(1); advance(2) })
	loop("by1x"+name, k, 1, func() { step(0); advance(1) })
	s.each(sums, w, func(r reg.VecVirtual, m Mem) { VMOVUPS(r, m) })
}

// start zeroes the sums, or loads them.
func (s *strip) start(sums []reg.VecVirtual, w int, name string) {
	add := Load(Param("add"), GP8()).(reg.GPVirtual)
	TESTB(add, add)
	JNZ(LabelRef("load" + name))
	for _, r := range sums {
		VXORPS(r, r, r) // avo sees that this reads nothing; with VPXORD it does not
	}
	JMP(LabelRef("begin" + name))
	Label("load" + name)
	s.each(sums, w, func(r reg.VecVirtual, m Mem) { VMOVUPS(m, r) })
	Label("begin" + name)
}

// each visits the places of the sums in c.
func (s *strip) each(sums []reg.VecVirtual, w int, f func(r reg.VecVirtual, m Mem)) {
	ldc, c := Load(Param("ldc"), GP64()).(reg.GPVirtual), GP64()
	SHLQ(Imm(2), ldc)
	MOVQ(s.c, c)
	for i := range s.rows {
		for j := range w {
			f(sums[i*w+j], at(c, 4*s.v.lanes*j))
		}
		if i+1 < s.rows {
			ADDQ(ldc, c)
		}
	}
}

// scatterF16 stores a column of halves. AVX2 only: AVX-512 has no better way.
func scatterF16(v isa) {
	if v.wide {
		return
	}
	v.text("scatterF16", "(dst []byte, ld int, src []float32)", "",
		"	for i, f := range src {",
		"		dst[2*i*ld:] = f rounded to nearest, ties to even, as F16",
		"	}",
		"",
		"ld counts elements.")
	dst, src, left := ptr("dst"), ptr("src"), length("src")
	ld := Load(Param("ld"), GP64()).(reg.GPVirtual)
	ADDQ(ld, ld)
	rows := newStride(ld)
	loop("by8", left, 8, func() {
		r := YMM()
		VCVTPS2PH(Imm(0), load8(src), r.AsX())
		for i := range 8 {
			VPEXTRW(Imm(uint64(i)), r.AsX(), rows.row(dst, i%4, 0))
			if i%4 == 3 {
				LEAQ(Mem{Base: dst, Index: ld, Scale: 4}, dst)
			}
		}
		bump(src, 32)
	})
	loop("single", left, 1, func() {
		r := XMM()
		VMOVSS(at(src, 0), r)
		VCVTPS2PH(Imm(0), r, r)
		VPEXTRW(Imm(0), r, at(dst, 0))
		ADDQ(ld, dst)
		bump(src, 4)
	})
	VZEROUPPER()
	RET()
}

func load8(src reg.GPVirtual) reg.VecVirtual {
	r := YMM()
	VMOVUPS(at(src, 0), r)
	return r
}

// scatterQ8 finds the largest magnitude as the largest bit pattern, in which
// infinities and NaNs are larger than numbers.
func scatterQ8(v isa) {
	if v.wide {
		return
	}
	v.text("maxBits", "(x []float32) uint32", "",
		"	for _, f := range x {",
		"		m = max(m, bits of |f|)",
		"	}",
		"	return m")
	x, left := ptr("x"), length("x")
	m, mask := YMM(), v.broadcastBits("absMask", 0x7fffffff)
	v.zero(m)
	loop("by8", left, 8, func() {
		r := YMM()
		VPAND(at(x, 0), mask, r)
		VPMAXUD(r, m, m)
		bump(x, 32)
	})
	rest(left, "done", func() {
		t, r := v.tail(left), YMM()
		t.load(at(x, 0), r)
		VPAND(r, mask, r)
		VPMAXUD(r, m, m)
	})
	v.fold(m, func(a, b reg.Register) { VPMAXUD(a, b, b) })
	g := GP32()
	VMOVD(m.AsX(), g)
	Store(g, ReturnIndex(0))
	VZEROUPPER()
	RET()

	v.text("scatterQ8", "(dst []byte, ld int, src []float32, inverse float32)", "",
		"	for i, f := range src {",
		"		dst[i*ld] = byte(int8(f*inverse rounded to nearest, ties to even))",
		"	}",
		"",
		"where the products lie within -127 and 127.")
	dst, src, left := ptr("dst"), ptr("src"), length("src")
	ld, inv := Load(Param("ld"), GP64()).(reg.GPVirtual), YMM()
	VBROADCASTSS(mustAddr("inverse"), inv)
	rows := newStride(ld)
	loop("by8", left, 8, func() {
		r, hi := YMM(), YMM()
		VMULPS(at(src, 0), inv, r)
		VCVTPS2DQ(r, r)
		VEXTRACTI128(Imm(1), r, hi.AsX())
		VPACKSSDW(hi.AsX(), r.AsX(), r.AsX())
		VPACKSSWB(r.AsX(), r.AsX(), r.AsX())
		for i := range 8 {
			VPEXTRB(Imm(uint64(i)), r.AsX(), rows.row(dst, i%4, 0))
			if i%4 == 3 {
				LEAQ(Mem{Base: dst, Index: ld, Scale: 4}, dst)
			}
		}
		bump(src, 32)
	})
	loop("single", left, 1, func() {
		r, g := XMM(), GP32()
		VMOVSS(at(src, 0), r)
		VMULSS(inv.AsX(), r, r)
		VCVTSS2SI(r, g)
		MOVB(g.As8(), at(dst, 0))
		ADDQ(ld, dst)
		bump(src, 4)
	})
	VZEROUPPER()
	RET()
}

// expPart scales in a first pass, which finds the largest score, and takes
// exponentials in a second.
func expPart(v isa) {
	v.text("expPart", "(x []float32, scale, top float32) (float32, float32)", "",
		"	for i := range x {",
		"		x[i] *= scale",
		"		top = max(top, x[i])",
		"	}",
		"	for i := range x {",
		"		x[i] = exp(x[i] - top)",
		"		sum += x[i]",
		"	}",
		"	return top, sum",
		"",
		"max may pass over a NaN.")
	x, left := ptr("x"), length("x")
	scale, top := v.vec(), v.vecs(2)
	VBROADCASTSS(mustAddr("scale"), scale)
	VBROADCASTSS(mustAddr("top"), top[0])
	VMOVAPS(top[0], top[1])
	scaled := func(i int) {
		r := v.vec()
		VMULPS(at(x, 4*v.lanes*i), scale, r)
		VMOVUPS(r, at(x, 4*v.lanes*i))
		VMAXPS(r, top[i], top[i])
	}
	loop("max2", left, 2*v.lanes, func() { scaled(0); scaled(1); bump(x, 8*v.lanes) })
	loop("max1", left, v.lanes, func() { scaled(0); bump(x, 4*v.lanes) })
	rest(left, "maxDone", func() {
		t, r := v.tail(left), v.vec()
		t.load(at(x, 0), r)
		VMULPS(scale, r, r)
		t.store(r, at(x, 0))
		if v.wide {
			VMAXPS(r, top[1], t.k, top[1])
		} else {
			VBLENDVPS(t.m, r, top[1], r)
			VMAXPS(r, top[1], top[1])
		}
	})
	VMAXPS(top[1], top[0], top[0])
	v.fold(top[0], func(a, b reg.Register) { VMAXPS(a, b, b) })
	Store(top[0].AsX(), ReturnIndex(0))
	shift := v.vec()
	VBROADCASTSS(top[0].AsX(), shift)
	v.expSumFrom(ptr("x"), length("x"), shift, 1)
}

// expPages is expPart of four pages, whose sums are wanted one by one: those of a
// register's parts of four lanes are added before the parts are.
func expPages(v isa) {
	v.text("expPages", "(x []float32, sums *[4]float32, scale, top float32) float32", "",
		"	for i := range 256 {",
		"		x[i] *= scale",
		"		top = max(top, x[i])",
		"	}",
		"	sums = {}",
		"	for i := range 256 {",
		"		x[i] = exp(x[i] - top)",
		"		sums[i/64] += x[i]",
		"	}",
		"	return top",
		"",
		"max may pass over a NaN.")
	const page = 64
	x, to := ptr("x"), Load(Param("sums"), GP64()).(reg.GPVirtual)
	scale, top := v.vec(), v.vecs(2)
	VBROADCASTSS(mustAddr("scale"), scale)
	VBROADCASTSS(mustAddr("top"), top[0])
	VMOVAPS(top[0], top[1])
	left := GP64()
	MOVQ(U32(4*page), left)
	loop("max", left, 4*v.lanes, func() {
		for i := range 4 {
			r := v.vec()
			VMULPS(at(x, 4*v.lanes*i), scale, r)
			VMOVUPS(r, at(x, 4*v.lanes*i))
			VMAXPS(r, top[i%2], top[i%2])
		}
		bump(x, 16*v.lanes)
	})
	VMAXPS(top[1], top[0], top[0])
	v.fold(top[0], func(a, b reg.Register) { VMAXPS(a, b, b) })
	Store(top[0].AsX(), ReturnIndex(0))
	shift := v.vec()
	VBROADCASTSS(top[0].AsX(), shift)
	x = ptr("x")
	lanes, place := AllocLocal(4*4*v.lanes), GP64()
	LEAQ(lanes, place)
	MOVQ(U32(4*page), left)
	loop("page", left, page, func() {
		s := v.vecs(2)
		for i := range page / v.lanes {
			r := v.vec()
			VMOVUPS(at(x, 4*v.lanes*i), r)
			VSUBPS(shift, r, r)
			v.exp(r)
			VMOVUPS(r, at(x, 4*v.lanes*i))
			if i < 2 {
				VMOVAPS(r, s[i])
			} else {
				VADDPS(r, s[i%2], s[i%2])
			}
		}
		VADDPS(s[1], s[0], s[0])
		VMOVUPS(s[0], at(place, 0))
		bump(place, 4*v.lanes)
		bump(x, 4*page)
	})
	sum := v.vecs(4)
	for i, s := range sum {
		VMOVUPS(lanes.Offset(4*v.lanes*i), s)
	}
	t := v.vec()
	pair := func(a, b reg.VecVirtual) {
		VUNPCKLPS(b, a, t)
		VUNPCKHPS(b, a, a)
		VADDPS(t, a, a)
	}
	pair(sum[0], sum[1])
	pair(sum[2], sum[3])
	VUNPCKLPD(sum[2], sum[0], t)
	VUNPCKHPD(sum[2], sum[0], sum[0])
	VADDPS(t, sum[0], sum[0])
	if v.wide {
		VEXTRACTF64X4(Imm(1), sum[0], t.AsY())
		VADDPS(t.AsY(), sum[0].AsY(), sum[0].AsY())
	}
	VEXTRACTF128(Imm(1), sum[0].AsY(), t.AsX())
	VADDPS(t.AsX(), sum[0].AsX(), sum[0].AsX())
	VMOVUPS(sum[0].AsX(), at(to, 0))
	VZEROUPPER()
	RET()
}
