package pipeline

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"slices"
	"time"

	"github.com/nstf/nstf/calibrate"
	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/plan"
	"github.com/nstf/nstf/formats/stats"
	"github.com/nstf/nstf/formats/work"
	"github.com/nstf/nstf/quantize/fit"
	"github.com/nstf/nstf/runtime/device"
	"github.com/nstf/nstf/runtime/exec"
)

// Options say how a plan is executed.
type Options struct {
	// Windows are what the calibration text became (see calibrate.Windows);
	// none: nothing is measured, and all errors count alike.
	Windows [][]int32
	// Stats is what was measured of the original model. It weighs errors in a
	// table that is embedding and head at once, and, where Parallel is set, in
	// all tensors.
	Stats *stats.File
	// Parallel takes the moments of the original model for all tensors, instead
	// of measuring what each block reads behind the compressed ones.
	Parallel bool
	// Work keeps finished tensors; nil: they stay in memory.
	Work *work.Folder
	// Reuse are tensors of an earlier result, taken where their recipe is the plan's.
	Reuse map[string]Reused
	// Shard says where this process begins among those that share Work, so that they meet
	// seldom.
	Shard Shard
	// Merge fits nothing: Work has all tensors, or that is an error which names what is
	// missing or damaged.
	Merge bool
	// Watch bounds the drift of hidden states, block by block; nil: nothing
	// does. Not with Parallel.
	Watch   *Watch
	Threads int // 0: all
	// On is the opened device that runs text through blocks; nil: the processor does.
	On *exec.Opened
	// Searcher finds trellis codes; nil: the processor does. The result does not
	// depend on it.
	Searcher fit.Searcher
	// Alone has one matrix fitted at a time, in less memory: see [Need].
	Alone bool
	// Progress is called with weights fitted and their total; nil: nobody.
	Progress func(done, total int64)
}

// A Reused tensor comes from an earlier result.
type Reused struct {
	Tensor formats.Tensor
	Fit    Fit
}

// A Fit says how a tensor was fitted.
type Fit struct {
	Recipe    plan.Recipe `json:"recipe"`
	Method    string      `json:"method"`
	Error     float64     `json:"error"`     // tr(E H E')
	Reference float64     `json:"reference"` // tr(W H W')
	Seconds   float64     `json:"seconds"`
}

// Relative returns the relative calibrated error.
func (f *Fit) Relative() float64 {
	if f.Reference == 0 {
		return 0
	}
	return f.Error / f.Reference
}

// A Result is the tensors that a plan changes, by their names, and how each
// was fitted. The tensors live as long as the work folder is open.
type Result struct {
	Tensors map[string]formats.Tensor
	Fits    map[string]Fit
	Plan    *plan.Plan // that was executed: another than was given where a [Watch] made one
	Notes   []string   // what happened on the way
}

// Run fits the tensors of a model as a plan says. Errors are those of a plan
// for another model, of reading, of fitting, which name the tensor, of the work
// folder, and the context's.
func Run(ctx context.Context, m *model.Model, p *plan.Plan, o Options) (*Result, error) {
	if err := p.Check("", m.Graph); err != nil {
		return nil, err
	}
	if o.Threads <= 0 {
		o.Threads = runtime.GOMAXPROCS(0)
	}
	r := &run{m: m, p: p, o: o, out: Result{Tensors: map[string]formats.Tensor{}, Fits: map[string]Fit{}}, there: map[string]bool{}, methods: map[unitKey][]string{}, asked: map[string]time.Time{}, linears: m.Graph.Readers(), first: known{fit.NewMeasured(o.Stats)}}
	r.crew = newCrew(o.atOnce(), o.Threads)
	if err := r.prepare(ctx); err != nil {
		return nil, err
	}
	if o.Progress != nil {
		o.Progress(r.done, r.total)
	}
	if o.Watch != nil {
		o.Watch.load()
		r.last = max(r.last, len(m.Graph.Blocks)-1) // all blocks are looked at
	}
	if o.Merge {
		if err := r.whole(ctx); err != nil {
			return nil, err
		}
	}
	if err := r.walk(ctx); err != nil {
		return nil, err
	}
	r.out.Plan = r.p
	if o.Watch != nil {
		r.out.Notes = o.Watch.found.Notes
	}
	return &r.out, nil
}

