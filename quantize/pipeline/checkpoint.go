package pipeline

import (
	"context"
	"encoding/hex"
	"encoding/json"

	"github.com/zeebo/blake3"

	"github.com/nstf/nstf/calibrate"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
)

// hiddenName is what hidden states are kept under in the work folder; no
// tensor of a graph has a name with spaces.
const hiddenName = "hidden states"

// An arrival says which block hidden states have arrived at.
type arrival struct {
	Block int `json:"block"`
}

// hidden returns the hidden states to go on with, and the block before which
// they are: those that an interrupted run left, or those of the embedding.
func (r *run) hidden(ctx context.Context) (*calibrate.Hidden, int, error) {
	if h, at, ok := r.left(ctx); ok {
		return h, at, nil
	}
	s, err := r.stage(0, nil, true)
	if err != nil {
		return nil, 0, err
	}
	defer s.Close()
	h, err := calibrate.NewHidden(ctx, s, int(r.m.Graph.Width), r.o.Windows)
	return h, 0, err
}

// left reads the hidden states that an interrupted run left.
func (r *run) left(ctx context.Context) (*calibrate.Hidden, int, bool) {
	if r.o.Work == nil {
		return nil, 0, false
	}
	t, raw, ok := r.o.Work.Get(ctx, hiddenName)
	var at arrival
	if !ok || json.Unmarshal(raw, &at) != nil || at.Block < 1 || at.Block > len(r.m.Graph.Blocks) {
		return nil, 0, false
	}
	var row int64
	states := make([][]float32, len(r.o.Windows))
	for i, w := range r.o.Windows {
		states[i] = make([]float32, int64(len(w))*r.m.Graph.Width)
		if scheme.DecodeRows(states[i], &t, row, int64(len(w))) != nil {
			return nil, 0, false
		}
		row += int64(len(w))
	}
	return calibrate.HiddenOf(r.o.Windows, states), at.Block, true
}

// checkpoint keeps the hidden states before a block, where the walk goes on.
func (r *run) checkpoint(ctx context.Context, h *calibrate.Hidden, block int) error {
	if r.o.Work == nil || block > r.last {
		return nil
	}
	var blobs []tensor.Blob
	var tokens int64
	for _, x := range h.States() {
		tokens += int64(len(x)) / r.m.Graph.Width
		blobs = append(blobs, tensor.Computed(int64(4*len(x)), func() ([]byte, error) {
			p := make([]byte, 4*len(x))
			return p, tensor.FromFloat32(p, x, tensor.F32)
		}))
	}
	s, _ := scheme.ByName("f32")
	t, err := scheme.New(hiddenName, s, []int64{tokens, r.m.Graph.Width}, nil, tensor.Concat(blobs...))
	if err != nil {
		return err
	}
	_, err = r.o.Work.Put(ctx, t, arrival{block})
	return err
}

// hashOf names bytes.
func hashOf(p []byte) string {
	h := blake3.Sum256(p)
	return hex.EncodeToString(h[:16])
}
