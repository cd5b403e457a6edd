package planner_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/formats/stats"
	qplan "github.com/nstf/nstf/quantize/plan"
	"github.com/nstf/nstf/quantize/plan/candidates"
	"github.com/nstf/nstf/quantize/plan/planner"
)

// TestPlan makes plans by statistics and without, to sizes and to divergences.
func TestPlan(t *testing.T) {
	m, err := checkpoint.Open("../../../testdata/micro/llama-tied")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	s := &stats.File{Path: "/some/where/m.nstats", Source: stats.Source{Text: "calib.jsonl"}, Sensitivity: map[string]float64{}}
	for i, w := range m.Graph.Weights() {
		s.Sensitivity[w.Name] = 0.01 * float64(1+i%5)
	}
	rule, err := candidates.ParseRule(`ffn\.down=q8_0`)
	if err != nil {
		t.Fatal(err)
	}
	p := planner.New(m, planner.Options{Schemes: "tcq2,tcq4,q8_0,q4_0", Keep: []candidates.Rule{rule}, Seed: 5, Effort: 1})
	ctx := context.Background()
	bits, err := p.Plan(ctx, s, qplan.Budget{BPW: 6})
	if err != nil {
		t.Fatal(err)
	}
	if err := bits.Check("", m.Graph); err != nil {
		t.Error(err)
	}
	if bits.Source.Stats != "m.nstats" || bits.Source.Model != "llama-tied" || bits.Seed != 5 || bits.Predicted.KLD <= 0 || bits.Predicted.BPW > 6 || bits.Budget.Keep[0] != rule.String() {
		t.Errorf("%+v", bits)
	}
	for _, x := range bits.Tensors {
		if strings.Contains(x.Name, "ffn.down") != (x.Recipe.String() == "q8_0" && x.RunnerUp == nil) {
			t.Errorf("%s is %s before %v", x.Name, x.Recipe, x.RunnerUp)
		}
	}
	again, err := planner.New(m, planner.Options{Schemes: "tcq2,tcq4,q8_0,q4_0", Keep: []candidates.Rule{rule}, Seed: 5, Effort: 1, Threads: 1}).Plan(ctx, s, qplan.Budget{BPW: 6})
	if err != nil || !bytes.Equal(bits.Encode(), again.Encode()) {
		t.Errorf("%v: another planner makes another plan", err)
	}
	sized, err := p.Plan(ctx, s, qplan.Budget{Bytes: bits.Predicted.Bytes})
	if err != nil || sized.Predicted.Bytes > bits.Predicted.Bytes {
		t.Errorf("%+v %v", sized.Predicted, err)
	}
	loss, err := p.Plan(ctx, s, qplan.Budget{MaxLoss: bits.Predicted.KLD})
	if err != nil || loss.Predicted.KLD > bits.Predicted.KLD {
		t.Errorf("%+v %v", loss.Predicted, err)
	}
	blind, err := p.Plan(ctx, nil, qplan.Budget{BPW: 6})
	if err != nil || blind.Predicted.KLD != 0 {
		t.Errorf("%+v %v", blind.Predicted, err)
	}
	if _, err := p.Plan(ctx, nil, qplan.Budget{MaxLoss: 0.1}); err == nil || !strings.Contains(err.Error(), "sensitivities") {
		t.Errorf("%v", err)
	}
	s.Source.ModelHash = "another"
	if _, err := planner.New(m, planner.Options{}).Plan(ctx, s, qplan.Budget{BPW: 6}); err == nil || !strings.Contains(err.Error(), "another model") {
		t.Errorf("%v", err)
	}
}

func Example() {
	m, _ := checkpoint.Open("../../../testdata/micro/llama-tied")
	defer m.Close()
	p, err := planner.New(m, planner.Options{Schemes: "q8_0"}).Plan(context.Background(), nil, qplan.Budget{BPW: 9})
	fmt.Println(p.Tensors[0].Recipe, err)
	// Output: q8_0 <nil>
}
