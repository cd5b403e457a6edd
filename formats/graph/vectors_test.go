package graph

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats"
)

// A vector is an entry of testdata/vectors/graphs.json, see section 11 of
// docs/graph.md.
type vector struct {
	What, Must, Name, Base, Error, At string
	Graph                             json.RawMessage
	Change                            map[string]json.RawMessage
	Tensors                           map[string][]int64
}

func readVectors(t *testing.T) []vector {
	t.Helper()
	data, err := os.ReadFile("../../testdata/vectors/graphs.json")
	if err != nil {
		t.Fatal(err)
	}
	var out []vector
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// loose decodes JSON with its numbers as they are written.
func loose(t *testing.T, data []byte) (v any) {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

var step = regexp.MustCompile(`[a-z_A-Z0-9]+`)

// changed returns the graph of base with what stands at some places replaced.
func changed(t *testing.T, base []byte, change map[string]json.RawMessage) []byte {
	t.Helper()
	g := loose(t, base)
	for _, place := range slices.Sorted(maps.Keys(change)) { // an object before what it holds
		at, way := g, step.FindAllString(place, -1)
		for _, s := range way[:len(way)-1] {
			if list, ok := at.([]any); ok {
				i, err := strconv.Atoi(s)
				if err != nil {
					t.Fatal(err)
				}
				at = list[i]
				continue
			}
			at = at.(map[string]any)[s]
		}
		last := way[len(way)-1]
		if string(change[place]) == `{"delete": true}` {
			delete(at.(map[string]any), last)
		} else {
			at.(map[string]any)[last] = loose(t, change[place])
		}
	}
	out, err := json.Marshal(g)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestVectors(t *testing.T) {
	named := map[string][]byte{}
	for _, v := range readVectors(t) {
		data := []byte(v.Graph)
		if v.Name != "" {
			named[v.Name] = data
		}
		if v.Base != "" {
			data = changed(t, named[v.Base], v.Change)
		}
		g, err := Parse(data)
		family := ""
		if f := (*formats.FormatError)(nil); errors.As(err, &f) {
			family = "format"
		} else if u := (*formats.UnsupportedError)(nil); errors.As(err, &u) {
			family = "unsupported"
		}
		if family != v.Error || err != nil && (family == "" || !strings.Contains(err.Error(), v.At)) {
			t.Errorf("%s: error %v, want %q at %s\n%s", v.What, err, v.Error, v.At, data)
		}
		if err != nil || v.Tensors == nil {
			continue
		}
		shapes := map[string][]int64{}
		for _, w := range g.Weights() {
			shapes[w.Name] = w.Shape
		}
		if !maps.EqualFunc(shapes, v.Tensors, slices.Equal) {
			t.Errorf("%s: tensors %v, want %v", v.What, shapes, v.Tensors)
		}
	}
}

// TestVectorsCoverRequirements holds vectors and page to one another. S1 and S2
// need tensors: formats/model and testdata/graph hold them.
func TestVectorsCoverRequirements(t *testing.T) {
	page, err := os.ReadFile("../../docs/graph.md")
	if err != nil {
		t.Fatal(err)
	}
	covered := map[string]bool{"S2": true}
	for _, v := range readVectors(t) {
		covered[v.Must] = true
		if !bytes.Contains(page, []byte("**"+v.Must+"**")) && !bytes.Contains(page, []byte("\n## "+v.Must+". ")) {
			t.Errorf("%s: %s is not in docs/graph.md", v.What, v.Must)
		}
	}
	for _, m := range regexp.MustCompile(`\*\*([A-Z][0-9]+)\*\*`).FindAllSubmatch(page, -1) {
		if !covered[string(m[1])] {
			t.Errorf("%s has no vector", m[1])
		}
	}
}
