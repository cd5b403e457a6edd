package pipeline_test

import (
	"context"
	"math"
	"testing"

	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/formats/form"
	"github.com/nstf/nstf/formats/plan"
	"github.com/nstf/nstf/quantize/pipeline"
)

// TestForms executes a plan with every form, writes the package and runs it:
// the tensors are stored as the plan says, and with finer factors the model
// comes nearer to the original.
func TestForms(t *testing.T) {
	m, err := checkpoint.Open("../../testdata/micro/mixtral")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	ids := windows(m.Graph.Vocab, 1)[0]
	want := logits(t, m, nil, ids)
	b := &m.Graph.Blocks[0]
	off := map[string]float64{}
	for what, recipes := range map[string]map[string]string{
		"coarse": {b.Attn.Q.Weight: "tcq2", b.MoE.Up.Weight: "tcq2", b.MoE.Gate.Weight: "tcq2", m.Graph.Embed.Table: "q4_0", b.Attn.O.Weight: "tcq2"},
		"formed": {b.Attn.Q.Weight: "tcq3+lr:16:f16,q8_0", b.MoE.Up.Weight: "tcq4+shared:2:tcq4", b.MoE.Gate.Weight: "tcq4+lr:16:tcq4", m.Graph.Embed.Table: "train:64:f16", b.Attn.O.Weight: "lowrank:16:f16"},
	} {
		p := planned(t, m, "tcq4")
		for i := range p.Tensors {
			if r, ok := recipes[p.Tensors[i].Name]; ok {
				p.Tensors[i].Recipe = plan.MustRecipe(r)
			}
		}
		r, err := pipeline.Run(context.Background(), m, p, pipeline.Options{Windows: windows(m.Graph.Vocab, 3)})
		if err != nil {
			t.Fatal(err)
		}
		for name := range recipes {
			row, _ := p.Tensor(name)
			x := r.Tensors[name]
			if got := form.Describe(&x); got != row.Recipe.String() {
				t.Errorf("%s is stored as %s, not %s", name, got, row.Recipe)
			}
			if f := r.Fits[name]; what == "formed" && (f.Method == "" || !(f.Relative() < 0.7)) {
				t.Errorf("%s: %+v", name, f)
			}
		}
		off[what] = distance(logits(t, m, r.Tensors, ids), want)
	}
	if off["formed"] >= off["coarse"] {
		t.Errorf("forms are off by %g, two bits by %g", off["formed"], off["coarse"])
	}
}

func distance(got, want []float32) (d float64) {
	for i := range got {
		d += math.Pow(float64(got[i]-want[i]), 2)
	}
	return d
}
