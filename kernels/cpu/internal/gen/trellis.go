package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Bits of a trellis state, and the least and most new bits of a step.
const (
	trellisState = 16
	trellisMin   = 2
	trellisMax   = 6
)

// trellisFile writes one step of the trellis search for each number of new
// bits. All integers: every level gives the same costs.
func trellisFile(v isa) {
	for bits := trellisMin; bits <= trellisMax; bits++ {
		trellisStep(v, bits)
	}
}

// trellisStep handles, for each vector of overlaps p, all states that end in
// them: i = 0 to 2^bits-1 on top. Several vectors share one cost of the step
// before where that one is spread over more than a vector.
func trellisStep(v isa, bits int) {
	n := 1 << bits
	lanes := 2 * v.lanes // words
	bytes := 2 * lanes
	shared := max(1, n/lanes) // vectors that share a cost
	v.text(fmt.Sprintf("trellisStep%d", bits), "(next, prev *uint16, code *int16, z int)", "",
		"	next[p] = min over i < 2^bits of trellisCost(prev[s>>bits], z, code of s)",
		"	with s = i<<(16-bits) | p",
		"for p below 2^(16-bits). code is in the order of trellisOrder.")
	next, prev, code := loadPointer("next"), loadPointer("prev"), loadPointer("code")
	value := v.vec()
	scalar := GP64()
	Load(Param("z"), scalar)
	if v.wide {
		VPBROADCASTW(scalar.As32(), value)
	} else {
		VMOVD(scalar.As32(), value.AsX())
		VPBROADCASTW(value.AsX(), value)
	}
	spread := spreadOf(v, bits)
	left := GP64()
	MOVQ(U32(1<<(trellisState-bits)/(lanes*shared)), left)
	loop("vectors", left, 1, func() {
		best := v.vecs(shared)
		for _, b := range best {
			if v.wide {
				VPTERNLOGD(Imm(255), b, b, b)
			} else {
				VPCMPEQW(b, b, b)
			}
		}
		for i := range n {
			cost := v.vec()
			from := Mem{Base: prev, Disp: 2 * i << (trellisState - 2*bits)}
			spread(from, cost)
			for u := range shared {
				d := v.vec()
				VPSUBSW(Mem{Base: code, Disp: (u*n + i) * bytes}, value, d)
				for range max(0, min(bits-3, 2)) {
					VPADDSW(d, d, d)
				}
				if bits == trellisMin {
					VPMULHW(d, d, d)
				} else {
					VPMULHRSW(d, d, d)
				}
				VPADDUSW(cost, d, d)
				VPMINUW(d, best[u], best[u])
			}
		}
		for u := range shared {
			VMOVUPS(best[u], Mem{Base: next, Disp: u * bytes})
		}
		bump(next, shared*bytes)
		bump(prev, 2*max(1, lanes>>bits))
		bump(code, shared*n*bytes)
	})
	VZEROUPPER()
	RET()
}

// spreadOf returns what fills a vector with the costs of lanes>>bits states of
// the step before, each 2^bits times.
func spreadOf(v isa, bits int) func(m Mem, r reg.VecVirtual) {
	lanes := 2 * v.lanes
	costs := lanes >> bits // costs that a vector takes
	if costs <= 1 {
		return func(m Mem, r reg.VecVirtual) { VPBROADCASTW(m, r) }
	}
	name := fmt.Sprintf("trellisSpread%d%s", bits, v.name)
	table := GLOBL(name, 8|16 /* RODATA|NOPTR */)
	for lane := range lanes {
		low := 2 * (lane >> bits)
		DATA(2*lane, U16(uint16(low|(low+1)<<8)))
	}
	pattern := v.vec()
	VMOVUPS(table, pattern)
	return func(m Mem, r reg.VecVirtual) {
		switch costs {
		case 2:
			VPBROADCASTD(m, r)
		case 4:
			VPBROADCASTQ(m, r)
		case 8:
			VBROADCASTI32X4(m, r)
		}
		VPSHUFB(pattern, r, r)
	}
}

func loadPointer(name string) reg.GPVirtual { return Load(Param(name), GP64()).(reg.GPVirtual) }
