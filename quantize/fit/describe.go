package fit

import (
	"fmt"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/plan"
	"github.com/nstf/nstf/formats/tensor"
)

// Describe returns what [Matrix] would make of a tensor by a code that
// [Fits] it, without its bytes: reading a part fails. A stack of matrices has
// three dimensions.
func Describe(name string, shape []int64, c plan.Code, o Options) (formats.Tensor, error) {
	t := formats.Tensor{Name: name, Shape: shape, Scheme: c.Scheme.Name}
	if c.Bits > 0 {
		n, k := int(shape[len(shape)-2]), int(shape[len(shape)-1])
		t.Params = trellisScheme(c.Bits, n, k, o).Params()
	}
	specs, err := c.Scheme.Parts(shape, t.Params)
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
