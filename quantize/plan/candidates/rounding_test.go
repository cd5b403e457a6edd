package candidates

import (
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/plan"
)

func TestRounding(t *testing.T) {
	for recipe, want := range map[string]float64{"keep": coarseRounding, "bf16": 0, "q4_k": coarseRounding, "q6_k": fineRounding,
		"tcq3": rotatedRounding, "lowrank:8:bf16": 0, "lowrank:8:q8_0,q4_0": coarseRounding, "q8_0+lr:16:tcq2": fineRounding, "tcq2+lr:16:tcq2": rotatedRounding} {
		if got := rounding(plan.MustRecipe(recipe), &formats.Tensor{Scheme: "q4_0"}); got != want {
			t.Errorf("%s: %g, not %g", recipe, got, want)
		}
	}
}
