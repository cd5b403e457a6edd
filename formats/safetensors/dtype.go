package safetensors

import "github.com/nstf/nstf/formats/tensor"

// dtypes lists the element types in the order of the reference
// implementation's enum, by which it sorts what it writes.
var dtypes = []struct {
	name  string
	dtype tensor.DType
}{
	{"BOOL", tensor.Bool}, {"F4", tensor.F4E2M1}, {"F6_E2M3", tensor.F6E2M3}, {"F6_E3M2", tensor.F6E3M2},
	{"U8", tensor.U8}, {"I8", tensor.I8}, {"F8_E5M2", tensor.F8E5M2}, {"F8_E4M3", tensor.F8E4M3},
	{"F8_E8M0", tensor.F8E8M0}, {"F8_E4M3FNUZ", tensor.F8E4M3Z}, {"F8_E5M2FNUZ", tensor.F8E5M2Z},
	{"I16", tensor.I16}, {"U16", tensor.U16}, {"F16", tensor.F16}, {"BF16", tensor.BF16},
	{"I32", tensor.I32}, {"U32", tensor.U32}, {"F32", tensor.F32}, {"C64", tensor.C64},
	{"F64", tensor.F64}, {"I64", tensor.I64}, {"U64", tensor.U64},
}

// dtypeByName returns Invalid for an unknown name.
func dtypeByName(name string) tensor.DType {
	for _, d := range dtypes {
		if d.name == name {
			return d.dtype
		}
	}
	return tensor.Invalid
}

// rank returns a type's place in dtypes, -1 for none.
func rank(t tensor.DType) int {
	for i, d := range dtypes {
		if d.dtype == t {
			return i
		}
	}
	return -1
}
