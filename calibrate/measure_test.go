package calibrate_test

import (
	"context"
	"testing"

	"github.com/nstf/nstf/calibrate"
	"github.com/nstf/nstf/formats/atomicfile"
	"github.com/nstf/nstf/formats/stats"
)

// TestMeasure finds every input of a model, and reads back what it writes.
func TestMeasure(t *testing.T) {
	for _, name := range []string{"llama-31", "mixtral", "gptj", "gemma4-e"} {
		m := openMicro(t, name)
		windows := [][]int32{{1, 5, 9, 13, 17, 21, 25}, {2, 40, 80, 120, 160}}
		f, err := calibrate.Measure(context.Background(), m, windows, calibrate.Options{Text: "dir/t.txt", Seed: 1<<64 - 1})
		if err != nil {
			t.Fatal(name, err)
		}
		for i := range m.Graph.Blocks {
			for _, l := range m.Graph.Blocks[i].Linears() {
				if in := f.Inputs[l.Input]; in == nil || in.Tokens == 0 || int64(in.K) != l.In {
					t.Errorf("%s: %s has no input", name, l.Weight)
				}
			}
		}
		if f.Inputs[m.Graph.Head.Input] == nil || f.Source.Text != "t.txt" || f.Source.Tokens != 12 {
			t.Errorf("%s: no head, or source %+v", name, f.Source)
		}
		path := t.TempDir() + "/a.nstats"
		if err := f.Write(atomicfile.Scratch(path)); err != nil {
			t.Fatal(err)
		}
		back, err := stats.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer back.Close()
		if err := back.Check(m); err != nil || back.Source != f.Source {
			t.Errorf("%s: %v, source %+v", name, err, back.Source)
		}
		want, _ := f.Inputs[m.Graph.Head.Input].Moments()
		got, err := back.Moments(m.Graph.Head.Input, -1)
		if err != nil || len(got) != len(want) || got[1] != want[1] || got[len(got)-1] != want[len(want)-1] {
			t.Errorf("%s: moments differ: %v", name, err)
		}
	}
}
