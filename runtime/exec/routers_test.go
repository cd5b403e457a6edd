package exec

import (
	"encoding/json"
	"math"
	"os"
	"testing"

	"github.com/nstf/nstf/formats/graph"
)

// The reference's routers are those of transformers: see testdata/routers/make.py.
func TestReferenceRouters(t *testing.T) {
	data, err := os.ReadFile("../../testdata/routers/routers.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Name          string
		MoE           graph.MoE
		Bias          []float64
		Logits, Share [][]float64
		Chosen        [][]int
	}
	if err := json.Unmarshal(data, &cases); err != nil || len(cases) < 10 {
		t.Fatalf("%d cases: %v", len(cases), err)
	}
	for _, c := range cases {
		r := &reference{weights: map[string][]float64{"bias": c.Bias}}
		if len(c.Bias) > 0 {
			c.MoE.SelectBias = "bias"
		}
		for row, logits := range c.Logits {
			want := map[int]float64{}
			for i, x := range c.Chosen[row] {
				want[x] = c.Share[row][i]
			}
			chosen, share := r.route(&c.MoE, logits)
			for i, x := range chosen {
				if w, ok := want[x]; !ok || math.Abs(share[i]-w) > 1e-6*math.Abs(w) {
					t.Errorf("%s row %d: expert %d has %v; transformers: %v", c.Name, row, x, share[i], want)
				}
				delete(want, x)
			}
		}
	}
}
