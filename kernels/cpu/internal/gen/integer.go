package main

import (
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
	"github.com/mmcloughlin/avo/x86"
)

// An integer is how the AVX-512 kernels read one scheme: 256 weights at a time,
// as four registers of 64 codes and one or two of scales.
type integer struct {
	facts
	zero  int  // the code that stands for 0, where there are no minimums
	near  bool // no prefetching: weights are in a cache, or the processor's own does better
	whole bool // 128 is taken off codes before they are scaled
	// beyond says that there is a kernel of eight tokens, of those with eights or sixteens.
	beyond bool
	// eights, where it is set, returns the codes that belong to register i of activations
	// in the order of eightsGeneric: lanes 2g and 2g+1 are of group g in all four registers,
	// so that one conversion and one scale serve them together. factors is where the
	// record's d lie for them.
	eights  func(g *integerGen, i int) reg.VecVirtual
	factors int
	// sixteens, where it is set, returns the codes that belong to register i of activations
	// in the order of sixteensGeneric: registers 0 and 2 agree on the group of each lane,
	// and so do 1 and 3.
	sixteens func(g *integerGen, i int) reg.VecVirtual
	// setup loads constants; the results of the others may differ by row only.
	setup func(g *integerGen)
	// scales returns S of 16 groups and M; where groups are 32 wide, S of 8 and
	// then M of 8 in one register. Without minimums M is S.
	scales func(g *integerGen) (s, m reg.VecVirtual)
	codes  func(g *integerGen, i int) reg.VecVirtual // weights 64*i on
}

// An integerGen is a kernel being written.
type integerGen struct {
	isa
	*integer
	w, a  reg.GPVirtual
	order bool                      // activations are in the order that integer.eights or sixteens wants
	tight bool                      // of eight tokens: what is used once a run is read from memory
	far   bool                      // constants stay in memory where an instruction can take them there
	c     map[string]Op             // constants
	keep  map[string]reg.VecVirtual // constants that must be in registers
	least Mem                       // sums of minimums, where sixteens is tight
	cache map[string]reg.VecVirtual // loaded once a run
	k     reg.OpmaskVirtual
}

// Offsets into a record of activations: activations.go.
const (
	recordBytes = 512
	atScale     = 256
	atSum       = 288
	atSum16     = 320
	atShift     = 384

	// of a record in the order of eightsGeneric
	atEightsScale = 256
	atEightsHigh  = 320
)

const unpackedBytes = 384

// integerFile writes the kernels of one scheme, of either vector length.
func integerFile(f facts, s *integer, n *narrow) func(v isa) {
	s.facts, n.facts = f, f
	return func(v isa) {
		if !v.wide {
			for _, t := range []int{1, 2, 4} {
				n.matVec(v, t)
			}
			return
		}
		for _, t := range []int{1, 2, 4} {
			s.matVec(v, t)
		}
		if s.beyond {
			s.matVec(v, 8)
		}
		s.unpack(v)
	}
}

func (s *integer) start(v isa, far, order, tight bool) *integerGen {
	g := &integerGen{isa: v, integer: s, w: GP64(), a: GP64(), far: far, order: order, tight: tight, c: map[string]Op{}, keep: map[string]reg.VecVirtual{}}
	s.setup(g)
	return g
}

// matVec multiplies row after row, in the order of memory.
func (s *integer) matVec(v isa, tokens int) {
	v.text(label("matVec%sx%d", s.name, tokens), "(y []float32, ldy int, rows int, w []byte, ldw int, a []byte, step int, runs int)", "",
		"	for n := range rows {",
		label("		for t := range %d {", tokens),
		"			y[t*ldy+n] = row w[n*ldw:] times the records a[t*512:], runs of both",
		"		}",
		"	}",
		"",
		"with runs >= 1, records at distance step; group sums are exact, then float32.")
	g := s.start(v, tokens > 1, s.eights != nil || s.sixteens != nil, tokens > 4)
	if g.tight && s.sixteens != nil {
		g.least = AllocLocal(64 * tokens)
	}
	for i := range 4 {
		if s.sixteens != nil {
			g.register("sixteens0", 4, 0, 8, 0, 8, 1, 9, 1, 9, 2, 10, 2, 10, 3, 11, 3, 11)
			g.register("sixteens1", 4, 4, 12, 4, 12, 5, 13, 5, 13, 6, 14, 6, 14, 7, 15, 7, 15)
			break
		}
		if g.order {
			g.register("pairs", 4, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7)
			break
		}
		g.register(label("spread%d_%d", s.group, i), 4, spread(s.group, i)...)
	}
	y, row, left := ptr("y"), ptr("w"), Load(Param("rows"), GP64()).(reg.GPVirtual)
	loop("row", left, 1, func() {
		MOVQ(row, g.w)
		Load(Param("a").Base(), g.a)
		g.row(y, tokens)
		ADDQ(Imm(4), y)
		ADDQ(Load(Param("ldw"), GP64()), row)
	})
	VZEROUPPER()
	RET()
}

