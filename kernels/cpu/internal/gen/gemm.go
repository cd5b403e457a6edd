package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

func gemmFile(v isa) {
	if v.wide {
		gemmTile(v, 5, 12)
		return
	}
	gemmTile(v, 3, 6)
	pack8(v)
}

const unrollK = 4

// gemmTile writes one body for every height that occurs, least to most: two
// vectors of columns by m rows of sums, 12x32 for AVX-512 and 6x16 for AVX2. The
// rows of a are read where they lie: a broadcast touches one line in sixteen
// steps.
func gemmTile(v isa, least, most int) {
	v.text("gemmTile", "(m int, a []float32, lda int, w []float32, kc int, c []float32, ldc int, add bool)", "",
		"	for i := range m {",
		"		for j := range nr {",
		"			s := sum over k < kc of a[i*lda+k] * w[k*nr+j], k ascending",
		"			c[i*ldc+j] = s, or += s where add is set",
		"		}",
		"	}",
		"",
		label("for %d <= m <= %d, nr = %d and kc >= 0; strides count elements.", least, most, 2*v.lanes))
	m := Load(Param("m"), GP64()).(reg.GPVirtual)
	for h := least; h < most; h++ {
		CMPQ(m, Imm(uint64(h)))
		JE(LabelRef(label("height%d", h)))
	}
	for h := most; h >= least; h-- {
		Label(label("height%d", h))
		tileOf(v, h)
		VZEROUPPER()
		RET()
	}
}

func tileOf(v isa, m int) {
	lda := Load(Param("lda"), GP64()).(reg.GPVirtual)
	SHLQ(Imm(2), lda)
	base := tileRows(m, lda)
	w, kc := ptr("w"), Load(Param("kc"), GP64()).(reg.GPVirtual)
	sums := v.vecs(2 * m)
	for _, s := range sums {
		v.zero(s)
	}
	step := func(u int) {
		lo, hi := v.vec(), v.vec()
		VMOVUPS(at(w, 8*v.lanes*u), lo)
		VMOVUPS(at(w, 8*v.lanes*u+4*v.lanes), hi)
		for i := range m {
			x := v.vec()
			VBROADCASTSS(stride{one: lda}.row(base[i/3], i%3, 4*u), x)
			VFMADD231PS(lo, x, sums[2*i])
			VFMADD231PS(hi, x, sums[2*i+1])
		}
	}
	advance := func(n int) {
		bump(w, 8*v.lanes*n)
		for _, b := range base {
			bump(b, 4*n)
		}
	}
	loop(label("unrolled%d", m), kc, unrollK, func() {
		for u := range unrollK {
			step(u)
		}
		advance(unrollK)
	})
	loop(label("single%d", m), kc, 1, func() { step(0); advance(1) })
	storeTile(v, m, sums)
}

// tileRows points at every third of m rows of a.
func tileRows(m int, lda reg.GPVirtual) []reg.GPVirtual {
	base := []reg.GPVirtual{ptr("a")}
	for i := 1; 3*i < m; i++ {
		next := GP64()
		LEAQ(Mem{Base: base[i-1], Index: lda, Scale: 2}, next)
		ADDQ(lda, next)
		base = append(base, next)
	}
	return base
}

func storeTile(v isa, m int, sums []reg.VecVirtual) {
	ldc, add := Load(Param("ldc"), GP64()).(reg.GPVirtual), Load(Param("add"), GP8()).(reg.GPVirtual)
	SHLQ(Imm(2), ldc)
	plain := label("store%d", m)
	TESTB(add, add)
	JZ(LabelRef(plain))
	c := ptr("c")
	for i := range m {
		VADDPS(at(c, 0), sums[2*i], sums[2*i])
		VADDPS(at(c, 4*v.lanes), sums[2*i+1], sums[2*i+1])
		ADDQ(ldc, c)
	}
	Label(plain)
	c = ptr("c")
	for i := range m {
		VMOVUPS(sums[2*i], at(c, 0))
		VMOVUPS(sums[2*i+1], at(c, 4*v.lanes))
		ADDQ(ldc, c)
	}
}

// pack8 transposes blocks of 8x8: halves of rows i and i+4 share a register, so
// that only shuffles within halves are needed.
func pack8(v isa) {
	v.text("pack8", "(dst []float32, nr int, src []float32, k0 int)", "",
		"	for k := range k0 - k0%8 {",
		"		for j := range 8 {",
		"			dst[k*nr+j] = src[j*k0+k]",
		"		}",
		"	}")
	dst, src := ptr("dst"), ptr("src")
	nr, k0 := Load(Param("nr"), GP64()).(reg.GPVirtual), Load(Param("k0"), GP64()).(reg.GPVirtual)
	ld, far := GP64(), GP64()
	MOVQ(k0, ld)
	SHLQ(Imm(2), ld)
	LEAQ(Mem{Base: src, Index: ld, Scale: 4}, far)
	rows := newStride(ld)
	SHLQ(Imm(2), nr)
	loop("by8", k0, 8, func() {
		for half := range 2 {
			t, u := v.vecs(4), v.vecs(4)
			for i := range 4 {
				VMOVUPS(rows.row(src, i, 16*half), t[i].AsX())
				VINSERTF128(Imm(1), rows.row(far, i, 16*half), t[i], t[i])
			}
			VUNPCKLPS(t[1], t[0], u[0])
			VUNPCKHPS(t[1], t[0], u[1])
			VUNPCKLPS(t[3], t[2], u[2])
			VUNPCKHPS(t[3], t[2], u[3])
			VUNPCKLPD(u[2], u[0], t[0])
			VUNPCKHPD(u[2], u[0], t[1])
			VUNPCKLPD(u[3], u[1], t[2])
			VUNPCKHPD(u[3], u[1], t[3])
			for i := range 4 {
				VMOVUPS(t[i], at(dst, 0))
				ADDQ(nr, dst)
			}
		}
		bump(src, 32)
		bump(far, 32)
	})
	VZEROUPPER()
	RET()
}
