package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nstf/nstf/calibrate"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/quantize/fit"
	"github.com/nstf/nstf/runtime/device"
	"github.com/nstf/nstf/runtime/exec"
)

// Shards share the text by its groups (calibrate.Keep.Groups). Of each block they make, under
// leases, what each group adds to the sums; then of each input the total, group by group in
// their order, which whoever fits a matrix of it reads, or its factors, by which pieces are fitted. The group's hidden states go with its
// sums: they are moved on, behind the compressed block before, by who makes these. All of it
// lies in the work folder and follows from the job and the tensors that are finished, so that
// whatever is missing or damaged is made again by anybody, to the same bits.

// groupName is the lease of a group; statesName and sumsName are what it leaves in the work folder, totalName what all do
// of an input; no tensor of a graph has a name with spaces.
func (r *run) groupName(block, group int) string {
	return fmt.Sprintf("%sgroup %d of block %d", r.pass, group, block)
}

func (r *run) statesName(block, group int) string {
	return fmt.Sprintf("%sstates of block %d group %d", r.pass, block, group)
}

func (r *run) sumsName(block, group, input int) string {
	return fmt.Sprintf("%ssums of block %d group %d input %d", r.pass, block, group, input)
}

func totalName(block, input int) string {
	return fmt.Sprintf("sums of block %d input %d", block, input)
}

func factorsName(block, input int) string {
	return fmt.Sprintf("factors of block %d input %d", block, input)
}

// groups says where the text is cut.
func (r *run) groups() []int { return calibrate.Keep{}.Groups(r.o.Windows) }

// turns lists the groups in the order in which this process takes them.
func (r *run) turns() []int {
	groups := make([]int, len(r.groups())-1)
	for i := range groups {
		groups[i] = i
	}
	from := r.begins(len(groups))
	return append(groups[from:], groups[:from]...)
}

// span is that of a block, or of the head behind all.
func (r *run) span(block int) device.Span {
	if block == len(r.m.Graph.Blocks) {
		return device.Head(r.m.Graph)
	}
	return device.Block(block)
}

// inputsOf lists what its linears read.
func (r *run) inputsOf(block int) []device.Input { return device.Inputs(r.m.Graph, r.span(block)) }

// together measures a block, or the head, with other shards, and fits what is left of it.
func (r *run) together(ctx context.Context, block int, todo []graph.Weight) error {
	groups := r.turns()
	err := each(ctx, r.o.Work, groups, func(group int) (bool, error) { return r.contribution(ctx, block, group, todo) }, nil)
	if err != nil {
		return err
	}
	sums := &met{run: r, ctx: ctx, block: block, codes: r.codes(block), ready: map[string]*fit.Input{}}
	if err := r.group(ctx, todo, sums); err != nil {
		return err
	}
	return errors.Join(r.dropMet(ctx, block), r.o.Work.Tidy(ctx)) // nobody needs that any more
}

// dropMet removes what a block was fitted by.
func (r *run) dropMet(ctx context.Context, block int) error {
	err := r.dropSums(ctx, block)
	for i := range r.inputsOf(block) {
		err = errors.Join(err, r.o.Work.Drop(ctx, factorsName(block, i)), r.o.Work.Drop(ctx, totalName(block, i)))
	}
	return err
}

// contribution makes what a group adds to a block's sums unless another process is at it, and
// reports whether it is there, or is not needed any more.
func (r *run) contribution(ctx context.Context, block, group int, todo []graph.Weight) (bool, error) {
	there := func() bool {
		return r.hasSums(ctx, block, group) || !slices.ContainsFunc(todo, func(w graph.Weight) bool { return !r.has(w.Name) && !r.finished(ctx, w.Name) })
	}
	return taken(ctx, r.o.Work, r.groupName(block, group), there, func() error { return r.contribute(ctx, block, group) })
}

