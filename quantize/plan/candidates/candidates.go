// Package candidates lists the ways in which each tensor of a model could be
// stored, with the bytes and the loss that each would come to, and writes
// nothing.
//
// In: a model, its statistics, and the recipes that are allowed. Out: items for
// quantize/plan. A candidate's error is what quantize/fit leaves of a sample of
// the matrix's rows under the second moments of its input; its loss is that
// error, and what rounding activations adds to it, times the tensor's sensitivity.
// Candidates that another beats in bytes and loss are left out.
//
// Memory: the rows of a sample and the factors of one input, or of several inputs
// side by side that have at most twice the moments of the widest. The same model,
// statistics and options give the same items at any number of threads.
package candidates

import (
	"cmp"
	"context"
	"errors"
	"math"
	"runtime"
	"slices"
	"sync"

	"golang.org/x/sync/semaphore"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/form"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/plan"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/stats"
	"github.com/nstf/nstf/quantize/factored"
	"github.com/nstf/nstf/quantize/fit"
	qplan "github.com/nstf/nstf/quantize/plan"
)

// Options say what is allowed.
type Options struct {
	// Codes that matrices may get, see [Codes]; nil: all. One that a matrix
	// does not fit is passed over. What is in the source may always stay.
	Codes []plan.Code
	// Forms looks for factors beside them: products, corrections, shared
	// matrices and tensor trains, which are candidates where they pay.
	Forms bool
	// Slower lists what another beats in bytes and loss, too: it may be faster.
	Slower  bool
	Keep    []Rule // overrides; of those that match a name the first counts
	Stats   *stats.File
	Seed    int64
	Effort  int
	Threads int // 0: all
	// Progress is called with weights looked at and their total; nil: nobody.
	Progress func(done, total int64)
}

// Build lists the candidates of every tensor of the graph, in its order.
// Without statistics, or without sensitivities in them, losses are errors: they
// can be compared, but are no divergence. Errors are those of reading, of
// fitting, of the statistics, of a rule that matches nothing or that a tensor
// does not fit, and the context's.
func Build(ctx context.Context, m *model.Model, o Options) ([]qplan.Item, error) {
	if o.Threads <= 0 {
		o.Threads = runtime.GOMAXPROCS(0)
	}
	b := newBuilder(m, o)
	if err := b.prepare(); err != nil {
		return nil, err
	}
	return b.items, b.all(ctx)
}

// Smallest lists for every tensor of the graph the one recipe of those allowed that takes
// the fewest bytes, by its shape alone: nothing is read, and its error is 0. Factors
// ([Options].Forms), which could be smaller, are not among them. Errors are those of a
// rule that matches nothing or that a tensor does not fit.
func Smallest(m *model.Model, o Options) ([]qplan.Item, error) {
	b := &builder{m: m, o: o, readers: m.Graph.Readers()}
	if err := b.prepare(); err != nil {
		return nil, err
	}
	for i := range b.items {
		it, t := &b.items[i], b.m.Tensor(b.items[i].Name)
		var least []qplan.Candidate
		for _, recipe := range b.allowed[i] {
			bytes, err := b.bytes(it, &t, recipe)
			if err != nil {
				return nil, err
			}
			if least == nil || bytes < least[0].Bytes {
				least = []qplan.Candidate{{Recipe: recipe, Bytes: bytes}}
			}
		}
		it.Candidates = least
	}
	return b.items, nil
}

type builder struct {
	m        *model.Model
	o        Options
	readers  map[string]*graph.Linear // by weight
	items    []qplan.Item
	allowed  [][]plan.Recipe // of each item
	measured *fit.Measured
	total    int64 // weights
	*progress
}

// A progress is what builders that work side by side count.
type progress struct {
	mu      sync.Mutex
	done    int64         // weights
	working chan struct{} // a place for each recipe that is estimated: as many as threads
}

func newBuilder(m *model.Model, o Options) *builder {
	return &builder{m: m, o: o, readers: m.Graph.Readers(), measured: fit.NewMeasured(o.Stats), progress: &progress{working: make(chan struct{}, max(o.Threads, 1))}}
}

