package planner

import (
	"testing"

	"github.com/nstf/nstf/formats/plan"
	qplan "github.com/nstf/nstf/quantize/plan"
)

// TestRevised scales all of a loss by what is assumed, and leaves what is done.
func TestRevised(t *testing.T) {
	c := qplan.Candidate{Recipe: plan.MustRecipe("q8_0"), Error: 3e-5, Rounding: 1.5e-5}
	c.Cost(2)
	items := revised([]qplan.Item{{Name: "w", Candidates: []qplan.Candidate{c, {Recipe: plan.Recipe{}}}}}, map[string]plan.Recipe{"w": plan.MustRecipe("q8_0")}, map[string]float64{"w": 8})
	if got := items[0].Candidates; len(got) != 1 || got[0].Loss != 4*c.Loss || c.Loss != 9e-5 {
		t.Errorf("%+v, before %+v", got, c)
	}
}
