// Package layout counts the bytes of the package that a plan makes, before
// any of it is made: header, padding, attached files, plan and ledger.
//
// In: a model, what its package holds beside the tensors, and a plan. Out: the
// size of the file. A tensor's parts follow from its recipe by quantize/fit and
// formats/form, and their places by formats/nstf, which are the code that
// writes them. What is measured later is in the ledger: its figures are taken
// to be digits that do not compress, so that the file may turn out smaller by
// up to a page or two and not larger.
//
// A Layout is immutable and may be used by several goroutines.
package layout

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/ledger"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/nstf"
	"github.com/nstf/nstf/formats/plan"
	"github.com/nstf/nstf/formats/stats"
	"github.com/nstf/nstf/quantize/factored"
	"github.com/nstf/nstf/quantize/fit"
)

// A Layout knows a model's tensors and what else lies in its package.
type Layout struct {
	measure *nstf.Measure
	items   []nstf.Item
	model   *model.Model
	lookup  map[string]bool
	index   map[string]int
	seed    int64
	long    bool // the ledger says what is measured of keys and values
}

// New prepares to count packages of a model. made is the provenance of the
// package to come: its tool, flags, notes and sources beside the model, of
// which names, sizes and paths count; attached are files that are not the model's. Seed is
// that of the plan. Errors are those
// of [model.Model.Pack] and of looking at the sources.
func New(m *model.Model, made nstf.Provenance, seed int64, attached ...nstf.File) (*Layout, error) {
	meta, items, err := m.Pack()
	if err != nil {
		return nil, err
	}
	meta.Files = slices.DeleteFunc(meta.Files, func(f nstf.File) bool {
		return slices.Contains([]string{nstf.PlanFile, nstf.LedgerFile, nstf.AttentionFile, nstf.KVFile, nstf.ExpertsFile}, f.Name)
	})
	meta.Files = append(meta.Files, attached...)
	made.Sources = append(meta.Provenance.Sources, made.Sources...)
	made.Notes = append(meta.Provenance.Notes, made.Notes...)
	meta.Provenance = made.Spelled()
	l := &Layout{items: items, model: m, seed: seed, long: len(attached) > 0, lookup: map[string]bool{}, index: map[string]int{}}
	for i, it := range items {
		if !it.Passthrough {
			l.index[it.Name] = i
		}
	}
	if l.measure, err = nstf.NewMeasure(meta); err != nil {
		return nil, err
	}
	for _, w := range m.Graph.Weights() {
		l.lookup[w.Name] = w.Role.Base() == graph.RoleEmbed
	}
	return l, nil
}

// item returns what becomes of a tensor by a recipe.
func (l *Layout) item(it nstf.Item, r plan.Recipe) (nstf.Item, error) {
	if r.Kept() {
		return it, nil
	}
	var err error
	it.Tensor, err = factored.Describe(it.Name, it.Shape, r, fit.Options{Seed: l.seed, Lookup: l.lookup[it.Name]})
	return it, err
}

// Bytes returns the bytes of a tensor's parts by a recipe.
func (l *Layout) Bytes(name string, r plan.Recipe) (int64, error) {
	it, err := l.stored(name, r)
	return it.Size(), err
}

// Most implements quantize/plan.Package.
func (l *Layout) Most(name string, r plan.Recipe) (int64, error) {
	it, err := l.stored(name, r)
	if err != nil {
		return 0, err
	}
	return nstf.MostItemBytes(it), nil
}

func (l *Layout) stored(name string, r plan.Recipe) (nstf.Item, error) {
	i, ok := l.index[name]
	if !ok {
		return nstf.Item{}, fmt.Errorf("no tensor %q in the graph", name)
	}
	return l.item(l.items[i], r)
}

