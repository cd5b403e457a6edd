package pipeline

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/nstf/nstf/calibrate"
	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/plan"
	"github.com/nstf/nstf/quantize/factored"
	"github.com/nstf/nstf/quantize/fit"
	"github.com/nstf/nstf/quantize/plan/candidates"
)

// Needs is what executing a plan takes.
type Needs struct {
	Memory int64 // anonymous memory at its peak; files are mapped or read in passing
	Disk   int64 // work folder and package, while both are there
	Device int64 // of an opened device: a stage, the sums of an input, hidden states that have room
}

// What does not depend on the model: the program, work space of kernels, rows
// of logits. Measured on models from 1 M to 1 B weights.
const baseMemory = 192 << 20

// hiddenNeed returns what is needed whatever is done: the program, and the hidden states
// of text that is walked.
func hiddenNeed(m *model.Model, o Options) (n Needs, walks bool) {
	n.Memory = baseMemory + loadedBytes(m)
	if len(o.Windows) == 0 || o.Parallel {
		return n, false
	}
	var tokens, near int64
	for _, w := range o.Windows {
		tokens += int64(len(w))
	}
	n.Device, near = deviceNeed(m, o, tokens)
	n.Disk = calibrate.Bytes(tokens, m.Graph.WidestRow())
	n.Memory += n.Disk - near
	return n, true
}

// loadedBytes returns what the weights of a stage take where they cannot be mapped from the
// disk: a block, or the embedding with the head.
func loadedBytes(m *model.Model) int64 {
	if len(m.Remote) == 0 {
		return 0
	}
	stages := map[int]int64{}
	var most int64
	for _, w := range m.Graph.Weights() {
		t := m.Tensor(w.Name)
		stages[w.Block] += t.Size()
		most = max(most, stages[w.Block])
	}
	return most
}

// Need returns what executing a plan takes, before anything is read.
func Need(m *model.Model, p *plan.Plan, o Options) Needs {
	g := m.Graph
	n, walks := hiddenNeed(m, o)
	r := run{m: m, p: p, o: o}
	gathered, twice := map[int]int64{}, twice(o)
	if walks {
		for i := range g.Blocks {
			gathered[i] = gatherBytes(&g.Blocks[i])
		}
		gathered[-1] = triangle(g.Head.In)
	}
	var peak int64
	most := map[int][]int64{} // that fits at once take, by block
	for _, w := range g.Weights() {
		t := m.Tensor(w.Name)
		if r.recipe(w.Name).Kept() {
			n.Disk += t.Size()
			continue
		}
		if was, ok := o.Reuse[w.Name]; ok && was.Fit.Recipe == r.recipe(w.Name) {
			n.Disk += was.Tensor.Size() // in the package alone
			continue
		}
		result := stored(&t, p, w.Role.Base() == graph.RoleEmbed)
		n.Disk += 2 * result
		most[w.Block] = append(most[w.Block], fitBytes(&t, result))
		if len(units(&t, r.recipe(w.Name))) > 1 {
			most[w.Block] = append(most[w.Block], fitBytes(&t, 0))
		}
		slices.SortFunc(most[w.Block], func(a, b int64) int { return cmp.Compare(b, a) })
		most[w.Block] = most[w.Block][:min(len(most[w.Block]), o.atOnce())]
		all := gathered[w.Block]
		for _, n := range most[w.Block] {
			all += n
		}
		peak = max(peak, twice*gathered[w.Block], all)
	}
	n.Memory += peak
	n.Memory += n.Memory / 8 // what was dropped and not collected yet
	return n
}

// deviceNeed returns what running text through blocks takes of an opened device, and the
// hidden states among it; 0 of the processor, or where the device fails.
func deviceNeed(m *model.Model, o Options, tokens int64) (all, near int64) {
	keep, err := keepOn(m, o.Windows, o.On)
	if err != nil || o.On == nil {
		return 0, 0
	}
	room, err := o.On.Room(int(m.Graph.WidestRow()), keep.Reserve)
	if err != nil {
		return 0, 0
	}
	near = calibrate.Bytes(min(tokens, room), m.Graph.WidestRow())
	return keep.Reserve + near, near
}

// stored returns the bytes of a tensor by a plan, whatever the plan says of them: it
// may have been edited.
func stored(t *formats.Tensor, p *plan.Plan, lookup bool) int64 {
	row, ok := p.Tensor(t.Name)
	if !ok || row.Recipe.Kept() || row.Recipe.Is(t.Scheme) {
		return t.Size()
	}
	x, err := factored.Describe(t.Name, t.Shape, row.Recipe, fit.Options{Seed: p.Seed, Lookup: lookup})
	if err != nil {
		return row.Bytes
	}
	return x.Size()
}

