package fit

import (
	"fmt"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/plan"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
)

// Describe returns what [Matrix] would make of a tensor by a recipe that
// [Fits] it, without its bytes: reading a part fails. A stack of matrices has
// three dimensions.
func Describe(name string, shape []int64, recipe string, o Options) (formats.Tensor, error) {
	t := formats.Tensor{Name: name, Shape: shape, Scheme: recipe}
	if bits := plan.TrellisBits(recipe); bits > 0 {
		n, k := int(shape[len(shape)-2]), int(shape[len(shape)-1])
		t.Scheme, t.Params = "tcq", trellisScheme(bits, n, k, o).Params()
	}
	s, ok := scheme.ByName(t.Scheme)
	if !ok {
		return t, formats.Unsupportedf("", name, "recipe %q", recipe)
	}
	specs, err := s.Parts(shape, t.Params)
	if err != nil {
		return t, err
	}
	for _, p := range specs {
		t.Parts = append(t.Parts, formats.Part{Name: p.Name, DType: p.DType, Shape: p.Shape, Data: tensor.Computed(p.Bytes, func() ([]byte, error) {
			return nil, fmt.Errorf("%q: described, not fitted", name)
		})})
	}
	return t, nil
}
