package factored

import (
	"fmt"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/plan"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/quantize/fit"
)

// Check says why a tensor of a shape cannot be stored by a recipe: an
// UnsupportedError with its name and the reason, nil where [FitsTensor] it.
func Check(name string, shape []int64, r plan.Recipe) error {
	for _, c := range r.Codes() {
		if !fit.Fittable(c) {
			e := formats.Unsupportedf("", name, "quantizing to %q: it can only be read", c)
			e.Hint = "recipes: " + fit.Names()
			return e
		}
	}
	if FitsTensor(r, shape) {
		return nil
	}
	return formats.Unsupportedf("", name, "shape %v as %s: %s", shape, r, misfit(shape, r))
}

// misfit says what a recipe asks of a shape that does not have it.
func misfit(shape []int64, r plan.Recipe) string {
	d := len(shape)
	if d < 2 {
		return "vectors are kept, or are f32, f16 or bf16"
	}
	n, k := shape[d-2], shape[d-1]
	switch r.Form {
	case plan.FormDense:
		return blocks(r.Code, n, k)
	case plan.FormShared:
		switch {
		case d != 3:
			return "only a stack of experts shares matrices"
		case int64(r.Rank) > shape[0]:
			return fmt.Sprintf("more shared matrices than the %d experts", shape[0])
		}
		return first(blocks(r.A, n, k), blocks(r.Code, n, k))
	case plan.FormTrain:
		if d != 2 {
			return "only a single matrix can be a train"
		}
		rows, columns := TrainDigits(int(n), int(k))
		if most := min(rows[0]*columns[0], rows[1]*columns[1]); r.Rank > most {
			return fmt.Sprintf("its rank is at most %d", most)
		}
		return first(blocks(r.A, int64(rows[0]), int64(columns[0]*r.Rank)), blocks(r.A, int64(rows[1]), int64(columns[1]*r.Rank)))
	}
	if int64(r.Rank) >= min(n, k) {
		return fmt.Sprintf("its rank is below %d", min(n, k))
	}
	return first(blocks(r.A, n, int64(r.Rank)), blocks(r.B, int64(r.Rank), k), blocks(r.Code, n, k))
}

// first returns the first reason that there is.
func first(reasons ...string) string {
	for _, s := range reasons {
		if s != "" {
			return s
		}
	}
	return "it does not fit"
}

// blocks says why a scheme cannot hold n rows of k weights, "" where it can.
func blocks(c plan.Code, n, k int64) string {
	if c == (plan.Code{}) || fit.Fits(c, int(n), int(k)) {
		return ""
	}
	if c.Bits > 0 {
		return fmt.Sprintf("tiles of %d rows and columns do not divide %d rows of %d", scheme.TCQTile, n, k)
	}
	return fmt.Sprintf("blocks of %d do not divide rows of %d weights", c.Scheme.Block, k)
}