// CheckPlan refuses, before anything is read, a plan that cannot be executed on a
// model: one for another graph, or with a recipe that a tensor cannot be stored by,
// which is named with the plan's file.
func CheckPlan(file string, m *model.Model, p *plan.Plan) error {
	if err := p.Check(file, m.Graph); err != nil {
		return err
	}
	for _, w := range m.Graph.Weights() {
		row, _ := p.Tensor(w.Name)
		if row.Recipe.Kept() || row.Recipe.Is(m.Tensor(w.Name).Scheme) {
			continue
		}
		err := factored.Check(w.Name, w.Shape, row.Recipe)
		if err == nil {
			_, err = factored.Describe(w.Name, w.Shape, row.Recipe, fit.Options{Seed: p.Seed})
		}
		if err != nil {
			return formats.In(file, err)
		}
	}
	return nil
}

// twice returns how many times the sums of a block are held while they are made: those of a
// group, and of the groups before it where there are some.
func twice(o Options) int64 {
	return int64(min(2, len(calibrate.Keep{On: o.On}.Groups(o.Windows))-1))
}

// triangle returns the bytes of the sums of k features.
func triangle(k int64) int64 { return 8 * (k * (k + 1) / 2) }

// gatherBytes returns what the moments of a block take: of each input, and where
// experts read it of each expert besides.
func gatherBytes(b *graph.Block) (sum int64) {
	all, experts := map[string]bool{}, map[string]bool{}
	for _, p := range b.Parts(0) {
		l := p.Linear
		if l != nil && !all[l.Input] {
			all[l.Input] = true
			sum += triangle(l.In)
		}
		if p.Experts > 0 && !experts[l.Input] {
			experts[l.Input] = true
			sum += p.Experts * triangle(l.In)
		}
	}
	return sum
}

// fitBytes returns what fitting a tensor takes: its result, the moments of its
// input (a matrix in float64, beside it first the sums that it is made of, then
// two halves of one in float32: factors, and what of them answers errors; less the
// sums, which are counted as gathered), and the matrix, its rotation and its errors
// in float32 with two codings.
func fitBytes(t *formats.Tensor, result int64) int64 {
	_, k := t.Rows()
	n := t.Shape[len(t.Shape)-1]
	if len(t.Shape) > 1 {
		n = t.Shape[len(t.Shape)-2]
	}
	weights := min(n*k, max(maxChunk, chunkTile*k))
	return result + 12*k*k - triangle(k) + 14*weights
}

// room refuses a disk that has no room for the work and the package, before hours are
// spent: what an interrupted run left lies there already, so only a first run is asked.
func (f *flow) room(p *plan.Plan) error {
	if f.Resume || f.Merge {
		return nil
	}
	out, err := f.Out.Create(Need(f.m, p, f.options(f.stats)).Disk)
	if err != nil {
		return err
	}
	out.Abort()
	return nil
}

// leastNeed returns what quantizing takes at least, whatever will be planned: the
// moments of a block of the original, then to plan those of one input in float64,
// with their factors, and a sample of the rows that read it.
func leastNeed(m *model.Model, o Options) Needs {
	g := m.Graph
	n, _ := hiddenNeed(m, o)
	var peak int64
	if o.Stats == nil {
		for i := range g.Blocks {
			peak = max(peak, twice(o)*gatherBytes(&g.Blocks[i]))
		}
	}
	for _, w := range g.Weights() {
		if candidates.Quantized(g, &w) && (o.Stats != nil || len(o.Windows) > 0) {
			k := w.Shape[len(w.Shape)-1]
			peak = max(peak, 8*k*k)
		}
	}
	n.Memory += peak
	return n
}

// least are options by which less memory is needed.
func (o Options) least() Options {
	o.Alone = true
	return o
}

// check refuses a limit of memory that is too low; when says what was done.
func (n Needs) check(limit int64, when string) error {
	if limit <= 0 || n.Memory <= limit {
		return nil
	}
	e := formats.Unsupportedf("", "", "quantizing in %s of memory: about %s are needed", mib(limit), mib(n.Memory))
	e.Hint = "give fewer or shorter windows (--samples, --ctx), or more memory (--memory)"
	return fmt.Errorf("%s: %w", when, e)
}

// mib writes bytes, what is needed rounded up.
func mib(n int64) string {
	if n < 10<<20 {
		return fmt.Sprintf("%d bytes", n)
	}
	return fmt.Sprintf("%d MiB", (n+1<<20-1)>>20)
}
