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
	name  string // suffix of the kernels
	wide  bool   // AVX-512
	lanes int    // float32 values in a register
}

func avx2() isa   { return isa{"AVX2", false, 8} }
func avx512() isa { return isa{"AVX512", true, 16} }

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

// half returns the register of half the width with the same number.
func (v isa) half(r reg.VecVirtual) reg.Register {
	if v.wide {
		return r.AsY()
	}
	return r.AsX()
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
	VBROADCASTSS(constant(name, F32(f)), r)
	return r
}

// constants remembers the read-only data of the file being written.
var constants = map[string]Mem{}

func constant(name string, c Constant) Mem {
	if _, ok := constants[name]; !ok {
		constants[name] = ConstData(name, c)
	}
	return constants[name]
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
	LEAQ(maskTable(), table)
	SHLQ(Imm(2), rem)
	SUBQ(rem, table)
	VMOVDQU(Mem{Base: table}.Offset(32), t.m)
	return t
}

// maskTable is eight words of ones, then eight of zeros.
func maskTable() Mem {
	const name = "tailMask"
	if m, ok := constants[name]; ok {
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
	constants[name] = m
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
	t := v.vec()
	if v.wide {
		VEXTRACTF64X4(Imm(1), r, t.AsY())
		VADDPS(t.AsY(), r.AsY(), r.AsY())
	}
	VEXTRACTF128(Imm(1), r.AsY(), t.AsX())
	VADDPS(t.AsX(), r.AsX(), r.AsX())
	VMOVHLPS(r.AsX(), r.AsX(), t.AsX())
	VADDPS(t.AsX(), r.AsX(), r.AsX())
	VMOVSHDUP(r.AsX(), t.AsX())
	VADDSS(t.AsX(), r.AsX(), r.AsX())
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

func ptr(name string) reg.GPVirtual    { return Load(Param(name).Base(), GP64()).(reg.GPVirtual) }
func length(name string) reg.GPVirtual { return Load(Param(name).Len(), GP64()).(reg.GPVirtual) }

func at(base reg.Register, disp int) Mem { return Mem{Base: base, Disp: disp} }

func label(format string, a ...any) string { return fmt.Sprintf(format, a...) }
