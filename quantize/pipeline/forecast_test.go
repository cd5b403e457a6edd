package pipeline

import (
	"context"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/plan"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
	"github.com/nstf/nstf/kernels/ops"
)

// TestRates wants a time for every kind of recipe, forms included.
func TestRates(t *testing.T) {
	f32, _ := scheme.ByName("f32")
	w, err := scheme.New("w", f32, []int64{4, 160, 256}, nil, tensor.BytesBlob(make([]byte, 4*4*160*256)))
	if err != nil {
		t.Fatal(err)
	}
	f := &flow{}
	for _, recipe := range []string{"q4_k", "tcq2", "lowrank:64:q8_0", "lowrank:80:tcq2", "q4_k+lr:32:q8_0", "shared:2:tcq2", "q4_k+shared:1:q8_0", "train:8:q8_0"} {
		if s, err := f.rate(context.Background(), &w, plan.MustRecipe(recipe)); err != nil || s <= 0 {
			t.Errorf("%s: %g seconds a weight, %v", recipe, s, err)
		}
	}
}

// A finder is a searcher that knows whether there is a device.
type finder bool

func (f finder) Found() bool { return bool(f) }

func (finder) Search(context.Context, *ops.TrellisJob) (bool, error) {
	return false, formats.Errorf("", "", "asked")
}

// TestSample wants few rows where the processor searches, and many where a device does.
func TestSample(t *testing.T) {
	for _, c := range []struct {
		found  finder
		recipe string
		rows   int64
		on     bool
	}{{true, "tcq3", sampledOnDevice, true}, {false, "tcq3", sampledRows, false}, {true, "q4_k", sampledRows, false}, {false, "lowrank:48:q8_0", 96, false}} {
		f := &flow{Request: Request{Searcher: c.found}}
		if rows, _, on := f.sample(plan.MustRecipe(c.recipe)); rows != c.rows || (on != nil) != c.on {
			t.Errorf("%s, found %t: %d rows, on a device: %t", c.recipe, c.found, rows, on != nil)
		}
	}
}