// prepare lists items and what each may become.
func (b *builder) prepare() error {
	g := b.m.Graph
	used := make([]match, len(b.o.Keep))
	for _, w := range g.Weights() {
		recipes, err := b.recipes(&w, used)
		if err != nil {
			return err
		}
		b.items = append(b.items, qplan.Item{Name: w.Name, Role: string(w.Role), Shape: w.Shape})
		b.allowed = append(b.allowed, recipes)
		t := b.m.Tensor(w.Name)
		b.total += t.Elements()
	}
	for i, r := range b.o.Keep {
		switch used[i] {
		case unmatched:
			return &RuleError{r, "matches no tensor"}
		case passed:
			return &RuleError{r, "matches vectors alone, which are kept, or are f32, f16 or bf16"}
		}
	}
	return nil
}

// Quantized reports whether a tensor of the graph is one that is made smaller:
// norms, biases and learned positions are small and decide much, and so do matrices
// that steer.
func Quantized(g *graph.Graph, w *graph.Weight) bool {
	role := w.Role.Base()
	return role != graph.RoleNorm && role != graph.RoleOther && !role.Steers() && len(w.Shape) > 1 && w.Name != g.Embed.Positions
}

// A match says what a rule decided.
type match int

const (
	unmatched match = iota
	passed          // vectors alone, which its recipe cannot hold
	matched
)

// rule returns the recipe of the first rule that decides for a tensor, if one
// does: one for matrices passes over vectors, so that it may name a block.
func (b *builder) rule(w *graph.Weight, used []match) (recipe plan.Recipe, decided bool) {
	for i, r := range b.o.Keep {
		switch {
		case !r.Name.MatchString(w.Name):
		case len(w.Shape) < 2 && !r.Recipe.Kept() && factored.Check(w.Name, w.Shape, r.Recipe) != nil:
			used[i] = max(used[i], passed)
		default:
			used[i] = matched
			if !decided {
				recipe, decided = r.Recipe, true
			}
		}
	}
	return recipe, decided
}

// recipes lists what a tensor may become.
func (b *builder) recipes(w *graph.Weight, used []match) ([]plan.Recipe, error) {
	n, k := matrixOf(w.Shape)
	source := b.m.Tensor(w.Name).Scheme
	if recipe, ok := b.rule(w, used); ok {
		if recipe.Kept() || recipe.Is(source) {
			return []plan.Recipe{{}}, nil
		}
		return []plan.Recipe{recipe}, factored.Check(w.Name, w.Shape, recipe)
	}
	out := []plan.Recipe{{}}
	if !Quantized(b.m.Graph, w) {
		return out, nil
	}
	if w.Role.IsMTP() {
		return furtherTokens(source, n, k), nil
	}
	allowed := b.o.Codes
	switch {
	case allowed == nil && b.o.Slower:
		allowed = usual()
	case allowed == nil:
		allowed = all(n, k)
	}
	for _, c := range allowed {
		if r := plan.Dense(c); fit.Fits(c, n, k) && !r.Is(source) {
			out = append(out, r)
		}
	}
	return out, nil
}

// furtherTokens returns what becomes of a matrix of multi-token prediction where no
// rule names it: q4_k, or the nearest that its rows fit. The logits do not depend on
// it, so that a budget could only take all of it; what is in codes already is kept.
func furtherTokens(source string, n, k int) []plan.Recipe {
	q4k, _ := scheme.ByName("q4_k")
	code := plan.Code{Scheme: fit.Fallback(q4k, int64(k))}
	if s, ok := scheme.ByName(source); !ok || !s.Plain() || !fit.Fits(code, n, k) {
		return []plan.Recipe{{}}
	}
	return []plan.Recipe{plan.Dense(code)}
}

