package candidates

import (
	"testing"

	"github.com/nstf/nstf/formats"
)

func TestRounding(t *testing.T) {
	for recipe, want := range map[string]float64{"keep": coarseRounding, "bf16": 0, "q4_k": coarseRounding, "q6_k": fineRounding,
		"tcq3": rotatedRounding, "lowrank:8:bf16": 0, "lowrank:8:q8_0,q4_0": coarseRounding, "q8_0+lr:16:tcq2": fineRounding, "tcq2+lr:16:tcq2": rotatedRounding} {
		if got, err := rounding(recipe, &formats.Tensor{Scheme: "q4_0"}); got != want || err != nil {
			t.Errorf("%s: %g, %v, not %g", recipe, got, err, want)
		}
	}
}
