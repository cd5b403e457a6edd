package calibrate

import (
	"context"
	"maps"
	"math"
	"slices"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/stats"
	"github.com/nstf/nstf/formats/tensor"
	"github.com/nstf/nstf/runtime/device"
	"github.com/nstf/nstf/runtime/exec"
)

const (
	levelKL     = 0.05 // nats that errors in all matrices together are to cost
	levelMost   = 0.05 // their relative size at most
	levelTokens = 8    // times what passages have, at most: longer windows are cut
	levelRows   = 128  // whose logits are compared at once
	levelSteps  = 2    // of progress for each block
)

// A leveller compares what errors cost on whole windows and on their passages.
type leveller struct {
	*disturber
	passages []int // tokens of each window that sensitivities were measured on
}

// measureLevel returns how much more errors cost on whole windows, twice as many as
// there were passages, than on the passages alone: by a model with errors of one
// relative size in all its matrices. Windows are cut where that many would have more
// than levelTokens times the passages' tokens. Few passages say which matrix matters more, but
// texts differ, and the first positions of a window have less to go by.
func measureLevel(ctx context.Context, m *model.Model, s *stats.File, windows [][]int32, o SensitivityOptions, sensitivity, sizes map[string]float64) (float64, error) {
	var sum float64
	for _, name := range slices.Sorted(maps.Keys(sensitivity)) { // one order, one sum
		sum += sensitivity[name]
	}
	whole, passages := wholeWindows(windows, o.Tokens)
	if sum == 0 || slices.EqualFunc(whole, passages, func(w []int32, n int) bool { return len(w) == n }) {
		return 1, nil
	}
	o.Relative = min(levelKL/sum, levelMost)
	l := leveller{newDisturber(m, readBy(s), whole, o, sizes), passages}
	defer l.close()
	l.dtype = tensor.BF16 // a block's matrices are held at once; far finer than the errors
	if err := l.embed(ctx); err != nil {
		return 0, err
	}
	next, stop := l.blocks()
	defer stop()
	for i := range m.Graph.Blocks {
		if err := l.through(ctx, i, next); err != nil {
			return 0, err
		}
		if o.Progress != nil {
			all := int64(len(m.Graph.Blocks) + 1)
			o.Progress(all*(all+1)/2+levelSteps*int64(i+1), all*(all+1)/2+levelSteps*all)
		}
	}
	return l.ratio(ctx)
}

// wholeWindows takes those windows that have passages and as many between them, and
// says how many tokens of each are a passage.
func wholeWindows(windows [][]int32, tokens int) (out [][]int32, passages []int) {
	short := spread(windows, tokens)
	n := min(2*len(short), len(windows))
	most := levelTokens * max(tokens, passage) / n
	of := map[int]int{}
	for i, w := range short {
		of[i*len(windows)/len(short)] = len(w)
	}
	for i := range n {
		at := i * len(windows) / n
		w := windows[at]
		out, passages = append(out, w[:min(len(w), max(most, of[at]))]), append(passages, of[at])
	}
	return out, passages
}

// through carries the model's states and those with errors through a block.
func (l *leveller) through(ctx context.Context, block int, next func() changed) error {
	var others []*formats.Tensor
	for range disturbs(&l.m.Graph.Blocks[block]) {
		w := next()
		if w.err != nil {
			return w.err
		}
		others = append(others, w.tensor)
	}
	carry := func(h *Hidden) func(walk *exec.Walker) error {
		return func(walk *exec.Walker) error { return h.Through(ctx, walk, true) }
	}
	if err := l.walk(device.Block(block), others, carry(l.copies[0].hidden)); err != nil {
		return err
	}
	return l.walk(device.Block(block), nil, carry(l.clean))
}

// ratio compares at the end.
func (l *leveller) ratio(ctx context.Context) (float64, error) {
	changed := l.copies[0].head
	if changed == nil {
		var err error
		if changed, _, err = l.head(); err != nil {
			return 0, err
		}
	}
	var sums, counts [2]float64 // on all positions, on passages
	err := l.walk(device.Head(l.m.Graph), nil, func(clean *exec.Walker) error {
		return l.walk(device.Head(l.m.Graph), []*formats.Tensor{changed}, func(walk *exec.Walker) error {
			for i, all := range l.positions() {
				for rows := range slices.Chunk(all, levelRows) {
					want, err := l.logits(ctx, clean, l.clean, i, rows)
					if err != nil {
						return err
					}
					each, err := l.divergences(ctx, walk, l.copies[0].hidden, i, rows, want)
					if err != nil {
						return err
					}
					for j, row := range rows {
						sums[0], counts[0] = sums[0]+each[j], counts[0]+1
						if row < l.passages[i] {
							sums[1], counts[1] = sums[1]+each[j], counts[1]+1
						}
					}
				}
			}
			return nil
		})
	})
	if err != nil {
		return 0, err
	}
	if math.IsNaN(sums[0]) || math.IsInf(sums[0], 0) {
		return 0, formats.Errorf("", "", "with errors in all matrices logits are not finite")
	}
	if !(sums[0] > 0 && sums[1] > 0) { // divergences are lost in rounding
		return 1, nil
	}
	return sums[0] / counts[0] / (sums[1] / counts[1]), nil
}
