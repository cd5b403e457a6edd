package arch

import (
	"bytes"
	"slices"
	"testing"

	"github.com/nstf/nstf/formats/gguf"
	"github.com/nstf/nstf/formats/graph"
)

// Which layers have a window: by rule, by the pattern's length, or one by one.
func TestGGUFWindowPattern(t *testing.T) {
	for _, c := range []struct {
		value gguf.Value
		want  []int64
	}{
		{nil, []int64{9, 9, 0, 9, 9, 0}},
		{uint32(2), []int64{9, 0, 9, 0, 9, 0}},
		{uint32(1), []int64{0, 0, 0, 0, 0, 0}},
		{uint32(0), []int64{9, 9, 9, 9, 9, 9}},
		{[]bool{true, false, false, false, false, true}, []int64{9, 0, 0, 0, 0, 9}},
		{[]bool{true, false}, nil},
		{"two", nil},
	} {
		values := map[string]gguf.Value{}
		if c.value != nil {
			values["attention.sliding_window_pattern"] = c.value
		}
		k := keysOf(t, "gemma3", values)
		window := k.slidingLayers(9, 6, 3)
		if k.err != nil || c.want == nil {
			if (k.err == nil) != (c.want != nil) {
				t.Errorf("%v: error %v", c.value, k.err)
			}
			continue
		}
		var got []int64
		for layer := range 6 {
			got = append(got, window(layer))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%v: %v", c.value, got)
		}
	}
}

// keysOf returns keys of an architecture's metadata.
func keysOf(t *testing.T, name string, values map[string]gguf.Value) *keys {
	t.Helper()
	kvs := []gguf.KV{{Key: "general.architecture", Value: name}}
	for key, v := range values {
		kvs = append(kvs, gguf.KV{Key: name + "." + key, Value: v})
	}
	w, err := gguf.NewWriter(kvs, nil)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if _, err := w.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Parse("x.gguf", b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return newKeys(f, name, nil)
}

// Sections of a rotary embedding that turn every pair by a text's position are read,
// others are refused.
func TestGGUFSections(t *testing.T) {
	for _, c := range []struct {
		list gguf.Value
		dim  int64
		good bool
	}{
		{[]int32{11, 11, 10, 0}, 64, true},
		{[]int32{1, 1, 0, 0}, 4, true},
		{[]int32{2, 1, 1, 0}, 8, true},
		{[]int32{11, 11, 10, 0}, 128, true}, // from the front again
		{[]int32{32, 0, 0, 0}, 64, false},
		{[]int32{1, 1, 0, 1}, 6, false},
		{[]int32{11, 11, 10}, 64, false},
		{[]int32{0, 0, 0, 0}, 64, false},
		{nil, 64, false},
	} {
		values := map[string]gguf.Value{}
		if list, ok := c.list.([]int32); ok {
			values["rope.dimension_sections"] = list
		}
		k := keysOf(t, "qwen35", values)
		k.sections(&decoder{ropes: []graph.Rope{{Dim: c.dim}}})
		if (k.err == nil) != c.good {
			t.Errorf("%v of %d: error %v", c.list, c.dim, k.err)
		}
	}
}

// Which layers have attention: those that the list does not name, or every n-th.
func TestGGUFRecurrentLayers(t *testing.T) {
	for _, c := range []struct {
		values map[string]gguf.Value
		want   []bool
	}{
		{nil, []bool{false, false, false, true, false}},
		{map[string]gguf.Value{"full_attention_interval": uint32(2)}, []bool{false, true, false, true, false}},
		{map[string]gguf.Value{"full_attention_interval": uint32(0)}, nil},
		{map[string]gguf.Value{"attention.recurrent_layers": []bool{false, true, true, false, true, false}}, []bool{true, false, false, true, false}},
		{map[string]gguf.Value{"attention.recurrent_layers": []bool{false, true}}, nil},
		{map[string]gguf.Value{"attention.recurrent_layers": uint32(3)}, nil},
	} {
		k := keysOf(t, "qwen35", c.values)
		attends, got := k.attending(5), []bool{}
		for layer := range 5 {
			got = append(got, attends(layer))
		}
		if (k.err == nil) != (c.want != nil) || c.want != nil && !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, error %v", c.values, got, k.err)
		}
	}
}