// spread says which scale each of the 16 sums of four products takes.
func spread(group, i int) []int {
	idx := make([]int, 16)
	for j := range idx {
		idx[j] = (64*i + 4*j) / group
	}
	return idx
}

// ask prefetches what follows from a line on, into the next rows too; that may
// lie behind the end of w: prefetching never faults. Two cores of a Zen 4 server, in
// pages of 2 MiB and of 4 KiB, GB/s, where a loop that only reads makes 53 and 29:
//
//	into L2, L1    8 KiB, 512   16 KiB, 512   16 KiB, none   32 KiB, 512   none, 256   none
//	q4_k           46.2, 31.5   45.6, 32.1    45.5, 30.0     48.0, 31.0    41, 32      44.5, 36.4
//	q6_k           46.2, 31.4   46.6, 32.2    45.7, 30.9     46.3, 31.5    39, 29      43.4, 34.6
//	q8_0           42.5, 33.5   39.8, 32.8    39.1, 32.5     41.6, 33.1    46, 33      50.6, 36.7
//
// so q8_0, which waits for memory and little else, asks for nothing.
func ask(line Mem) {
	PREFETCHT1(line.Offset(32 << 10))
	PREFETCHT0(line.Offset(512))
}

// row multiplies one row by all tokens.
func (g *integerGen) row(y reg.GPVirtual, tokens int) {
	sums, mins := g.vecs(2*tokens), g.vecs(tokens)
	zeros := append([]reg.VecVirtual(nil), sums...)
	if g.order {
		zeros = zeros[:0]
		for t := range tokens {
			zeros = append(zeros, sums[2*t])
		}
	}
	stacked := g.tight && g.integer.sixteens != nil
	if !g.whole && !stacked {
		zeros = append(zeros, mins...)
	}
	for _, r := range zeros {
		g.zeroed(r)
	}
	for t := 0; t < tokens && stacked; t++ {
		VMOVUPS(sums[2*t], g.least.Offset(64*t))
	}
	runs, step := Load(Param("runs"), GP64()).(reg.GPVirtual), Load(Param("step"), GP64()).(reg.GPVirtual)
	loop("run", runs, 1, func() {
		for i := 0; i < g.bytes && !g.near; i += 64 {
			ask(at(g.w, i))
		}
		g.run(tokens, sums, mins)
		bump(g.w, g.integer.bytes)
		ADDQ(step, g.a)
	})
	ldy, out := Load(Param("ldy"), GP64()).(reg.GPVirtual), GP64()
	SHLQ(Imm(2), ldy)
	MOVQ(y, out)
	for t := range tokens {
		if stacked {
			VMOVUPS(g.least.Offset(64*t), mins[t])
		}
		g.total(sums[2*t], sums[2*t+1], mins[t])
		VMOVSS(sums[2*t].AsX(), at(out, 0))
		ADDQ(ldy, out)
	}
}

func (g *integerGen) zeroed(r reg.VecVirtual) { zeroed(r) }

// run multiplies 256 weights.
func (g *integerGen) run(tokens int, sums, mins []reg.VecVirtual) {
	g.cache = map[string]reg.VecVirtual{}
	s, m := g.scales(g)
	switch {
	case g.integer.sixteens != nil && g.order:
		g.runSixteens(tokens, s, m, sums, mins)
		return
	case g.order:
		g.runEights(tokens, s, sums, mins)
		return
	}
	scaled := g.vecs(tokens)
	for t := range tokens {
		at0 := recordBytes * t
		VMULPS(at(g.a, at0+atScale), s, scaled[t]) // S*d, where groups are 32 wide in the lower half, M*sum in the upper
		switch {
		case g.whole:
		case g.group == 32:
			VADDPS(scaled[t], mins[t], mins[t])
		default:
			VFMADD231PS(at(g.a, at0+atSum16), m, mins[t])
		}
	}
	for i := range 4 {
		c := g.codes(g, i)
		for t := range tokens {
			dot, f := g.vec(), g.vec()
			g.zeroed(dot)
			VPDPBUSD(at(g.a, recordBytes*t+64*i), c, dot)
			if g.whole {
				high := g.vec()
				g.zeroed(high)
				VPDPBUSD(at(g.a, recordBytes*t+64*i), g.keep["high"], high)
				VPSUBD(high, dot, dot)
			}
			VCVTDQ2PS(dot, dot)
			VPERMPS(scaled[t], g.keep[label("spread%d_%d", g.group, i)], f)
			VFMADD231PS(dot, f, sums[2*t+i%2])
		}
	}
}