// A run is one walk through a model.
type run struct {
	m           *model.Model
	p           *plan.Plan
	o           Options
	out         Result
	linears     map[string]*graph.Linear // by their weight
	done, total int64                    // weights
	last        int                      // block behind which nothing is left to measure; -1: none
	first       known                    // of the original model
	crew        *crew
	asked       map[string]time.Time // for factors that another process was making, by input
	statesKept  time.Time            // when hidden states were
	there       map[string]bool      // pieces that were seen in the work folder
	methods     map[unitKey][]string // that are in question for what is fitted in pieces
	pass        string               // what names in the work folder begin with, of a run that changes nothing; else ""
}

// prepare finds out what is to be done and what was done before.
func (r *run) prepare(ctx context.Context) (err error) {
	g := r.m.Graph
	r.last = -1
	for _, w := range g.Weights() {
		if r.recipe(w.Name).Kept() {
			continue
		}
		t := r.m.Tensor(w.Name)
		r.total += t.Elements()
		if _, had := r.out.Tensors[w.Name]; had || r.finished(ctx, w.Name) {
			r.done += t.Elements()
			err = errors.Join(err, r.dropLeft(ctx, w))
		} else if w.Name == g.Head.Weight && !r.early(w.Name) {
			r.last = len(g.Blocks)
		} else if w.Block >= 0 {
			r.last = max(r.last, w.Block)
		}
	}
	return err
}

// recipe returns a tensor's recipe: what is in the scheme already is kept.
func (r *run) recipe(name string) plan.Recipe {
	t, ok := r.p.Tensor(name)
	if !ok || t.Recipe.Is(r.m.Tensor(name).Scheme) {
		return plan.Recipe{}
	}
	return t.Recipe
}

// finished takes a tensor that an interrupted run or an earlier result left.
func (r *run) finished(ctx context.Context, name string) bool {
	if was, ok := r.o.Reuse[name]; ok && was.Fit.Recipe == r.recipe(name) {
		r.out.Tensors[name], r.out.Fits[name] = was.Tensor, was.Fit
		return true
	}
	if r.o.Work == nil {
		return false
	}
	t, raw, ok := r.o.Work.Get(ctx, name)
	var f Fit
	if !ok || json.Unmarshal(raw, &f) != nil || f.Recipe != r.recipe(name) {
		return false
	}
	r.out.Tensors[name], r.out.Fits[name] = t, f
	return true
}

// early reports whether a tensor is fitted before the walk through the blocks:
// the embedding, and what reads nothing. A table that is the head too waits for
// what the head reads, unless that was measured of the original model.
func (r *run) early(name string) bool {
	g := r.m.Graph
	if name != g.Head.Weight {
		return true
	}
	return g.Tied() && r.o.Stats != nil && r.o.Stats.Inputs[g.Head.Input] != nil
}

// walk fits what lies outside the blocks, each block, and the head.
func (r *run) walk(ctx context.Context) error {
	g := r.m.Graph
	if err := r.all(ctx, r.first, func(w graph.Weight) bool { return w.Block < 0 && r.early(w.Name) }); err != nil {
		return err
	}
	if r.o.Parallel || len(r.o.Windows) == 0 {
		return r.parallel(ctx)
	}
	head := []graph.Weight{{Name: g.Head.Weight, Role: g.Head.Role, Block: -1}}
	if r.o.Work.Shared() {
		return r.shared(ctx, head)
	}
	if r.last < 0 {
		return nil
	}
	h, first, err := r.hidden(ctx)
	if err != nil {
		return err
	}
	defer h.Close()
	defer r.o.Watch.close()
	for i := first; i < len(g.Blocks) && i <= r.last; i++ {
		if err := r.block(ctx, h, i); err != nil {
			return err
		}
	}
	if r.last < len(g.Blocks) {
		return nil
	}
	moments, err := r.measure(ctx, device.Head(g), h.Groups(), func(walk *exec.Walker, lo, hi int, _ bool) error { return h.Show(ctx, walk, lo, hi) })
	if err != nil {
		return err
	}
	return r.tensors(ctx, head, moments)
}

