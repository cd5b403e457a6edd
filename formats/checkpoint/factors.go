package checkpoint

import (
	"strings"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/scheme"
)

// GGUF keeps the factor of a matrix NAME.weight of nvfp4 as a tensor NAME.scale: one
// float32, or one for each expert of a stack, by which llama.cpp multiplies products.
// Here it is a part of the matrix. NAME.input_scale, which is for activations of 4 bits,
// passes through.

// joinFactors puts factors into their matrices. A factor beside a matrix of another
// scheme, which has no place for it, is an UnsupportedError.
// Tensors that own names are the graph's.
func joinFactors(path string, tensors []formats.Tensor, own func(name string) bool) ([]formats.Tensor, error) {
	factors := map[string]*formats.Tensor{}
	for i := range tensors {
		if base, ok := strings.CutSuffix(tensors[i].Name, ".scale"); ok && !own(tensors[i].Name) {
			factors[base+".weight"] = &tensors[i]
		}
	}
	if len(factors) == 0 {
		return tensors, nil
	}
	var out []formats.Tensor
	for _, t := range tensors {
		f := factors[t.Name]
		if f == nil {
			if !strings.HasSuffix(t.Name, ".scale") || own(t.Name) {
				out = append(out, t)
			}
			continue
		}
		if t.Scheme != "nvfp4" {
			return nil, formats.Unsupportedf(path, f.Name, "a factor of a matrix in %s (nvfp4 has one)", t.Scheme)
		}
		rows, _ := t.Rows()
		n := f.Elements()
		if f.Scheme != "f32" || n == 0 || n != 1 && (len(t.Shape) != 3 || n != t.Shape[0]) {
			return nil, formats.Errorf(path, f.Name, "%s of shape %v is no factor of %v", f.Scheme, f.Shape, t.Shape)
		}
		s, _ := scheme.ByName(t.Scheme)
		t, err := scheme.New(t.Name, s, t.Shape, map[string]int64{"rows": max(rows/n, 1)}, t.Parts[0].Data, f.Parts[0].Data)
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	for name, f := range factors {
		if !hasTensor(tensors, name) {
			return nil, formats.Errorf(path, f.Name, "the factor of %q, which is missing", name)
		}
	}
	return out, nil
}

func hasTensor(tensors []formats.Tensor, name string) bool {
	for i := range tensors {
		if tensors[i].Name == name {
			return true
		}
	}
	return false
}
