package exec

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/tensor"
)

// FuzzGraph executes whatever graph a package might hold: it is refused, or it
// runs; it never panics. Tensors are as large as the graph says, up to a
// limit, as in a file they would have to be.
func FuzzGraph(f *testing.F) {
	for _, c := range tinies() {
		p, err := json.Marshal(c.graph)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		var g model.Graph
		if json.Unmarshal(p, &g) != nil || len(g.Blocks) > 4 {
			return
		}
		shapes := map[string]model.Weight{}
		for _, w := range g.Weights() {
			shapes[w.Name] = w
		}
		total := int64(0)
		source := func(name string) formats.Tensor {
			w := shapes[name]
			n, err := tensor.Elements(w.Shape)
			if total += n; err != nil || n < 0 || total > 1<<20 || total < 0 {
				return formats.Tensor{Name: name, Shape: []int64{0, 0}, Scheme: "f32"}
			}
			x, _ := store(t, w, "f32", make([]float32, n))
			return x
		}
		e, err := newExecutor("fuzzed", &g, source, Options{Threads: 1, Context: 40})
		if err != nil {
			return
		}
		defer e.Close()
		s, err := e.NewSequence()
		if err != nil {
			return
		}
		ids := make([]int32, 10)
		if err := s.Prefill(context.Background(), ids, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Step(0); err != nil {
			t.Fatal(err)
		}
	})
}
