package cpu

import "math"

// genericTrellis is the step in plain Go: codewords in the order of states.
func genericTrellis(bits int) (trellisStep, int) {
	overlaps := 1 << (trellisState - bits)
	return func(next, prev []uint16, code []int16, z int16) {
		for p := range overlaps {
			best := uint16(math.MaxUint16)
			for i := range 1 << bits {
				rest := prev[(i<<(trellisState-bits)|p)>>bits]
				best = min(best, trellisCost(bits, rest, z, code[p<<bits|i]))
			}
			next[p] = best
		}
	}, 1
}
