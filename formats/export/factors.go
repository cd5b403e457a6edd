package export

import (
	"encoding/binary"
	"strings"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
)

// splitFactors takes the factors out of a matrix again. Where rows of one matrix differ
// in theirs, as those of a fused projection may, it is an UnsupportedError.
func splitFactors(path string, t formats.Tensor) ([]formats.Tensor, error) {
	if t.Scheme != "nvfp4" || len(t.Parts) < 2 {
		return []formats.Tensor{t}, nil
	}
	rows, _ := t.Rows()
	matrices, n := int64(1), rows
	if len(t.Shape) == 3 {
		matrices, n = t.Shape[0], t.Shape[1]
	}
	raw, err := t.Parts[1].Data.Bytes()
	if err != nil {
		return nil, err
	}
	run, out := t.Params["rows"], make([]byte, 0, 4*matrices)
	for i := range matrices {
		first := binary.LittleEndian.Uint32(raw[4*(i*n/run):])
		for r := i * n / run; r <= ((i+1)*n-1)/run; r++ {
			if binary.LittleEndian.Uint32(raw[4*r:]) != first {
				e := formats.Unsupportedf(path, t.Name, "rows of one matrix with different factors in GGUF")
				e.Hint = "--dtype f16 expands such tensors"
				return nil, e
			}
		}
		out = binary.LittleEndian.AppendUint32(out, first)
	}
	s, _ := scheme.ByName(t.Scheme)
	bare, err := scheme.New(t.Name, s, t.Shape, nil, t.Parts[0].Data)
	if err != nil {
		return nil, err
	}
	f, err := scheme.New(strings.TrimSuffix(t.Name, ".weight")+".scale", scheme.ByDType(tensor.F32), []int64{matrices}, nil, tensor.BytesBlob(out))
	return []formats.Tensor{bare, f}, err
}