// matrixOf returns the rows and columns of one matrix of a tensor.
func matrixOf(shape []int64) (n, k int) {
	d := len(shape)
	if d == 0 {
		return 1, 1
	}
	if d == 1 {
		return 1, int(shape[0])
	}
	return int(shape[d-2]), int(shape[d-1])
}

// byInput orders items so that those with one input follow one another.
func (b *builder) byInput() []int {
	first := map[string]int{}
	order := make([]int, len(b.items))
	for i := range b.items {
		order[i] = i
		if in := b.input(b.items[i].Name); in != "" {
			if _, ok := first[in]; !ok {
				first[in] = i
			}
		}
	}
	rank := func(i int) int {
		if in := b.input(b.items[i].Name); in != "" {
			return first[in]
		}
		return i
	}
	slices.SortStableFunc(order, func(x, y int) int { return rank(x) - rank(y) })
	return order
}

func (b *builder) input(name string) string {
	if l := b.readers[name]; l != nil {
		return l.Input
	}
	return ""
}

// sideBySide is how many moments inputs beside the widest have together, at most.
const sideBySide = 1 << 26

// all fills in the candidates of all items, those of one input one after the other: inputs side
// by side, as threads and memory allow. Factors, which have more to hold, take turns.
func (b *builder) all(ctx context.Context) error {
	groups, widest := b.groups()
	room := widest + min(widest, sideBySide)
	if b.o.Forms {
		room = 1
	}
	free, errs := semaphore.NewWeighted(room), make([]error, len(groups))
	inner, stop := context.WithCancel(ctx)
	defer stop()
	var wait sync.WaitGroup
	for g, group := range groups {
		size := min(max(b.squares(group[0]), room/int64(b.o.Threads), 1), room)
		if free.Acquire(inner, size) != nil {
			break
		}
		wait.Go(func() {
			defer free.Release(size)
			own := *b
			own.measured = fit.NewMeasured(b.o.Stats)
			own.o.Threads = int(max(int64(b.o.Threads)*size/room, 1))
			for _, i := range group {
				if errs[g] = own.item(inner, &b.items[i], b.allowed[i]); errs[g] != nil {
					stop()
					return
				}
			}
		})
	}
	wait.Wait()
	if err := ctx.Err(); err != nil {
		return err
	}
	for _, err := range errs { // the first that is not because of another
		if err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
	}
	return nil
}

// groups lists items that share an input, and how many moments the widest input has.
func (b *builder) groups() (out [][]int, widest int64) {
	last := ""
	for _, i := range b.byInput() {
		in := b.input(b.items[i].Name)
		if in == "" || in != last || len(out) == 0 {
			out = append(out, nil)
		}
		last = in
		out[len(out)-1] = append(out[len(out)-1], i)
		widest = max(widest, b.squares(i))
	}
	return out, widest
}

// squares returns how many moments an item's input has.
func (b *builder) squares(item int) int64 {
	if b.input(b.items[item].Name) == "" {
		return 1
	}
	_, k := matrixOf(b.items[item].Shape)
	return int64(k) * int64(k)
}