// runEights is run with activations in the other order. One token has two chains of
// products, so that one need not wait for the other.
func (g *integerGen) runEights(tokens int, s reg.VecVirtual, sums, mins []reg.VecVirtual) {
	scaled, dots := g.vecs(tokens), g.vecs(2*tokens)
	chains := 1
	if tokens == 1 {
		chains = 2
	}
	scale := func(t int) {
		VMULPS(at(g.a, recordBytes*t+g.factors), s, scaled[t])
		VADDPS(scaled[t], mins[t], mins[t])
	}
	for t := range tokens {
		if !g.tight {
			scale(t)
		}
		for i := range chains {
			g.zeroed(dots[2*t+i])
		}
	}
	for i := range 4 {
		c := g.eights(g, i)
		for t := range tokens {
			VPDPBUSD(at(g.a, recordBytes*t+64*i), c, dots[2*t+i%chains])
		}
	}
	for t := range tokens {
		if g.tight {
			scale(t)
		}
		dot, f := dots[2*t], g.vec()
		if chains == 2 {
			VPADDD(dots[1], dot, dot)
		}
		VCVTDQ2PS(dot, dot)
		VPERMPS(scaled[t], g.keep["pairs"], f)
		VFMADD231PS(dot, f, sums[2*t])
	}
}

// runSixteens is run with activations in the order of sixteensGeneric.
func (g *integerGen) runSixteens(tokens int, s, m reg.VecVirtual, sums, mins []reg.VecVirtual) {
	if g.tight {
		g.runSixteensTight(tokens, s, m, sums)
		return
	}
	scaled, dots := g.vecs(tokens), g.vecs(2*tokens)
	for t := range tokens {
		VMULPS(at(g.a, recordBytes*t+atScale), s, scaled[t])
		VFMADD231PS(at(g.a, recordBytes*t+atSum16), m, mins[t])
		g.zeroed(dots[2*t])
		g.zeroed(dots[2*t+1])
	}
	for i := range 4 {
		c := g.sixteens(g, i)
		for t := range tokens {
			VPDPBUSD(at(g.a, recordBytes*t+64*i), c, dots[2*t+i%2])
		}
	}
	for t := range tokens {
		for i := range 2 {
			dot, f := dots[2*t+i], g.vec()
			VCVTDQ2PS(dot, dot)
			VPERMPS(scaled[t], g.keep[label("sixteens%d", i)], f)
			VFMADD231PS(dot, f, sums[2*t])
		}
	}
}

// runSixteensTight is runSixteens of tokens whose minimums have no registers: groups
// that registers 0 and 2 agree on come first.
func (g *integerGen) runSixteensTight(tokens int, s, m reg.VecVirtual, sums []reg.VecVirtual) {
	f := g.vec()
	for t := range tokens {
		VMOVUPS(g.least.Offset(64*t), f)
		VFMADD231PS(at(g.a, recordBytes*t+atSum16), m, f)
		VMOVUPS(f, g.least.Offset(64*t))
	}
	dots := g.vecs(tokens)
	for i := range 2 {
		for t := range tokens {
			g.zeroed(dots[t])
		}
		for _, j := range []int{i, 2 + i} {
			c := g.sixteens(g, j)
			for t := range tokens {
				VPDPBUSD(at(g.a, recordBytes*t+64*j), c, dots[t])
			}
		}
		for t := range tokens {
			VMULPS(at(g.a, recordBytes*t+atScale), s, f)
			VPERMPS(f, g.keep[label("sixteens%d", i)], f)
			VCVTDQ2PS(dots[t], dots[t])
			VFMADD231PS(dots[t], f, sums[2*t])
		}
	}
}

// total leaves a row's result in the lowest lane of even.
func (g *integerGen) total(even, odd, mins reg.VecVirtual) {
	if !g.order {
		VADDPS(odd, even, even)
	}
	if g.whole {
		fold(even, func(a, b reg.Register) { VADDPS(a, b, b) })
		return
	}
	if g.group == 32 {
		VEXTRACTF64X4(Imm(1), mins, mins.AsY())
	}
	z := g.vec()
	factor := float32(1)
	if !g.mins {
		factor = float32(g.integer.zero)
	}
	VBROADCASTSS(g.constant(label("zero%d", int(factor)), F32(factor)), z)
	VFNMADD231PS(mins, z, even)
	fold(even, func(a, b reg.Register) { VADDPS(a, b, b) })
}

