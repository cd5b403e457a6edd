package graph

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"sort"
)

// Difference names the first constant in which two graphs would compute
// something else, "" where there is none. Labels, whether a norm's offset lies in
// its weights, and how a delta net's decays and heads are stored do not count;
// rotary embeddings are compared by their angles.
func Difference(a, b *Graph) string {
	for i := range max(len(a.Ropes), len(b.Ropes)) {
		if i >= len(a.Ropes) || i >= len(b.Ropes) {
			return fmt.Sprintf("there are %d rotary embeddings, not %d", len(a.Ropes), len(b.Ropes))
		}
		if what := RopeDifference(&a.Ropes[i], &b.Ropes[i]); what != "" {
			return what
		}
	}
	return valueDifference("", plainGraph(a), plainGraph(b))
}

// plainGraph returns a graph's JSON without what Difference leaves out.
func plainGraph(g *Graph) any {
	c := *g
	c.Arch, c.Ropes = "", nil
	p, err := json.Marshal(&c)
	if err != nil {
		panic(err) // a graph is plain data
	}
	var v any
	if err := json.Unmarshal(p, &v); err != nil {
		panic(err)
	}
	return withoutStored(v)
}

func withoutStored(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for _, key := range []string{"offset", "tiled", "decay_log"} {
			delete(v, key)
		}
		for _, e := range v {
			withoutStored(e)
		}
	case []any:
		for _, e := range v {
			withoutStored(e)
		}
	}
	return v
}

func valueDifference(at string, a, b any) string {
	switch x := a.(type) {
	case map[string]any:
		y, ok := b.(map[string]any)
		if !ok {
			break
		}
		keys := map[string]bool{}
		for k := range x {
			keys[k] = true
		}
		for k := range y {
			keys[k] = true
		}
		sorted := make([]string, 0, len(keys))
		for k := range keys {
			sorted = append(sorted, k)
		}
		sort.Strings(sorted)
		for _, k := range sorted {
			if what := valueDifference(at+"."+k, x[k], y[k]); what != "" {
				return what
			}
		}
		return ""
	case []any:
		y, ok := b.([]any)
		if !ok || len(x) != len(y) {
			break
		}
		for i := range x {
			if what := valueDifference(fmt.Sprintf("%s[%d]", at, i), x[i], y[i]); what != "" {
				return what
			}
		}
		return ""
	case float64:
		if y, ok := b.(float64); ok && Near(x, y) {
			return ""
		}
	}
	if reflect.DeepEqual(a, b) {
		return ""
	}
	return fmt.Sprintf("%s is %v, not %v", at[1:], show(a), show(b))
}

func show(v any) any {
	if v == nil {
		return "absent"
	}
	return v
}

// Near allows for one rounding to float32 on the way.
func Near(a, b float64) bool { return math.Abs(a-b) <= 2e-7*math.Max(math.Abs(a), math.Abs(b)) }

func RopeDifference(a, b *Rope) string {
	if a.Style != b.Style || a.Dim != b.Dim {
		return fmt.Sprintf("rotary pairs are %s of %d, not %s of %d", a.Style, a.Dim, b.Style, b.Dim)
	}
	for _, n := range []int64{1, a.Scaling.Original, a.Scaling.Original + 1, 4 * max(a.Scaling.Original, 1024)} {
		fa, sa := a.Frequencies(n)
		fb, sb := b.Frequencies(n)
		for i := range fa {
			if math.Abs(float64(fa[i]-fb[i])) > 4e-7*math.Abs(float64(fa[i])) {
				return fmt.Sprintf("rotary pair %d turns by %v, not %v (scaling %q)", i, fa[i], fb[i], a.Scaling.Kind)
			}
		}
		if math.Abs(float64(sa-sb)) > 4e-7*float64(sa) {
			return fmt.Sprintf("rotary embeddings are scaled by %v, not %v", sa, sb)
		}
	}
	return ""
}