// shared fits blocks and the head together with other processes. Who fitted the last of those that are
// fitted may have been stopped before it removed what it was fitted by.
func (r *run) shared(ctx context.Context, head []graph.Weight) error {
	blocks := len(r.m.Graph.Blocks)
	todo := func(i int) []graph.Weight {
		switch {
		case i < blocks:
			return r.unfitted(i)
		case r.last == blocks:
			return head
		}
		return nil
	}
	first := 0
	for first <= blocks && len(todo(first)) == 0 {
		first++
	}
	for i := max(first-2, 0); i < first; i++ { // a head that is fitted early has nothing
		if err := r.dropMet(ctx, i); err != nil {
			return err
		}
	}
	for i := first; i <= blocks; i++ {
		if left := todo(i); len(left) > 0 {
			if err := r.together(ctx, i, left); err != nil {
				return err
			}
		}
	}
	return nil
}

// parallel fits all blocks and the head by the moments of the original model.
func (r *run) parallel(ctx context.Context) error {
	return r.all(ctx, r.first, func(w graph.Weight) bool { return w.Block >= 0 || !r.early(w.Name) })
}

// all fits the tensors of the graph that which says.
func (r *run) all(ctx context.Context, moments moments, which func(w graph.Weight) bool) error {
	var todo []graph.Weight
	for _, w := range r.m.Graph.Weights() {
		if which(w) && !r.has(w.Name) {
			todo = append(todo, w)
		}
	}
	if err := r.tensors(ctx, todo, moments); err != nil || !r.o.Work.Shared() {
		return err
	}
	return r.o.Work.Tidy(ctx)
}

// block measures and fits one block, again where it drifts too far, and moves
// the hidden states behind it.
func (r *run) block(ctx context.Context, h *calibrate.Hidden, i int) error {
	for again := true; again; {
		if err := r.fitBlock(ctx, h, i); err != nil {
			return err
		}
		var err error
		if again, err = r.kept(ctx, i); err != nil {
			return err
		}
	}
	if err := r.through(ctx, h, i, r.o.Windows); err != nil {
		return err
	}
	return r.checkpoint(ctx, h, i+1)
}

// through moves hidden states of windows behind a block that is fitted.
func (r *run) through(ctx context.Context, h *calibrate.Hidden, block int, windows [][]int32) error {
	walk, err := r.walker(device.Block(block), windows, true)
	if err != nil {
		return err
	}
	return errors.Join(h.Through(ctx, walk, true), walk.Close())
}

// fitBlock measures what a block reads and fits what is left of it to fit.
func (r *run) fitBlock(ctx context.Context, h *calibrate.Hidden, i int) error {
	todo := r.unfitted(i)
	if len(todo) == 0 {
		return nil
	}
	moments, err := r.measure(ctx, device.Block(i), h.Groups(), func(walk *exec.Walker, lo, hi int, _ bool) error {
		return h.ThroughSome(ctx, walk, lo, hi, false)
	})
	if err != nil {
		return err
	}
	return r.group(ctx, todo, moments)
}

// unfitted lists what is left of a block to fit.
func (r *run) unfitted(block int) (todo []graph.Weight) {
	for _, w := range r.m.Graph.Weights() {
		if w.Block == block && !r.has(w.Name) {
			todo = append(todo, w)
		}
	}
	return todo
}

// has reports whether a tensor needs no fitting any more.
func (r *run) has(name string) bool {
	_, ok := r.out.Tensors[name]
	return ok || r.recipe(name).Kept()
}

// group fits tensors input by input, so that the factors of one are held at a
// time. Shards begin with the widest: who comes to help in the end then factors moments that
// take little.
func (r *run) group(ctx context.Context, todo []graph.Weight, moments moments) error {
	order := r.inputs(todo)
	if r.o.Work.Shared() {
		width := map[string]int64{}
		for _, w := range todo {
			if l := r.linears[w.Name]; l != nil {
				width[l.Input] = l.In
			}
		}
		slices.SortStableFunc(order, func(a, b string) int { return cmp.Compare(width[b], width[a]) })
	}
	slices.SortStableFunc(todo, func(a, b graph.Weight) int {
		return slices.Index(order, r.input(a.Name)) - slices.Index(order, r.input(b.Name))
	})
	return r.tensors(ctx, todo, moments)
}

