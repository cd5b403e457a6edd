package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/nstf/nstf/calibrate"
	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/atomicfile"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/plan"
	"github.com/nstf/nstf/runtime/device"
)

// A Revision is what a walk has found out that a plan for the rest must keep.
type Revision struct {
	// Done are tensors that are stored already, with their recipes.
	Done map[string]plan.Recipe
	// Assumed are sensitivities to take instead of those that were measured.
	Assumed map[string]float64
}

// A Watch compares, behind each block, the hidden states of held-out windows in
// the compressed model with the original's. Where their drift is above a bound
// it has the block, and what follows, planned again within what is left of the
// budget, with the block's tensors taken to be more sensitive than was measured;
// after a few times it stops the walk.
type Watch struct {
	Held [][]int32
	Most float64 // drift behind the last block: mean squared difference over the mean square; see allowed
	// Replan plans the rest; nil: the walk stops at once.
	Replan func(ctx context.Context, r Revision) (*plan.Plan, error)
	// File keeps what was found, for a run that resumes; "": nothing does.
	File string

	found   revisions
	sides   sides
	arrived int // block before which the states are
}

// revisions are what a watch has found so far.
type revisions struct {
	Assumed map[string]float64 `json:"assumed"`
	Tries   map[int]int        `json:"tries"` // plans made again, by block
	Notes   []string           `json:"notes"`
}

// mostPlans is how often a block is planned again.
const mostPlans = 4

// A DriftError says that a block's hidden states went too far from the
// original's, whatever was planned.
type DriftError struct {
	Block       int
	Drift, Most float64
}

// Error implements error.
func (e *DriftError) Error() string {
	return fmt.Sprintf("behind block %d hidden states have drifted by %.4g of their square, more than %.4g", e.Block, e.Drift, e.Most)
}

// allowed is the bound behind block i of n. Half of it is there from the start,
// as the embedding table and the first block bring much; the rest comes evenly,
// so that a block that takes more is planned again, and not those behind it.
func (w *Watch) allowed(i, n int) float64 {
	return w.Most * (1 + float64(i+1)/float64(n)) / 2
}

// maxWatch is far above what a watch writes.
const maxWatch = 64 << 20

// load reads what an interrupted run found.
func (w *Watch) load() {
	if w.File != "" {
		if data, err := formats.ReadFile(w.File, maxWatch, "what a watch found"); err == nil {
			var found revisions
			if json.Unmarshal(data, &found) == nil {
				w.found = found
			}
		}
	}
	if w.found.Tries == nil {
		w.found.Tries = map[int]int{}
	}
	if w.found.Assumed == nil {
		w.found.Assumed = map[string]float64{}
	}
}

func (w *Watch) save() error {
	if w.File == "" {
		return nil
	}
	data, err := json.Marshal(&w.found)
	if err != nil {
		return err
	}
	return atomicfile.Scratch(w.File).WriteFile(data)
}

// watched reports how far hidden states are from the original's behind block i,
// and moves them there where that is near enough.
func (r *run) watched(ctx context.Context, i int) (drift float64, err error) {
	w := r.o.Watch
	for ; w.arrived <= i; w.arrived++ {
		next := sides{}
		for side := range next {
			if next[side], err = r.past(ctx, w.sides[side], w.arrived, side == 1); err != nil {
				return 0, errors.Join(err, next.close())
			}
		}
		if drift, err = next.distance(); err != nil || w.arrived == i && drift > w.allowed(i, len(r.m.Graph.Blocks)) {
			return drift, errors.Join(err, next.close())
		}
		if err := w.sides.close(); err != nil {
			return 0, errors.Join(err, next.close())
		}
		w.sides = next
	}
	return drift, nil
}

// close gives the hidden states back.
func (w *Watch) close() {
	if w != nil {
		w.sides.close()
		w.sides = sides{}
	}
}

