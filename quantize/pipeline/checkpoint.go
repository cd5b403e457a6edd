package pipeline

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/zeebo/blake3"

	"github.com/nstf/nstf/calibrate"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
	"github.com/nstf/nstf/runtime/device"
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
	keep, err := keepOn(r.m, r.o.Windows, r.o.On)
	if err != nil {
		return nil, 0, err
	}
	if h, at, ok := r.left(ctx, hiddenName, r.o.Windows, keep); ok {
		return h, at, nil
	}
	h, err := r.embedded(ctx, r.o.Windows, keep)
	return h, 0, err
}

// embedded returns the hidden states of windows before the first block.
func (r *run) embedded(ctx context.Context, windows [][]int32, keep calibrate.Keep) (*calibrate.Hidden, error) {
	walk, err := r.walker(device.Embedding(), windows, true)
	if err != nil {
		return nil, err
	}
	h, err := calibrate.NewHidden(ctx, walk, r.m.Graph, windows, keep)
	return h, errors.Join(err, walk.Close())
}

// left reads the hidden states of windows that were kept, unless a tensor that they went
// through is missing or damaged: the walk has to come by it again.
func (r *run) left(ctx context.Context, name string, windows [][]int32, keep calibrate.Keep) (*calibrate.Hidden, int, bool) {
	if r.o.Work == nil {
		return nil, 0, false
	}
	t, raw, ok := r.o.Work.Get(ctx, name)
	var at arrival
	if !ok || json.Unmarshal(raw, &at) != nil || at.Block < 1 || at.Block > len(r.m.Graph.Blocks) || r.unfinished() < at.Block {
		return nil, 0, false
	}
	var row int64
	h, err := calibrate.HiddenOf(r.m.Graph, windows, keep, func(i int, x []float32) error {
		n := int64(len(windows[i]))
		row += n
		return scheme.DecodeRows(x, &t, row-n, n)
	})
	return h, at.Block, err == nil
}

// unfinished returns the first block that has something left to fit, the number of blocks
// where none has.
func (r *run) unfinished() int {
	first := len(r.m.Graph.Blocks)
	for _, w := range r.m.Graph.Weights() {
		if w.Block >= 0 && !r.has(w.Name) {
			first = min(first, w.Block)
		}
	}
	return first
}

// statesEvery is how often hidden states are kept: a run that resumes walks through the
// blocks since then again, which are fitted.
const statesEvery = time.Minute

// checkpoint keeps the hidden states before a block, where the walk goes on, unless that
// was done a moment ago.
func (r *run) checkpoint(ctx context.Context, h *calibrate.Hidden, block int) error {
	if r.o.Work == nil || block > r.last || !r.statesKept.IsZero() && time.Since(r.statesKept) < statesEvery {
		return nil
	}
	err := r.keepStates(ctx, hiddenName, h, block)
	r.statesKept = time.Now()
	return err
}

// keepStates puts hidden states before a block into the work folder.
func (r *run) keepStates(ctx context.Context, name string, h *calibrate.Hidden, block int) error {
	var blobs []tensor.Blob
	var tokens int64
	var reading sync.Mutex
	for i, window := range h.Windows() {
		tokens += int64(len(window))
		blobs = append(blobs, tensor.Computed(calibrate.Bytes(int64(len(window)), r.m.Graph.WidestRow()), func() ([]byte, error) {
			reading.Lock()
			defer reading.Unlock()
			x, err := h.Rows(i)
			if err != nil {
				return nil, err
			}
			p := make([]byte, 4*len(x))
			return p, tensor.FromFloat32(p, x, tensor.F32)
		}))
	}
	s, _ := scheme.ByName("f32")
	t, err := scheme.New(name, s, []int64{tokens, r.m.Graph.WidestRow()}, nil, tensor.Concat(blobs...))
	if err != nil {
		return err
	}
	if r.o.Work.Shared() { // they are many, and follow from what is finished
		return r.o.Work.Leave(ctx, t, arrival{block})
	}
	_, err = r.o.Work.Put(ctx, t, arrival{block})
	return err
}

// hashOf names bytes.
func hashOf(p []byte) string {
	h := blake3.Sum256(p)
	return hex.EncodeToString(h[:16])
}
