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
	d := dotState{v: v, w: w, y: ptr("y"), row: ptr("w"), x: ptr("x")}
	n := length("y")
	d.ld = Load(Param("ld"), GP64()).(reg.GPVirtual)
	IMUL3Q(Imm(uint64(w.size)), d.ld, d.ld)
	loop("rows4", n, 4, func() { d.rows(4) })
	loop("rows1", n, 1, func() { d.rows(1) })
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

// A pass multiplies some rows, whose current vectors are at x and cur.
type pass struct {
	*dotState
	rows         int
	left, x, cur reg.GPVirtual
	step         stride
	even, odd    []reg.VecVirtual
}

// rows multiplies r rows and steps to the next.
func (d *dotState) rows(r int) {
	p := pass{d, r, length("x"), GP64(), GP64(), newStride(d.ld), d.v.vecs(r), d.v.vecs(r)}
	lanes := d.v.lanes
	MOVQ(d.x, p.x)
	MOVQ(d.row, p.cur)
	for i := range r {
		d.v.zero(p.even[i])
		d.v.zero(p.odd[i])
	}
	loop(label("by2x%d", r), p.left, 2*lanes, func() {
		if d.w.size == 2 { // measured: a tenth faster from memory; float32 gains nothing
			for i := range r {
				PREFETCHT0(p.step.row(p.cur, i, prefetch))
			}
		}
		p.multiply(p.even, 0)
		p.multiply(p.odd, 1)
		p.advance(2 * lanes)
	})
	loop(label("by1x%d", r), p.left, lanes, func() { p.multiply(p.even, 0); p.advance(lanes) })
	p.finish()
	for i := range r {
		VMOVSS(p.even[i].AsX(), at(d.y, 4*i))
		ADDQ(d.ld, d.row)
	}
	bump(d.y, 4*r)
}

// multiply adds vector number n of every row times that of x.
func (p *pass) multiply(sums []reg.VecVirtual, n int) {
	xs := p.v.vec()
	VMOVUPS(at(p.x, 4*p.v.lanes*n), xs)
	for i := range p.rows {
		from := p.step.row(p.cur, i, p.w.size*p.v.lanes*n)
		if p.w.size == 4 {
			VFMADD231PS(from, xs, sums[i])
			continue
		}
		ws := p.v.vec()
		p.w.load(p.v, from, ws)
		VFMADD231PS(ws, xs, sums[i])
	}
}

func (p *pass) advance(n int) {
	bump(p.x, 4*n)
	bump(p.cur, p.w.size*n)
}

// finish takes the last values, masked or one by one, and leaves each row's sum
// in the lowest lane of even.
func (p *pass) finish() {
	if p.v.wide {
		rest(p.left, label("whole%d", p.rows), func() {
			t, xs, ws := p.v.tail(p.left), p.v.vec(), p.v.vec()
			t.load(at(p.x, 0), xs)
			for i := range p.rows {
				p.w.mask(t.k, p.step.row(p.cur, i, 0), ws)
				VFMADD231PS(ws, xs, p.odd[i])
			}
		})
	}
	for i := range p.rows {
		VADDPS(p.odd[i], p.even[i], p.even[i])
		p.v.sum(p.even[i])
	}
	if p.v.wide {
		return
	}
	loop(label("single%d", p.rows), p.left, 1, func() {
		a, b := XMM(), XMM()
		VMOVSS(at(p.x, 0), a)
		for i := range p.rows {
			p.w.one(p.step.row(p.cur, i, 0), b)
			VFMADD231SS(b, a, p.even[i].AsX())
		}
		p.advance(1)
	})
}
