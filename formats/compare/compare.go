// Package compare tells two models apart, tensor by tensor.
//
// In: two opened models of one graph, in any containers. Out: a [Report] of
// plain data: how each tensor is stored in either, its bytes, and how far its
// weights lie apart.
//
// Memory is at most one tensor of each model for every thread. Sums run over
// rows in one order, so the figures do not depend on the number of threads.
package compare

import (
	"context"
	"math"
	"runtime"

	"golang.org/x/sync/errgroup"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/form"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/model"
)

// A Report is the difference of two models.
type Report struct {
	A       Side     `json:"a"`
	B       Side     `json:"b"`
	Tensors []Tensor `json:"tensors"` // those that both have, in the order of a
	OnlyA   []string `json:"only_a"`
	OnlyB   []string `json:"only_b"`
}

// A Side is a model as a whole.
type Side struct {
	Path  string  `json:"path"`
	Bytes int64   `json:"tensor_bytes"` // of the graph's tensors
	BPW   float64 `json:"bpw"`
}

// A Tensor is one that both models have.
type Tensor struct {
	Name    string  `json:"name"`
	Role    string  `json:"role"`
	Shape   []int64 `json:"shape"`
	RecipeA string  `json:"recipe_a"`
	RecipeB string  `json:"recipe_b"`
	BytesA  int64   `json:"bytes_a"`
	BytesB  int64   `json:"bytes_b"`
	// Difference is the root of the sum of squared differences over that of
	// a's squares; 0 where all weights are equal. Nil where it was not asked
	// for.
	Difference *float64 `json:"difference,omitempty"`
}

// Changed reports whether a tensor is stored otherwise, or holds other weights.
func (t *Tensor) Changed() bool {
	return t.RecipeA != t.RecipeB || t.BytesA != t.BytesB || t.Difference != nil && *t.Difference != 0
}

// Options say what to look at.
type Options struct {
	Weights bool // read them; false: how they are stored alone
	Threads int  // 0: all
	// Progress is called with weights read and their total; nil: nobody.
	Progress func(done, total int64)
}

// Run compares. Tensors of one name and different shapes are a
// [formats.UnsupportedError]: these are different models. Other errors are
// those of reading, and the context's.
func Run(ctx context.Context, a, b *model.Model, o Options) (*Report, error) {
	if o.Threads <= 0 {
		o.Threads = runtime.GOMAXPROCS(0)
	}
	r := &Report{A: Side{Path: a.Path}, B: Side{Path: b.Path}, Tensors: []Tensor{}, OnlyA: []string{}, OnlyB: []string{}}
	inB := map[string]graph.Weight{}
	for _, w := range b.Graph.Weights() {
		inB[w.Name] = w
		t := b.Tensor(w.Name)
		r.B.Bytes += t.Size()
	}
	for _, w := range a.Graph.Weights() {
		t := a.Tensor(w.Name)
		r.A.Bytes += t.Size()
		other, ok := inB[w.Name]
		if !ok {
			r.OnlyA = append(r.OnlyA, w.Name)
			continue
		}
		delete(inB, w.Name)
		if err := sameShape(b.Path, &w, &other); err != nil {
			return nil, err
		}
		u := b.Tensor(w.Name)
		r.Tensors = append(r.Tensors, Tensor{Name: w.Name, Role: string(w.Role), Shape: w.Shape,
			RecipeA: form.Describe(&t), RecipeB: form.Describe(&u), BytesA: t.Size(), BytesB: u.Size()})
	}
	for _, w := range b.Graph.Weights() {
		if _, left := inB[w.Name]; left {
			r.OnlyB = append(r.OnlyB, w.Name)
		}
	}
	r.A.BPW, r.B.BPW = bpw(r.A.Bytes, a.Graph.Params()), bpw(r.B.Bytes, b.Graph.Params())
	if !o.Weights {
		return r, nil
	}
	return r, r.weights(ctx, a, b, o)
}

func bpw(bytes, params int64) float64 { return 8 * float64(bytes) / float64(max(1, params)) }

func sameShape(file string, a, b *graph.Weight) error {
	same := len(a.Shape) == len(b.Shape)
	for i := 0; same && i < len(a.Shape); i++ {
		same = a.Shape[i] == b.Shape[i]
	}
	if same {
		return nil
	}
	e := formats.Unsupportedf(file, a.Name, "comparing shape %v with %v", b.Shape, a.Shape)
	e.Hint = "these are not two packages of one model"
	return e
}

// weights fills in the differences.
func (r *Report) weights(ctx context.Context, a, b *model.Model, o Options) error {
	var done, total int64
	for i := range r.Tensors {
		t := a.Tensor(r.Tensors[i].Name)
		total += t.Elements()
	}
	for i := range r.Tensors {
		t, u := a.Tensor(r.Tensors[i].Name), b.Tensor(r.Tensors[i].Name)
		d, err := difference(ctx, &t, &u, o.Threads)
		if err != nil {
			return err
		}
		r.Tensors[i].Difference = &d
		if done += t.Elements(); o.Progress != nil {
			o.Progress(done, total)
		}
	}
	return nil
}

// chunk is how many rows are summed at a time, whatever the threads: a multiple
// of what any scheme decodes together.
const chunk = 128

// sums are those of squares of a run of rows.
type sums struct{ difference, reference float64 }

// difference reads two tensors side by side.
func difference(ctx context.Context, a, b *formats.Tensor, threads int) (float64, error) {
	n, _ := a.Rows()
	parts := make([]sums, (n+chunk-1)/chunk)
	g, ctx := errgroup.WithContext(ctx)
	for w := range min(threads, len(parts)) {
		g.Go(func() error { return differ(ctx, a, b, parts, w, threads) })
	}
	if err := g.Wait(); err != nil {
		return 0, err
	}
	var sum sums
	for _, p := range parts {
		sum.difference += p.difference
		sum.reference += p.reference
	}
	switch {
	case sum.difference == 0:
		return 0, nil
	case sum.reference == 0:
		return 1, nil // weights where a has none
	}
	return math.Sqrt(sum.difference / sum.reference), nil
}

// differ sums every step-th run of rows from the first on.
func differ(ctx context.Context, a, b *formats.Tensor, parts []sums, first, step int) error {
	ma, err := form.Open(a)
	if err != nil {
		return err
	}
	mb, err := form.Open(b)
	if err != nil {
		return err
	}
	n, k := a.Rows()
	x, y := make([]float32, k), make([]float32, k)
	for i := first; i < len(parts); i += step {
		if err := ctx.Err(); err != nil {
			return err
		}
		for row := int64(i) * chunk; row < min(n, int64(i+1)*chunk); row++ {
			ma.DecodeRow(x, row)
			mb.DecodeRow(y, row)
			parts[i].add(x, y)
		}
	}
	return nil
}

func (s *sums) add(x, y []float32) {
	for j, v := range x {
		d := float64(v) - float64(y[j])
		s.difference += d * d
		s.reference += float64(v) * float64(v)
	}
}