// contribute makes what a group adds to a block's sums. Through the original model the states
// move on with that, else when the block is fitted.
func (r *run) contribute(ctx context.Context, block, group int) error {
	h, err := r.arrived(ctx, block, group)
	if err != nil {
		return err
	}
	defer h.Close()
	n := len(h.Windows())
	g, err := r.measure(ctx, r.span(block), []int{0, n}, func(walk *exec.Walker, lo, hi int, last bool) error {
		if block == len(r.m.Graph.Blocks) {
			return h.Show(ctx, walk, lo, hi)
		}
		return h.ThroughSome(ctx, walk, lo, hi, last && r.pass != "")
	})
	if err == nil && r.pass != "" && block < len(r.m.Graph.Blocks) {
		err = r.keepStates(ctx, r.statesName(block+1, group), h, block+1)
	}
	for i, in := range r.inputsOf(block) {
		if err == nil {
			sums := slices.DeleteFunc(g.g.Sums(), func(s device.Sums) bool { return s.Input != in.Name })
			err = r.keepSums(ctx, r.sumsName(block, group, i), sums)
		}
	}
	if err == nil && r.pass != "" {
		err = r.o.Work.Drop(ctx, r.statesName(block, group))
	}
	return err
}

// arrived returns a group's hidden states before a block: from the nearest block before it
// where they were kept, or from the embedding.
func (r *run) arrived(ctx context.Context, block, group int) (*calibrate.Hidden, error) {
	groups := r.groups()
	windows := r.o.Windows[groups[group]:groups[group+1]]
	h, at, err := r.nearest(ctx, block, group, windows)
	if err != nil || at == block {
		return h, err
	}
	for i := at; i < block && err == nil; i++ {
		err = r.through(ctx, h, i, windows)
	}
	if err == nil {
		err = r.keepStates(ctx, r.statesName(block, group), h, block)
	}
	if err == nil {
		err = r.o.Work.Drop(ctx, r.statesName(block-1, group))
	}
	if err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return h, nil
}

// nearest returns a group's hidden states before a block, or before the nearest one before it.
func (r *run) nearest(ctx context.Context, block, group int, windows [][]int32) (*calibrate.Hidden, int, error) {
	for at := block; at > 0; at-- {
		if h, was, ok := r.left(ctx, r.statesName(at, group), windows, calibrate.Keep{}); ok && was == at {
			return h, at, nil
		}
	}
	h, err := r.embedded(ctx, windows, calibrate.Keep{})
	return h, 0, err
}

// summed returns the sums of an input over all groups, which the first who asks for them adds up.
func (r *run) summed(ctx context.Context, block int, name string) (g *calibrate.Gathered, err error) {
	at := slices.IndexFunc(r.inputsOf(block), func(in device.Input) bool { return in.Name == name })
	if at < 0 {
		return calibrate.NewGathered(), nil
	}
	what, found := totalName(block, at), false
	done, err := once(ctx, r.o.Work, what, func() error {
		s, err := r.sums(ctx, what)
		if g, found = calibrate.NewGathered(), err == nil; found {
			add(g, s)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	defer done()
	if found {
		return g, nil
	}
	g = calibrate.NewGathered()
	if err := r.addUp(ctx, block, at, g); err != nil {
		return nil, err
	}
	return g, r.keepSums(ctx, what, g.Sums())
}

// addUp adds up the groups' sums of an input in their order, and adds them to g.
func (r *run) addUp(ctx context.Context, block, input int, g *calibrate.Gathered) error {
	var names []string
	for group := range r.groups()[1:] {
		names = append(names, r.sumsName(block, group, input))
	}
	r.o.Work.Ready(ctx, names)
	var all [][]device.Sums
	for group, name := range names {
		s, err := r.sums(ctx, name)
		if err != nil { // missing, or damaged since
			if err := r.contribute(ctx, block, group); err != nil {
				return err
			}
			if s, err = r.sums(ctx, name); err != nil {
				return err
			}
		}
		all = append(all, s)
	}
	add(g, total(all, r.o.Threads))
	return nil
}
