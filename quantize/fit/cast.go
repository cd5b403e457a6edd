package fit

import "github.com/nstf/nstf/formats/tensor"

func castF32(dst []byte, x []float32)  { cast(dst, x, tensor.F32) }
func castF16(dst []byte, x []float32)  { cast(dst, x, tensor.F16) }
func castBF16(dst []byte, x []float32) { cast(dst, x, tensor.BF16) }

func cast(dst []byte, x []float32, d tensor.DType) {
	if err := tensor.FromFloat32(dst, x, d); err != nil {
		panic(err) // the sizes were checked
	}
}
