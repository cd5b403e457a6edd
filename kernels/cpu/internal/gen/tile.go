package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
	"github.com/mmcloughlin/avo/x86"
)

const (
	panelLine   = 128 // bytes: a 32-bit word of each of 32 rows
	tileTokens  = 6
	twiceTokens = 4
)

func tileFile(v isa) {
	if !v.wide {
		return
	}
	for _, group := range []int{32, 16} {
		for _, mins := range []bool{false, true} {
			tileRun(v, group, mins)
		}
	}
	tileTwice(v)
	interleave(v)
}

// tileRun writes one body for each number of tokens: two vectors of 16 rows by m
// tokens of int32 sums, and as many of float32.
func tileRun(v isa, group int, mins bool) {
	name := label("tile%d", group)
	sum := "c += S * (d * (sum of codes*q, less 128 * sum of q))"
	if mins {
		name += "Min"
		sum = "c += S * (d * sum of codes*q) - M * (d * sum of q)"
	}
	tileText(v, name, group, tileTokens, sum)
	for h := tileTokens; h >= 1; h-- {
		(&tileGen{isa: v, m: h, group: group, mins: mins}).body()
	}
}

// tileTwice is tile16 for weights whose S is the same for both halves of 32: one
// multiplication less, and registers for four tokens, which is as fast.
func tileTwice(v isa) {
	tileText(v, "tileTwice", 16, twiceTokens, "c += S * (d * (sum of codes*q, less 128 * sum of q)), S being that of every other group")
	for h := twiceTokens; h >= 1; h-- {
		(&tileGen{isa: v, m: h, group: 16, twice: true}).body()
	}
}

// tileText opens a kernel for up to the given number of tokens, whose bodies follow.
func tileText(v isa, name string, group, tokens int, sum string) {
	v.text(name, "(m int, a []byte, panel []byte, c []float32, ldc int, add bool)", "",
		"	for i := range m {",
		"		for j := range 32 {",
		label("			for each group of %d weights of row j:", group),
		"				"+sum,
		"		}",
		"	}",
		"",
		label("with c = c[i*ldc+j], begun at 0 where add is not set, 1 <= m <= %d, records at", tokens),
		"a[512*i:]; panel holds 64 lines of codes, four of each of 32 rows, then a line",
		"of S for each group, then of M.")
	m := Load(Param("m"), GP64()).(reg.GPVirtual)
	for h := 1; h < tokens; h++ {
		CMPQ(m, Imm(uint64(h)))
		JE(LabelRef(label("tokens%d", h)))
	}
}

type tileGen struct {
	isa
	m, group   int
	mins       bool
	twice      bool          // S is that of both halves of 32
	q, d       reg.GPVirtual // into the first record: values, a word a group
	w, s       reg.GPVirtual // lines of codes, of scales
	ints, sums []reg.VecVirtual
}

func (t *tileGen) body() {
	Label(label("tokens%d", t.m))
	t.write()
	VZEROUPPER()
	RET()
}

func (t *tileGen) write() {
	t.q, t.w = ptr("a"), ptr("panel")
	t.d, t.s = GP64(), GP64()
	MOVQ(t.q, t.d)
	LEAQ(at(t.w, 64*panelLine), t.s)
	t.ints, t.sums = t.vecs(2*t.m), t.vecs(2*t.m)
	for _, r := range t.sums {
		zeroed(r)
	}
	left := GP64()
	MOVQ(U32(8), left)
	loop(label("group%d", t.m), left, 1, func() {
		if t.twice {
			t.halves()
		} else {
			for h := range 32 / t.group {
				t.products(h)
				t.scale(h)
			}
		}
		bump(t.q, 32)
		bump(t.d, 4*32/t.group)
		bump(t.w, 8*panelLine)
		bump(t.s, 32/t.group*panelLine)
	})
	t.store()
}

// products sums one group in int32, begun at -128 times the sum of q where
// codes stand 128 too high.
func (t *tileGen) products(h int) {
	for i := range t.m {
		a, b := t.ints[2*i], t.ints[2*i+1]
		if t.mins {
			zeroed(a)
			zeroed(b)
			continue
		}
		VPBROADCASTD(at(t.d, recordBytes*i+atShift+4*h), a)
		VMOVDQA64(a, b)
	}
	for k := range t.group / 4 {
		line := (h*t.group/4 + k) * panelLine
		lo, hi, x := t.vec(), t.vec(), t.vec()
		VMOVDQU64(at(t.w, line), lo)
		VMOVDQU64(at(t.w, line+64), hi)
		for i := range t.m {
			VPBROADCASTD(at(t.q, recordBytes*i+h*t.group+4*k), x)
			VPDPBUSD(x, lo, t.ints[2*i])
			VPDPBUSD(x, hi, t.ints[2*i+1])
		}
	}
}

