package planner

import (
	"testing"

	qplan "github.com/nstf/nstf/quantize/plan"
)

// TestRevised scales all of a loss by what is assumed, and leaves what is done.
func TestRevised(t *testing.T) {
	c := qplan.Candidate{Recipe: "q8_0", Error: 3e-5, Rounding: 1.5e-5}
	c.Cost(2)
	items := revised([]qplan.Item{{Name: "w", Candidates: []qplan.Candidate{c, {Recipe: "keep"}}}}, map[string]string{"w": "q8_0"}, map[string]float64{"w": 8})
	if got := items[0].Candidates; len(got) != 1 || got[0].Loss != 4*c.Loss || c.Loss != 9e-5 {
		t.Errorf("%+v, before %+v", got, c)
	}
}
