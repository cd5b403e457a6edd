package candidates

import (
	"strings"

	"github.com/nstf/nstf/formats/plan"
	"github.com/nstf/nstf/kernels/cpu"
)

// What rounding activations to int8 adds to the relative error of a product. In groups
// of 32 and of 16: the divergence of base-llama in q8_0 from exact activations, 4.7e-4
// and 2.4e-4 (docs/decisions/0010-finer-activations.md), over the sum of its
// sensitivities. Rotated activations are nearly normal: 32 of them have a largest
// square of 4.45 on average, and steps of the largest over 127 leave 4.45/127^2/12.
const (
	coarseRounding  = 4e-5
	fineRounding    = 2e-5
	rotatedRounding = 2.3e-5
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
