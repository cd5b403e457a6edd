package serve

import (
	"testing"

	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/runtime/device"
	"github.com/nstf/nstf/runtime/exec"
)

// A GPU has many places where they are small, and no more than suit its conversations where
// they are not.
func TestPlaces(t *testing.T) {
	for name, c := range map[string]struct {
		context int64
		o       exec.Options
		want    int
	}{
		"usual":                  {4096, exec.Options{Sequences: 8}, 136},
		"of many conversations":  {4096, exec.Options{Sequences: 100}, 206},
		"more are asked for":     {4096, exec.Options{Sequences: 8, Places: 300}, 300},
		"bytes":                  {4096, exec.Options{Sequences: 8, KV: "q8"}, 136},
		"codes":                  {4096, exec.Options{Sequences: 8, KV: "q4"}, 0},
		"a policy":               {4096, exec.Options{Sequences: 8, Policy: &device.Policy{}}, 0},
		"the longest of all":     {246_722, exec.Options{Sequences: 8}, 136},
		"one longer":             {246_723, exec.Options{Sequences: 8}, 135},
		"a million":              {1 << 20, exec.Options{Sequences: 8}, 31},
		"a million, of many":     {1 << 20, exec.Options{Sequences: 16}, 38},
		"a million, less served": {1 << 20, exec.Options{Sequences: 8, Context: 8192}, 136},
	} {
		if got := places(&graph.Graph{Context: c.context}, &c.o); got != c.want {
			t.Errorf("%s: %d places, want %d", name, got, c.want)
		}
	}
}
