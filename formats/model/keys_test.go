package model

import (
	"bytes"
	"slices"
	"testing"

	"github.com/nstf/nstf/formats/gguf"
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
		kvs := []gguf.KV{{Key: "general.architecture", Value: "gemma3"}}
		if c.value != nil {
			kvs = append(kvs, gguf.KV{Key: "gemma3.attention.sliding_window_pattern", Value: c.value})
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
		k := newKeys(f, "gemma3", nil)
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
