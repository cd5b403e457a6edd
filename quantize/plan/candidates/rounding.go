package candidates

import (
	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/plan"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/kernels/cpu"
)

// What rounding activations to int8 adds to the relative error of a product, in groups
// of 32, in groups of 16, and rotated: about what base-llama in q8_0 loses against
// exact activations (docs/decisions/0010-finer-activations.md) over the sum of its
// sensitivities, and what packages of tiny-llama and tiny-qwen3 with 9 bits lose
// beside their weights' errors (docs/perf/sensitivity.md).
const (
	coarseRounding  = 3e-5
	fineRounding    = 1.5e-5
	rotatedRounding = 1.2e-5
)

// rounding returns what activations lose on their way into a tensor t stored by a
// recipe: of the schemes of its parts, the most. Those without kernels for integers
// lose nothing.
func rounding(r plan.Recipe, t *formats.Tensor) (most float64) {
	codes := r.Codes()
	if s, ok := scheme.ByName(t.Scheme); ok && r.Kept() {
		codes = []plan.Code{{Scheme: s}}
	}
	for _, c := range codes {
		most = max(most, roundingOf(c))
	}
	return most
}

// roundingOf is that of one scheme. Every level of SIMD has the same.
func roundingOf(c plan.Code) float64 {
	integer := cpu.Best().Integer(c.Scheme.Name)
	switch {
	case c.Bits > 0:
		return rotatedRounding
	case integer == nil:
		return 0
	case integer.Group() == 16:
		return fineRounding
	}
	return coarseRounding
}