// unpack writes codes and scales out.
func (s *integer) unpack(v isa) {
	v.text("unpack"+s.name, "(dst []byte, w []byte, runs int)", "",
		"	for i := range runs {",
		label("		the run w[%d*i:] as 256 codes (128 for the weight 0 where there are no", s.bytes),
		"		minimums), float32 S and M in dst[384*i:]",
		"	}")
	g := s.start(v, false, false, false)
	bias := g.vec()
	if !s.mins && s.zero != 128 {
		VPBROADCASTD(g.constant(label("bias%d", s.zero), U32(0x01010101*uint32(128-s.zero))), bias)
	}
	dst := ptr("dst")
	Load(Param("w").Base(), g.w)
	runs := Load(Param("runs"), GP64()).(reg.GPVirtual)
	loop("unpackRun", runs, 1, func() {
		g.cache = map[string]reg.VecVirtual{}
		sc, mn := s.scales(g)
		VMOVUPS(sc, at(dst, 256))
		if s.group == 16 && s.mins {
			VMOVUPS(mn, at(dst, 320))
		}
		for i := range 4 {
			c := s.codes(g, i)
			if !s.mins && s.zero != 128 {
				VPADDB(bias, c, c)
			}
			VMOVDQU64(c, at(dst, 64*i))
		}
		bump(g.w, s.bytes)
		bump(dst, unpackedBytes)
	})
	VZEROUPPER()
	RET()
}

// bytes8 loads a constant register of bytes, repeated to fill it.
func (g *integerGen) bytes8(name string, values ...int) {
	g.load(name, values, 1)
}

// bytes32 is bytes8 for 32-bit words, bytes16 and bytes64 for others.
func (g *integerGen) bytes32(name string, values ...int) { g.load(name, values, 4) }
func (g *integerGen) bytes16(name string, values ...int) { g.load(name, values, 2) }
func (g *integerGen) bytes64(name string, values ...int) { g.load(name, values, 8) }

func (g *integerGen) load(name string, values []int, size int) {
	if g.far {
		g.c[name] = g.table(name, values, size)
		return
	}
	g.register(name, size, values...)
	g.c[name] = g.keep[name]
}

// register loads a constant that must be in a register.
func (g *integerGen) register(name string, size int, values ...int) {
	r := g.vec()
	VMOVDQU64(g.table(name, values, size), r)
	g.keep[name] = r
}

// table places 64 bytes of read-only data.
func (g *integerGen) table(name string, values []int, size int) Mem {
	if m, ok := g.data[name]; ok {
		return m
	}
	m := GLOBL(name, 8|16 /* RODATA|NOPTR */)
	for i := range 64 / size {
		v := uint64(int64(values[i%len(values)]))
		switch size {
		case 1:
			DATA(i, U8(v))
		case 2:
			DATA(2*i, U16(v))
		case 4:
			DATA(4*i, U32(v))
		case 8:
			DATA(8*i, U64(v))
		}
	}
	g.data[name] = m
	return m
}

// twoHalves returns values for registers whose halves differ: n words of each.
func twoHalves(n, a, b int) []int {
	v := make([]int, 2*n)
	for i := range v {
		if v[i] = a; i >= n {
			v[i] = b
		}
	}
	return v
}

// or adds the bits of x that mask selects: c | x&mask.
func or(c, x reg.VecVirtual, mask Op) { VPTERNLOGD(Imm(0xf8), mask, x, c) }

// pick takes the bits of a that mask selects and else those of b.
func pick(a, b reg.VecVirtual, mask Op) { VPTERNLOGD(Imm(0xe4), mask, b, a) }

// zeroed clears a register. To avo the exclusive or with itself reads it, and
// keeps it reserved before; here it only writes.
func zeroed(r reg.VecVirtual) {
	i := must(x86.VPXORD(r, r, r))
	i.Inputs = nil
	Instruction(i)
}

// whole emits an instruction that writes the lower part of r and clears the
// rest: to avo the rest would keep what it held, and be reserved for it.
func whole(r reg.VecVirtual, i *ir.Instruction, err error) {
	i = must(i, err)
	i.Outputs = append(i.Outputs, r)
	Instruction(i)
}

// load fills the lower half of r.
func load(r reg.VecVirtual, m Mem) {
	i, err := x86.VMOVDQU64(m, r.AsY())
	whole(r, i, err)
}

func must(i *ir.Instruction, err error) *ir.Instruction {
	if err != nil {
		panic(err)
	}
	return i
}

// fold joins the upper half of r to the lower until one lane is left, as isa's
// does, with instructions that reach all 32 registers.
func fold(r reg.VecVirtual, join func(a, b reg.Register)) {
	t := ZMM()
	VEXTRACTF64X4(Imm(1), r, t.AsY())
	join(t.AsY(), r.AsY())
	VEXTRACTF32X4(Imm(1), r.AsY(), t.AsX())
	join(t.AsX(), r.AsX())
	VPSHUFD(Imm(0x4e), r.AsX(), t.AsX())
	join(t.AsX(), r.AsX())
	VPSHUFD(Imm(0xb1), r.AsX(), t.AsX())
	join(t.AsX(), r.AsX())
}