// past returns the held-out windows' hidden states behind a block, of those
// before it, which stay.
func (r *run) past(ctx context.Context, h *calibrate.Hidden, block int, fitted bool) (out *calibrate.Hidden, err error) {
	windows, before := r.o.Watch.Held, h
	if h == nil {
		keep, err := keepOn(r.m, windows, r.o.On)
		if err != nil {
			return nil, err
		}
		walk, err := r.walker(device.Embedding(), windows, fitted)
		if err != nil {
			return nil, err
		}
		h, err = calibrate.NewHidden(ctx, walk, r.m.Graph, windows, keep)
		if err = errors.Join(err, walk.Close()); err != nil {
			return nil, err
		}
	}
	walk, err := r.walker(device.Block(block), windows, fitted)
	if err != nil {
		return nil, err
	}
	out, err = h.Behind(ctx, walk)
	err = errors.Join(err, walk.Close())
	if before == nil {
		err = errors.Join(err, h.Close())
	}
	return out, err
}

// kept holds block i to the bound, planning it again where it is not kept. It
// reports whether tensors of the block are to be fitted anew.
func (r *run) kept(ctx context.Context, i int) (again bool, err error) {
	w := r.o.Watch
	if w == nil {
		return false, nil
	}
	most := w.allowed(i, len(r.m.Graph.Blocks))
	drift, err := r.watched(ctx, i)
	if err != nil || drift <= most {
		return false, err
	}
	for w.Replan != nil && w.found.Tries[i] < mostPlans {
		r.assume(i)
		p, err := w.Replan(ctx, Revision{Done: r.settled(i), Assumed: w.found.Assumed})
		if err != nil {
			return false, fmt.Errorf("%w: %w", &DriftError{i, drift, most}, err)
		}
		r.p = p
		if again = r.dropped(ctx, i); again {
			w.found.Notes = append(w.found.Notes, fmt.Sprintf("block %d drifted by %.3g, more than %.3g: it and the rest were planned again", i, drift, most))
			return true, w.save()
		}
	}
	return false, &DriftError{i, drift, most}
}

// assume raises the sensitivities of a block's tensors: to what such tensors
// have in other blocks, and to four times what was measured; then by eight each
// time.
func (r *run) assume(block int) {
	w := r.o.Watch
	first := w.found.Tries[block] == 0
	w.found.Tries[block]++
	for _, t := range r.m.Graph.Weights() {
		if t.Block != block || len(t.Shape) < 2 {
			continue
		}
		if !first {
			w.found.Assumed[t.Name] *= 8
			continue
		}
		w.found.Assumed[t.Name] = max(4*r.sensitivity(t.Name), r.usual(t))
	}
}

// sensitivity returns what was measured, or 1.
func (r *run) sensitivity(name string) float64 {
	if r.o.Stats != nil {
		if s, ok := r.o.Stats.Sensitivity[name]; ok {
			return s
		}
	}
	return 1
}

// usual returns the median sensitivity of tensors of a role.
func (r *run) usual(like graph.Weight) float64 {
	var all []float64
	for _, t := range r.m.Graph.Weights() {
		if t.Role == like.Role && t.Block >= 0 && t.Block != like.Block {
			all = append(all, r.sensitivity(t.Name))
		}
	}
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// settled lists the tensors that stay as they are when block i is planned again.
func (r *run) settled(i int) map[string]plan.Recipe {
	done := map[string]plan.Recipe{}
	for _, t := range r.m.Graph.Weights() {
		if row, ok := r.p.Tensor(t.Name); ok && (t.Block >= 0 && t.Block < i || t.Block < 0 && r.early(t.Name)) {
			done[t.Name] = row.Recipe
		}
	}
	return done
}

// dropped forgets the tensors that a new plan stores in another way, takes
// those that an earlier result has, and reports whether block i has any to fit.
func (r *run) dropped(ctx context.Context, i int) (todo bool) {
	for name, f := range maps.Clone(r.out.Fits) {
		if f.Recipe != r.recipe(name) {
			delete(r.out.Tensors, name)
			delete(r.out.Fits, name)
		}
	}
	r.done, r.total = 0, 0
	r.prepare(ctx)
	r.last = max(r.last, len(r.m.Graph.Blocks)-1)
	for _, t := range r.m.Graph.Weights() {
		todo = todo || t.Block == i && !r.has(t.Name)
	}
	return todo
}