// item fills in an item's candidates, which are of the allowed recipes.
func (b *builder) item(ctx context.Context, it *qplan.Item, allowed []plan.Recipe) error {
	t := b.m.Tensor(it.Name)
	sensitivity := b.sensitivity(it)
	errs, err := b.errors(ctx, &t, allowed)
	if err != nil {
		return err
	}
	for j, recipe := range allowed {
		if math.IsInf(errs[j], 1) {
			continue // its scales do not hold these weights
		}
		bytes, err := b.bytes(it, &t, recipe)
		if err != nil {
			return err
		}
		it.Candidates = append(it.Candidates, qplan.Candidate{Recipe: recipe, Bytes: bytes, Error: errs[j], Loss: errs[j] * sensitivity})
	}
	if b.o.Forms && len(allowed) > 1 {
		dense := map[plan.Code]float64{}
		for j, recipe := range allowed {
			if !math.IsInf(errs[j], 1) {
				dense[recipe.Code] = errs[j]
			}
		}
		forms, err := b.forms(ctx, it, &t, dense, sensitivity)
		if err != nil {
			return err
		}
		it.Candidates = append(it.Candidates, paying(it.Candidates, forms, sensitivity)...)
	}
	if b.readers[it.Name] != nil {
		for j := range it.Candidates {
			c := &it.Candidates[j]
			c.Rounding = rounding(c.Recipe, &t)
			c.Cost(sensitivity)
		}
	}
	if !b.o.Slower {
		it.Candidates = Undominated(it.Candidates)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.done += t.Elements()
	if b.o.Progress != nil {
		b.o.Progress(b.done, b.total)
	}
	return nil
}

// bytes returns what an item's tensor takes by a recipe.
func (b *builder) bytes(it *qplan.Item, t *formats.Tensor, recipe plan.Recipe) (int64, error) {
	if recipe.Kept() {
		return t.Size(), nil
	}
	x, err := factored.Describe(t.Name, t.Shape, recipe, fit.Options{Seed: b.o.Seed, Lookup: graph.Role(it.Role).Base() == graph.RoleEmbed})
	return x.Size(), err
}

// sensitivity returns what a relative error of 1 in a tensor costs; 1 where
// nothing was measured, so that errors count alike. What cannot be estimated
// because nothing reads it is no loss either.
func (b *builder) sensitivity(it *qplan.Item) float64 {
	switch {
	case graph.Role(it.Role).IsMTP(): // the logits do not depend on it
		return 0
	case b.o.Stats == nil:
		return 1
	}
	if s, ok := b.o.Stats.Sensitivity[it.Name]; ok {
		return s
	}
	return 1
}

// Undominated returns candidates by rising bytes and falling loss, without
// those that another beats in both.
func Undominated(list []qplan.Candidate) []qplan.Candidate {
	sorted := slices.Clone(list)
	slices.SortStableFunc(sorted, func(a, b qplan.Candidate) int {
		switch {
		case a.Bytes != b.Bytes:
			return int(min(max(a.Bytes-b.Bytes, -1), 1))
		case a.Loss < b.Loss:
			return -1
		case a.Loss > b.Loss:
			return 1
		}
		return 0
	})
	out := sorted[:0]
	for _, c := range sorted {
		if len(out) == 0 || c.Loss < out[len(out)-1].Loss {
			out = append(out, c)
		}
	}
	return slices.Clip(out)
}

// Rows and matrices that errors are estimated from.
const (
	sampledTiles    = 16 // of 16 rows, evenly spread
	sampledMatrices = 4  // of a stack, evenly spread
)

// errors estimates the relative calibrated error of each recipe, 0 for what
// stays as it is, infinity for one of several that cannot hold weights so large.
func (b *builder) errors(ctx context.Context, t *formats.Tensor, recipes []plan.Recipe) ([]float64, error) {
	out := make([]float64, len(recipes))
	if len(recipes) == 1 {
		switch r := recipes[0]; r.Form {
		case "":
			return out, nil
		case plan.FormDense:
		default:
			var err error
			out[0], err = b.formed(ctx, t, r)
			return out, formats.Of(t.Name, err)
		}
	}
	n, k := matrixOf(t.Shape)
	rows, _ := t.Rows()
	stack := int(rows) / max(n, 1)
	count := min(stack, sampledMatrices)
	for s := range count {
		matrix := (2*s + 1) * stack / (2 * count)
		expert := -1
		if len(t.Shape) > 2 {
			expert = matrix
		}
		in, err := b.moments(t.Name, expert)
		if err != nil {
			return nil, err
		}
		w, err := sample(t, matrix, n, k)
		if err != nil {
			return nil, err
		}
		found, err := b.estimates(ctx, t, recipes, w, k, in)
		if err != nil {
			return nil, err
		}
		for j, e := range found {
			out[j] += e / float64(count)
		}
	}
	return out, nil
}

// estimates returns what each recipe leaves of rows w[..][k], recipe by recipe side by side.
func (b *builder) estimates(ctx context.Context, t *formats.Tensor, recipes []plan.Recipe, w []float32, k int, in *fit.Input) ([]float64, error) {
	o := fit.Options{Seed: b.o.Seed, Effort: b.o.Effort, Threads: b.o.Threads, Lookup: b.readers[t.Name] == nil}
	out, errs := make([]float64, len(recipes)), make([]error, len(recipes))
	var wait sync.WaitGroup
	for j, recipe := range recipes {
		if recipe.Kept() {
			continue
		}
		wait.Go(func() {
			b.working <- struct{}{}
			defer func() { <-b.working }()
			e, err := fit.Estimate(ctx, w, len(w)/k, k, recipe.Code, in, o)
			if v, ok := errors.AsType[*fit.ValueError](err); ok && v.TooLarge && len(recipes) > 1 {
				e, err = math.Inf(1), nil
			}
			out[j], errs[j] = e, formats.Of(t.Name, err)
		})
	}
	wait.Wait()
	return out, cmp.Or(errs...)
}

// formed returns the relative error of a recipe with factors that somebody chose, by
// fitting it: to the middle matrix of a stack, unless the stack is fitted as a whole.
func (b *builder) formed(ctx context.Context, t *formats.Tensor, recipe plan.Recipe) (float64, error) {
	n, k := matrixOf(t.Shape)
	first, rows := int64(0), int64(n)
	all, _ := t.Rows()
	matrix := int(all) / n / 2
	o := fit.Options{Seed: b.o.Seed, Effort: b.o.Effort, Threads: b.o.Threads, Lookup: b.readers[t.Name] == nil}
	if recipe.Whole() {
		rows = all
	} else {
		first = int64(matrix * n)
	}
	expert := -1
	if len(t.Shape) > 2 && rows < all {
		expert = matrix
	}
	in, err := b.moments(t.Name, expert)
	if err != nil {
		return 0, err
	}
	w := make([]float32, rows*int64(k))
	if err := form.DecodeRows(w, t, first, rows); err != nil {
		return 0, err
	}
	var r fit.Result
	if recipe.Whole() {
		each := func(i int) (*fit.Input, error) { return b.moments(t.Name, i) }
		r, err = factored.Tensor(ctx, t.Name, w, t.Shape, recipe, in, each, o)
	} else {
		r, err = factored.Matrix(ctx, t.Name, w, n, k, recipe, in, o)
	}
	if err != nil || r.Reference == 0 {
		return 0, err
	}
	return r.Error / r.Reference, nil
}

// moments returns what a tensor's errors are weighed by, nil where they count
// alike.
func (b *builder) moments(name string, expert int) (*fit.Input, error) {
	return b.measured.Input(b.input(name), expert)
}

// sample reads tiles of rows of a matrix of a stack, all of a small one.
func sample(t *formats.Tensor, matrix, n, k int) ([]float32, error) {
	first := int64(matrix) * int64(n)
	const tile = scheme.TCQTile
	if n <= sampledTiles*tile {
		w := make([]float32, n*k)
		return w, form.DecodeRows(w, t, first, int64(n))
	}
	w := make([]float32, sampledTiles*tile*k)
	for i := range sampledTiles {
		at := (2*i + 1) * (n / tile) / (2 * sampledTiles) * tile
		if err := rows(w[i*tile*k:][:tile*k], t, first, at, n, k); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// rows reads rows of a matrix from at on. Those of a source in trellis codes come
// with what they are rotated with.
func rows(dst []float32, t *formats.Tensor, first int64, at, n, k int) error {
	if t.Scheme != "tcq" {
		return form.DecodeRows(dst, t, first+int64(at), int64(len(dst)/k))
	}
	const whole = scheme.TCQMaxRotate
	from, to := at/whole*whole, min((at+len(dst)/k+whole-1)/whole*whole, n)
	w := make([]float32, (to-from)*k)
	if err := form.DecodeRows(w, t, first+int64(from), int64(to-from)); err != nil {
		return err
	}
	copy(dst, w[(at-from)*k:])
	return nil
}