// halves adds 32 weights to the float32 sums.
func (t *tileGen) halves() {
	part := t.vecs(2 * t.m)
	for h := range 2 {
		t.products(h)
		for i, p := range part {
			d := at(t.d, recordBytes*(i/2)+atScale+4*h)
			VCVTDQ2PS(t.ints[i], t.ints[i])
			if h == 0 {
				VMULPS_BCST(d, t.ints[i], p)
			} else {
				VFMADD231PS_BCST(d, t.ints[i], p)
			}
		}
	}
	for i, p := range part {
		VFMADD231PS(at(t.s, 64*(i%2)), p, t.sums[i])
	}
}

// scale adds one group to the float32 sums.
func (t *tileGen) scale(h int) {
	s := t.vecs(2)
	for j := range s {
		VMOVUPS(at(t.s, h*panelLine+64*j), s[j])
	}
	for i := range t.m {
		for j := range s {
			f := t.vec()
			VCVTDQ2PS(t.ints[2*i+j], t.ints[2*i+j])
			VMULPS_BCST(at(t.d, recordBytes*i+atScale+4*h), s[j], f)
			VFMADD231PS(t.ints[2*i+j], f, t.sums[2*i+j])
		}
	}
	if !t.mins {
		return
	}
	groups := 256 / t.group
	for j := range s {
		VMOVUPS(at(t.s, (groups+h)*panelLine+64*j), s[j])
	}
	for i := range t.m {
		from := at(t.d, recordBytes*i+atSum)
		if t.group == 16 {
			from = at(t.d, recordBytes*i+atSum16+4*h)
		}
		for j := range s {
			VFNMADD231PS_BCST(from, s[j], t.sums[2*i+j])
		}
	}
}

func (t *tileGen) store() {
	c, ldc := ptr("c"), Load(Param("ldc"), GP64()).(reg.GPVirtual)
	SHLQ(Imm(2), ldc)
	add, plain := Load(Param("add"), GP8()).(reg.GPVirtual), label("plain%d", t.m)
	TESTB(add, add)
	JZ(LabelRef(plain))
	for i := range t.m {
		VADDPS(at(c, 0), t.sums[2*i], t.sums[2*i])
		VADDPS(at(c, 64), t.sums[2*i+1], t.sums[2*i+1])
		ADDQ(ldc, c)
	}
	Label(plain)
	c = ptr("c")
	for i := range t.m {
		VMOVUPS(t.sums[2*i], at(c, 0))
		VMOVUPS(t.sums[2*i+1], at(c, 64))
		ADDQ(ldc, c)
	}
}

// interleave turns 16 rows into columns: rows r, r+4, r+8 and r+12 share a
// register, so that only shuffles within 128 bits are needed.
func interleave(v isa) {
	v.text("interleave", "(dst []byte, src []byte, ld int, columns int)", "",
		"	for b := range columns {",
		"		for c := range 16 {",
		"			for r := range 16 {",
		"				the 32-bit word dst[(16*b+c)*128+4*r:] = that of src[r*ld+64*b+4*c:]",
		"			}",
		"		}",
		"	}")
	dst, ld := ptr("dst"), Load(Param("ld"), GP64()).(reg.GPVirtual)
	columns := Load(Param("columns"), GP64()).(reg.GPVirtual)
	var far [4]reg.GPVirtual // rows 0, 4, 8 and 12
	far[0] = ptr("src")
	for i := 1; i < 4; i++ {
		far[i] = GP64()
		LEAQ(Mem{Base: far[i-1], Index: ld, Scale: 4}, far[i])
	}
	rows := newStride(ld)
	loop("column", columns, 1, func() {
		for part := range 4 {
			x, u := v.vecs(4), v.vecs(4)
			for r := range 4 {
				i, err := x86.VMOVDQU64(rows.row(far[0], r, 16*part), x[r].AsX())
				whole(x[r], i, err)
				for j := 1; j < 4; j++ {
					VINSERTI32X4(Imm(uint64(j)), rows.row(far[j], r, 16*part), x[r], x[r])
				}
			}
			VPUNPCKLDQ(x[1], x[0], u[0])
			VPUNPCKHDQ(x[1], x[0], u[1])
			VPUNPCKLDQ(x[3], x[2], u[2])
			VPUNPCKHDQ(x[3], x[2], u[3])
			VPUNPCKLQDQ(u[2], u[0], x[0])
			VPUNPCKHQDQ(u[2], u[0], x[1])
			VPUNPCKLQDQ(u[3], u[1], x[2])
			VPUNPCKHQDQ(u[3], u[1], x[3])
			for i := range x {
				VMOVDQU64(x[i], at(dst, (4*part+i)*panelLine))
			}
		}
		for _, f := range far {
			bump(f, 64)
		}
		bump(dst, 16*panelLine)
	})
	VZEROUPPER()
	RET()
}
