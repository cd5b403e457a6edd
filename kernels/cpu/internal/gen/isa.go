package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// An isa is what differs between the two vector lengths: registers, and how the
// last few elements are touched without touching what lies behind them.
type isa struct {
	name  string         // suffix of the kernels
	wide  bool           // AVX-512
	lanes int            // float32 values in a register
	data  map[string]Mem // read-only data of the file being written, by name
}

func avx2(data map[string]Mem) isa   { return isa{"AVX2", false, 8, data} }
func avx512(data map[string]Mem) isa { return isa{"AVX512", true, 16, data} }

// vec returns a fresh full-width register.
func (v isa) vec() reg.VecVirtual {
	if v.wide {
		return ZMM()
	}
	return YMM()
}

func (v isa) vecs(n int) []reg.VecVirtual {
	r := make([]reg.VecVirtual, n)
	for i := range r {
		r[i] = v.vec()
	}
	return r
}

func (v isa) zero(r reg.VecVirtual) {
	if v.wide {
		VPXORD(r, r, r)
	} else {
		VXORPS(r, r, r)
	}
}

// text opens a kernel and its stub, whose comment is the reference program.
func (v isa) text(name, signature string, doc ...string) {
	TEXT(name+v.name, 4 /* NOSPLIT */, "func"+signature)
	Pragma("noescape")
	Doc(append([]string{name + v.name + " computes"}, doc...)...)
}

// broadcast fills a register with a float32 constant.
func (v isa) broadcast(name string, f float32) reg.VecVirtual {
	r := v.vec()
	VBROADCASTSS(v.constant(name, F32(f)), r)
	return r
}

func (v isa) constant(name string, c Constant) Mem {
	if _, ok := v.data[name]; !ok {
		v.data[name] = ConstData(name, c)
	}
	return v.data[name]
}

// A tail moves the last rem < lanes float32 values.
type tail struct {
	v isa
	k reg.OpmaskVirtual // AVX-512
	m reg.VecVirtual    // AVX2: lanes to touch have the sign bit set
}

// tail makes the mask of the lowest rem lanes; rem is destroyed.
func (v isa) tail(rem reg.GPVirtual) tail {
	t := tail{v: v}
	if v.wide {
		ones := GP64()
		MOVQ(I32(-1), ones)
		SHLXQ(rem, ones, ones)
		NOTQ(ones)
		t.k = K()
		KMOVW(ones.As32(), t.k)
		return t
	}
	t.m = YMM()
	table := GP64()
	LEAQ(v.maskTable(), table)
	SHLQ(Imm(2), rem)
	SUBQ(rem, table)
	VMOVDQU(Mem{Base: table}.Offset(32), t.m)
	return t
}

// maskTable is eight words of ones, then eight of zeros.
func (v isa) maskTable() Mem {
	const name = "tailMask"
	if m, ok := v.data[name]; ok {
		return m
	}
	m := GLOBL(name, 8|16 /* RODATA|NOPTR */)
	for i := range 16 {
		ones := uint32(0xffffffff)
		if i >= 8 {
			ones = 0
		}
		DATA(4*i, U32(ones))
	}
	v.data[name] = m
	return m
}

// load reads the masked lanes, zeros elsewhere.
func (t tail) load(m Mem, r reg.VecVirtual) {
	if t.v.wide {
		VMOVUPS_Z(m, t.k, r)
	} else {
		VMASKMOVPS(m, t.m, r)
	}
}

// store writes the masked lanes.
func (t tail) store(r reg.VecVirtual, m Mem) {
	if t.v.wide {
		VMOVUPS(r, t.k, m)
	} else {
		VMASKMOVPS(r, t.m, m)
	}
}

// keep zeroes the lanes of r that are not masked.
func (t tail) keep(r reg.VecVirtual) {
	if t.v.wide {
		VMOVAPS_Z(r, t.k, r)
	} else {
		VANDPS(t.m, r, r)
	}
}

// sum adds the lanes of r, in halves, into its lowest.
func (v isa) sum(r reg.VecVirtual) {
	v.fold(r, func(a, b reg.Register) { VADDPS(a, b, b) })
}

// fold joins the upper half of r to the lower until one lane is left.
func (v isa) fold(r reg.VecVirtual, join func(a, b reg.Register)) {
	t := v.vec()
	if v.wide {
		VEXTRACTF64X4(Imm(1), r, t.AsY())
		join(t.AsY(), r.AsY())
	}
	VEXTRACTF128(Imm(1), r.AsY(), t.AsX())
	join(t.AsX(), r.AsX())
	VMOVHLPS(r.AsX(), r.AsX(), t.AsX())
	join(t.AsX(), r.AsX())
	VMOVSHDUP(r.AsX(), t.AsX())
	join(t.AsX(), r.AsX())
}

// loop runs body while at least step elements are left, counting down.
func loop(label string, left reg.GPVirtual, step int, body func()) {
	Label(label)
	CMPQ(left, U32(uint32(step)))
	JL(LabelRef(label + "_end"))
	body()
	SUBQ(U32(uint32(step)), left)
	JMP(LabelRef(label))
	Label(label + "_end")
}

// bump adds n bytes to a pointer.
func bump(p reg.Register, n int) {
	if n < 128 {
		ADDQ(Imm(uint64(n)), p)
	} else {
		ADDQ(I32(int32(n)), p)
	}
}

// A stride reaches up to four rows from one pointer.
type stride struct{ one, three reg.GPVirtual }

func newStride(bytes reg.GPVirtual) stride {
	s := stride{bytes, GP64()}
	LEAQ(Mem{Base: bytes, Index: bytes, Scale: 2}, s.three)
	return s
}

// row addresses disp bytes into row i.
func (s stride) row(base reg.Register, i, disp int) Mem {
	m := Mem{Base: base, Disp: disp}
	switch i {
	case 1, 2:
		m.Index, m.Scale = s.one, uint8(i)
	case 3:
		m.Index, m.Scale = s.three, 1
	}
	return m
}

// rest runs body unless nothing is left.
func rest(left reg.GPVirtual, done string, body func()) {
	TESTQ(left, left)
	JZ(LabelRef(done))
	body()
	Label(done)
}

func ptr(name string) reg.GPVirtual    { return Load(Param(name).Base(), GP64()).(reg.GPVirtual) }
func length(name string) reg.GPVirtual { return Load(Param(name).Len(), GP64()).(reg.GPVirtual) }

func at(base reg.Register, disp int) Mem { return Mem{Base: base, Disp: disp} }

func label(format string, a ...any) string { return fmt.Sprintf(format, a...) }
