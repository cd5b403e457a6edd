package factored_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/plan"
	"github.com/nstf/nstf/quantize/factored"
)

// What a shape lacks for a recipe is said; what has it passes, and is described.
func TestCheck(t *testing.T) {
	matrix, stack, vector := []int64{64, 96}, []int64{3, 64, 96}, []int64{100}
	for _, c := range []struct {
		shape  []int64
		recipe string
		says   string // "": it fits
	}{
		{matrix, "tcq3", ""}, {stack, "tcq3", ""}, {matrix, "q8_0", ""}, {matrix, "lowrank:63:f16", ""}, {stack, "lowrank:32:q8_0", ""},
		{matrix, "tcq2+lr:16:tcq2", ""}, {stack, "shared:3:q8_0", ""}, {stack, "tcq2+shared:1:tcq4", ""}, {matrix, "train:4:f16", ""},
		{vector, "f32", ""}, {vector, "bf16", ""},
		{vector, "q8_0", "vectors are kept"}, {vector, "lowrank:1:f16", "vectors are kept"},
		{matrix, "q4_k", "blocks of 256 do not divide rows of 96"},
		{[]int64{60, 96}, "tcq3", "tiles of 16 rows and columns do not divide 60 rows of 96"},
		{matrix, "lowrank:64:f16", "rank is below 64"}, {matrix, "lowrank:16:q8_0", "blocks of 32 do not divide rows of 16"},
		{matrix, "q4_k+lr:8:f16", "blocks of 256"}, {matrix, "shared:1:f16", "only a stack"}, {stack, "shared:4:f16", "the 3 experts"},
		{stack, "q4_k+shared:1:f16", "blocks of 256"}, {stack, "train:4:f16", "only a single matrix"}, {matrix, "train:9999:f16", "rank is at most"},
		{matrix, "mxfp4", ""},
		{matrix, "nvfp4", "only be read"}, {matrix, "nvfp4+lr:4:f16", "only be read"}, {matrix, "lowrank:4:f16,nvfp4", "only be read"},
	} {
		err := factored.Check("w", c.shape, plan.MustRecipe(c.recipe))
		if (c.says == "") != factored.FitsTensor(plan.MustRecipe(c.recipe), c.shape) && !strings.Contains(c.says, "read") {
			t.Errorf("%v as %s: FitsTensor says otherwise", c.shape, c.recipe)
		}
		var u *formats.UnsupportedError
		switch {
		case c.says != "":
			if !errors.As(err, &u) || u.Tensor != "w" || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v as %s: %v, want %q", c.shape, c.recipe, err, c.says)
			}
		case err != nil:
			t.Errorf("%v as %s: %v", c.shape, c.recipe, err)
		}
	}
}
