package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// A weight is how a kernel reads one kind of weight.
type weight struct {
	name  string
	slice string // Go type of w
	size  int    // bytes
	load  func(v isa, m Mem, r reg.VecVirtual)
	mask  func(k reg.OpmaskVirtual, m Mem, r reg.VecVirtual) // AVX-512, masked
	one   func(m Mem, r reg.Register)                        // AVX2, a single value
}

func weights() []weight {
	return []weight{
		{"F32", "[]float32", 4,
			func(_ isa, m Mem, r reg.VecVirtual) { VMOVUPS(m, r) },
			func(k reg.OpmaskVirtual, m Mem, r reg.VecVirtual) { VMOVUPS_Z(m, k, r) },
			func(m Mem, r reg.Register) { VMOVSS(m, r) }},
		{"BF16", "[]byte", 2,
			func(_ isa, m Mem, r reg.VecVirtual) { VPMOVZXWD(m, r); VPSLLD(Imm(16), r, r) },
			func(k reg.OpmaskVirtual, m Mem, r reg.VecVirtual) { VPMOVZXWD_Z(m, k, r); VPSLLD(Imm(16), r, r) },
			oneBF16},
		{"F16", "[]byte", 2,
			func(_ isa, m Mem, r reg.VecVirtual) { VCVTPH2PS(m, r) },
			func(k reg.OpmaskVirtual, m Mem, r reg.VecVirtual) { VCVTPH2PS_Z(m, k, r) },
			oneF16},
	}
}

func oneBF16(m Mem, r reg.Register) {
	g := GP32()
	MOVWLZX(m, g)
	SHLL(Imm(16), g)
	VMOVD(g, r)
}

func oneF16(m Mem, r reg.Register) {
	g := GP32()
	MOVWLZX(m, g)
	VMOVD(g, r)
	VCVTPH2PS(r, r)
}

func dotFile(v isa) {
	for _, w := range weights() {
		dotRows(v, w)
	}
}

// dotRows takes four rows at a time and the rest one by one, each row with the
// same two sums, of even and odd vectors, so that its bits do not depend on its
// company.
func dotRows(v isa, w weight) {
	v.text("dotRows"+w.name, "(y []float32, w "+w.slice+", ld int, x []float32)", "",
		"	for n := range y {",
		"		y[n] = sum over k of w[n*ld+k] * x[k]",
		"	}",
		"",
		"with float32 sums, for K = len(x); ld >= K counts elements of w.")
	p := "rows" // labels are local to a function
	d := dotState{v: v, w: w, y: ptr("y"), row: ptr("w"), x: ptr("x")}
	n := length("y")
	d.ld = Load(Param("ld"), GP64()).(reg.GPVirtual)
	IMUL3Q(Imm(uint64(w.size)), d.ld, d.ld)
	loop(p+"4", n, 4, func() { d.rows(4) })
	loop(p+"1", n, 1, func() { d.rows(1) })
	VZEROUPPER()
	RET()
}

type dotState struct {
	v             isa
	w             weight
	y, row, x, ld reg.GPVirtual
}

// prefetch is how many bytes ahead of the multiplication a row is asked for. It
// may lie behind the end of w: prefetching never faults.
const prefetch = 1024

// rows multiplies r rows and steps to the next.
func (d *dotState) rows(r int) {
	v := d.v
	left, x, cur := length("x"), GP64(), GP64()
	MOVQ(d.x, x)
	MOVQ(d.row, cur)
	ld3 := GP64()
	LEAQ(Mem{Base: d.ld, Index: d.ld, Scale: 2}, ld3)
	even, odd := v.vecs(r), v.vecs(r)
	for i := range r {
		v.zero(even[i])
		v.zero(odd[i])
	}
	addr := func(i, disp int) Mem {
		m := Mem{Base: cur, Disp: disp}
		switch i {
		case 1:
			m.Index, m.Scale = d.ld, 1
		case 2:
			m.Index, m.Scale = d.ld, 2
		case 3:
			m.Index, m.Scale = ld3, 1
		}
		return m
	}
	step := func(sums []reg.VecVirtual, vec int) {
		xs := v.vec()
		VMOVUPS(at(x, 4*v.lanes*vec), xs)
		for i := range r {
			if d.w.name == "F32" {
				VFMADD231PS(addr(i, 4*v.lanes*vec), xs, sums[i])
				continue
			}
			ws := v.vec()
			d.w.load(v, addr(i, d.w.size*v.lanes*vec), ws)
			VFMADD231PS(ws, xs, sums[i])
		}
	}
	advance := func(n int) {
		bump(x, 4*n)
		bump(cur, d.w.size*n)
	}
	loop(label("by2x%d", r), left, 2*v.lanes, func() {
		for i := range r {
			if d.w.size == 2 { // measured: a tenth faster from memory; float32 gains nothing
				PREFETCHT0(addr(i, prefetch))
			}
		}
		step(even, 0)
		step(odd, 1)
		advance(2 * v.lanes)
	})
	loop(label("by1x%d", r), left, v.lanes, func() { step(even, 0); advance(v.lanes) })
	if v.wide {
		d.maskedTail(r, left, x, odd, addr)
	}
	for i := range r {
		VADDPS(odd[i], even[i], even[i])
		v.sum(even[i])
	}
	if !v.wide {
		loop(label("single%d", r), left, 1, func() {
			a, b := XMM(), XMM()
			VMOVSS(at(x, 0), a)
			for i := range r {
				d.w.one(addr(i, 0), b)
				VFMADD231SS(b, a, even[i].AsX())
			}
			advance(1)
		})
	}
	for i := range r {
		VMOVSS(even[i].AsX(), at(d.y, 4*i))
	}
	bump(d.y, 4*r)
	for range r {
		ADDQ(d.ld, d.row)
	}
}

func (d *dotState) maskedTail(r int, left, x reg.GPVirtual, sums []reg.VecVirtual, addr func(i, disp int) Mem) {
	done := label("whole%d", r)
	TESTQ(left, left)
	JZ(LabelRef(done))
	t := d.v.tail(left)
	xs, ws := d.v.vec(), d.v.vec()
	t.load(at(x, 0), xs)
	for i := range r {
		d.w.mask(t.k, addr(i, 0), ws)
		VFMADD231PS(ws, xs, sums[i])
	}
	Label(done)
}
