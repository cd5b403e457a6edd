package calibrate

import (
	"context"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/form"
	"github.com/nstf/nstf/formats/model"
)

// Blame says what is behind numbers that are not finite where linears read: the first
// weight, in the order of the graph, that is not finite itself, as a FormatError with
// the file, the tensor and the weight. It reads all weights, and returns the error that
// it was given where these are finite.
func Blame(ctx context.Context, m *model.Model, err error) error {
	const most = 1 << 22 // weights at a time
	var w []float32
	for _, x := range m.Graph.Weights() {
		t := m.Tensor(x.Name)
		n, k := t.Rows()
		step := max(1, most/max(k, 1)/128) * 128 // whole tiles of trellis codes
		for at := int64(0); at < n && ctx.Err() == nil; at += step {
			rows := min(step, n-at)
			w = append(w[:0], make([]float32, rows*k)...)
			if form.DecodeRows(w, &t, at, rows) != nil {
				break // what cannot be read is not what was computed with
			}
			if e := finite(x.Name, w, at*k); e != nil {
				return formats.In(m.Path, e)
			}
		}
	}
	return err
}