// Size implements quantize/plan.Package.
func (l *Layout) Size(p *plan.Plan) (int64, error) {
	recipes := make(map[string]plan.Recipe, len(p.Tensors))
	for _, t := range p.Tensors {
		recipes[t.Name] = t.Recipe
	}
	items := slices.Clone(l.items)
	for i := range items {
		if recipe, ok := recipes[items[i].Name]; ok && !items[i].Passthrough {
			var err error
			if items[i], err = l.item(items[i], recipe); err != nil {
				return 0, err
			}
		}
	}
	q := *p
	q.Predicted.Bytes = 1<<40 + 123456789 // as many digits as there can be
	files := []nstf.File{{Name: nstf.PlanFile, Data: q.Encode()}, {Name: nstf.LedgerFile, Data: expected(l.model, &q, l.long).Encode()}}
	if u := stats.ExpectedUses(l.model.Graph, strings.Repeat("text", 16), strings.Repeat("0123456789abcdef", 4)); u != nil {
		files = append(files, nstf.File{Name: nstf.ExpertsFile, Data: u.Encode()})
	}
	return l.measure.Size(items, files...)
}

// expected returns a ledger as long as the one to come: figures that are not
// known yet are digits that do not compress.
func expected(m *model.Model, p *plan.Plan, long bool) *ledger.Ledger {
	d := digits{state: 1}
	figure := func() *ledger.Figure { return &ledger.Figure{Mean: d.next(), SE: d.next()} }
	hash := strings.Repeat("0123456789abcdef", 4)
	out := &ledger.Ledger{
		Source: ledger.Source{Model: p.Source.Model, Hash: hash, Text: strings.Repeat("text", 16), TextHash: hash, Context: 1 << 20, Windows: 1 << 20,
			Held: strings.Repeat("text", 16), HeldCount: 1 << 20, Seed: p.Seed},
		Model: ledger.Model{Bytes: 1 << 40, BPW: d.next(), PredictedKLD: d.next(), KLD: figure(), Floor: figure(), Perplexity: figure(), Original: figure(), Top1: figure()},
	}
	for i := range m.Graph.Blocks {
		out.Blocks = append(out.Blocks, ledger.Block{Index: int64(i), Drift: d.next()})
	}
	for i := range len(m.Graph.Blocks) + 1 {
		saving := func() *ledger.Saving {
			return &ledger.Saving{Tensors: 10, Bytes: int64(1e12 * d.next()), Loss: d.next()}
		}
		l := ledger.Layer{Block: int64(i), Bytes: int64(1e12 * d.next()), Loss: d.next(), Bits: saving(), Factors: saving()}
		if long {
			l.KV, l.Pages = &ledger.KeptKV{Format: "f16", Bytes: d.next(), KLD: d.next()}, &ledger.PagesOf{Read: d.next(), KLD: d.next()}
		}
		out.Layers = append(out.Layers, l)
	}
	blocks := map[string]int{}
	for _, w := range m.Graph.Weights() {
		blocks[w.Name] = w.Block
	}
	for _, t := range p.Tensors {
		row := ledger.Tensor{Name: t.Name, Role: t.Role, Block: int64(blocks[t.Name]), Recipe: t.Recipe.String(), Bits: 8 * float64(t.Bytes) / float64(max(1, t.Elements())),
			Bytes: t.Bytes, Predicted: t.Error, Loss: t.Loss}
		if !t.Recipe.Kept() {
			row.Method, row.Obtained = fit.MethodFeedback, d.next()
		}
		if a := t.RunnerUp; a != nil {
			row.RunnerUp = &ledger.Alternative{Recipe: a.Recipe.String(), Bytes: a.Bytes, Loss: a.Loss}
		}
		out.Tensors = append(out.Tensors, row)
	}
	return out
}

// digits makes figures without a pattern.
type digits struct{ state uint64 }

func (d *digits) next() float64 {
	d.state = d.state*6364136223846793005 + 1442695040888963407 // Knuth's MMIX
	return 1e-5 + float64(d.state>>33)/(1<<33)/500
}