// inputs lists the inputs of tensors in the order of their first reader.
func (r *run) inputs(ws []graph.Weight) (out []string) {
	for _, w := range ws {
		if in := r.input(w.Name); !slices.Contains(out, in) {
			out = append(out, in)
		}
	}
	return out
}

// input names what a tensor reads, "" where it reads nothing.
func (r *run) input(name string) string {
	if l := r.linears[name]; l != nil {
		return l.Input
	}
	return ""
}

// moments give the second moments of an input, nil where nothing was measured.
type moments interface {
	Input(name string, expert int) (*fit.Input, error)
	// Ready returns an input for pieces of tensors to be fitted by, with its factors where
	// these are shared; false while another process makes them.
	Ready(ctx context.Context, name string) (*fit.Input, bool, error)
}

// atOnce is how many matrices are fitted at once.
func (o *Options) atOnce() int {
	if o.Alone {
		return 1
	}
	return 2
}

// tensor fits one tensor, or begins to, and keeps it when it is fitted.
func (r *run) tensor(ctx context.Context, w graph.Weight, moments moments) error {
	if r.has(w.Name) {
		return nil
	}
	j := r.job(w, moments)
	if pieces := r.pieces(w); len(pieces) > 0 {
		t, f, err := j.join(ctx, pieces)
		if err == nil {
			err = r.keep(ctx, t, f)
		}
		if err != nil {
			return err
		}
		return r.dropPieces(ctx, pieces)
	}
	return j.fit(ctx, func(t formats.Tensor, f Fit) error { return r.keep(ctx, t, f) })
}

// keep keeps a tensor that is fitted.
func (r *run) keep(ctx context.Context, t formats.Tensor, f Fit) (err error) {
	name := t.Name
	if r.o.Work != nil {
		if t, err = r.o.Work.Put(ctx, t, f); err != nil {
			return err
		}
	}
	r.out.Tensors[name], r.out.Fits[name] = t, f
	return nil
}

// job begins a tensor.
func (r *run) job(w graph.Weight, moments moments) *job {
	return &job{run: r, name: w.Name, recipe: r.recipe(w.Name), moments: moments, lookup: w.Role.Base() == graph.RoleEmbed || w.Name == r.m.Graph.Embed.Table}
}

// measure runs f on a span of the original model, group by group of windows lo to hi, for the
// last time with last, and returns what its linears read.
func (r *run) measure(ctx context.Context, span device.Span, groups []int, f func(walk *exec.Walker, lo, hi int, last bool) error) (*gathered, error) {
	walk, err := r.walker(span, r.o.Windows, false)
	if err != nil {
		return nil, err
	}
	g, err := calibrate.Gather(ctx, r.m, walk, groups, func(lo, hi int, last bool) error { return f(walk, lo, hi, last) })
	return &gathered{g: g}, errors.Join(err, walk.Close())
}

// walker opens a span in float32 arithmetic for windows, with what has been fitted or as it
// was.
func (r *run) walker(span device.Span, windows [][]int32, fitted bool) (*exec.Walker, error) {
	return exec.NewWalker(r.m.Path, r.m.Graph, func(name string) formats.Tensor {
		if t, ok := r.out.Tensors[name]; ok && fitted {
			return t
		}
		return r.m.Tensor(name)
	}, span, walkOptions(windows, r.o.Threads, r.o.On))
}

// walkOptions are those of a walker that windows are run through in float32.
func walkOptions(windows [][]int32, threads int, on *exec.Opened) exec.Options {
	o := exec.Options{Threads: threads, Exact: true, On: on}
	for _, w := range windows {
		o.Context = max(o.Context, int64(len(w)))
	}
	return o
}

// keepOn says where hidden states of windows are kept.
func keepOn(m *model.Model, windows [][]int32, on *exec.Opened) (calibrate.Keep, error) {
	reserve, err := on.Need(m, exec.Walk{Context: int(walkOptions(windows, 0, on).Context), Gather: true})
	return calibrate.Keep{On: on, Reserve: reserve}, err
}
