package exec

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
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
		var g graph.Graph
		if json.Unmarshal(p, &g) == nil && len(g.Blocks) <= 4 {
			tryGraph(t, &g)
		}
	})
}

// Every leaf of a graph's JSON, replaced by what it should not be.
func TestHostileGraphs(t *testing.T) {
	processorOnly(t, "a check before any device")
	hostile := []any{nil, -1, 0, 1, 2, 3, 7, 64, 1 << 20, int64(1) << 62, 0.5, -1e300, "", "rms", "0.q", []any{}, []any{1}, map[string]any{}, true}
	ran := 0
	for _, c := range tinies() {
		var tree any
		if err := json.Unmarshal(encoded(t, c.graph), &tree); err != nil {
			t.Fatal(err)
		}
		eachLeaf(&tree, func(leaf *any, set func()) {
			const place = "the leaf"
			was := *leaf
			*leaf = place
			set()
			front, behind, ok := bytes.Cut(encoded(t, tree), encoded(t, place))
			if !ok {
				t.Fatal("a leaf is not in its tree")
			}
			for _, v := range hostile {
				var g graph.Graph
				if json.Unmarshal(slices.Concat(front, encoded(t, v), behind), &g) == nil && tryGraph(t, &g) {
					ran++
				}
			}
			*leaf = was
			set()
		})
	}
	t.Logf("%d changed graphs were executed, the others refused", ran)
}

func encoded(t *testing.T, x any) []byte {
	t.Helper()
	p, err := json.Marshal(x)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// eachLeaf calls f for every number, string and boolean below x, and for x
// itself; set stores a changed leaf in its parent.
func eachLeaf(x *any, f func(leaf *any, set func())) {
	switch v := (*x).(type) {
	case map[string]any:
		for k, e := range v {
			eachLeaf(&e, func(leaf *any, set func()) { f(leaf, func() { set(); v[k] = e }) })
		}
	case []any:
		for i := range v {
			eachLeaf(&v[i], f)
		}
	default:
		f(x, func() {})
	}
}

// tryGraph executes a graph if it is accepted, and reports whether it was.
func tryGraph(t *testing.T, g *graph.Graph) bool {
	t.Helper()
	shapes := map[string]graph.Weight{}
	for _, w := range g.Weights() {
		shapes[w.Name] = w
	}
	total := int64(0)
	source := func(name string) formats.Tensor {
		w := shapes[name]
		n, err := tensor.Elements(w.Shape)
		if total += n; err != nil || total > 1<<16 || total < 0 {
			return formats.Tensor{Name: name, Shape: []int64{0, 0}, Scheme: "f32"}
		}
		x, _ := store(t, w, "f32", make([]float32, n))
		return x
	}
	e, err := newExecutor("fuzzed", g, source, Options{Threads: 1, Context: 40})
	if err != nil {
		return false
	}
	defer e.Close()
	s, err := e.NewSequence()
	if err != nil {
		return false
	}
	if err := s.Prefill(context.Background(), make([]int32, 10), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Step(0); err != nil {
		t.Fatal(err)
	}
	return true
}
