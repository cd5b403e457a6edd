package candidates

import (
	"strings"

	"github.com/nstf/nstf/formats/plan"
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

// rounding returns what activations lose on their way into a tensor stored by a
// recipe: nothing where it stays as it is or has no kernels for integers.
func rounding(recipe string) (float64, error) {
	r, err := plan.ParseRecipe(recipe)
	if err != nil || r.Scheme == plan.Keep {
		return 0, err
	}
	name := r.Scheme
	if name == "" {
		name = r.Factors
	}
	integer := cpu.Best().Integer(name)
	switch {
	case strings.HasPrefix(name, "tcq"):
		return rotatedRounding, nil
	case integer == nil:
		return 0, nil
	case integer.Group() == 16:
		return fineRounding, nil
	}
	return coarseRounding, nil
}
