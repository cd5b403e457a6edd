package exec

import (
	"math"
	"path/filepath"
	"slices"
	"testing"
)

// Hidden states behind the last norm are transformers', and to the bit the same wherever a
// text is cut.
func TestEmbed(t *testing.T) {
	var cases []struct {
		Model             string
		IDs               []int32
		Mean, Last, First []float64
	}
	readJSON(t, "../../testdata/embeddings/reference.json", &cases)
	if len(cases) < 10 {
		t.Fatalf("%d cases", len(cases))
	}
	name := ""
	var s *Sequence
	for _, c := range cases {
		if c.Model != name {
			name = c.Model
			s = sequence(t, open(t, filepath.Join("../../testdata/micro", name), Options{Exact: true, Threads: 1, Context: 56}))
		}
		states := func(cut, wanted int) (all [][]float32) {
			t.Helper()
			s.Reset()
			for rest := c.IDs; len(rest) > 0; {
				n := min(cut, len(rest))
				// Of a text that is cut the rows of all parts are wanted, or the last one.
				w := n
				if wanted < len(c.IDs) {
					w = 0
					if n == len(rest) {
						w = min(wanted, n)
					}
				}
				if err := s.Embed(rest[:n], w, func(row []float32) { all = append(all, slices.Clone(row)) }); err != nil {
					t.Fatal(err)
				}
				rest = rest[n:]
			}
			return all
		}
		all := states(len(c.IDs), len(c.IDs))
		if len(all) != len(c.IDs) {
			t.Fatalf("%s: %d rows of %d", c.Model, len(all), len(c.IDs))
		}
		mean := make([]float64, len(all[0]))
		for _, row := range all {
			for i, v := range row {
				mean[i] += float64(v)
			}
		}
		widen := func(row []float32) []float64 {
			out := make([]float64, len(row))
			for i, v := range row {
				out[i] = float64(v)
			}
			return out
		}
		for _, p := range []struct {
			name      string
			got, want []float64
		}{{"mean", mean, c.Mean}, {"last", widen(all[len(all)-1]), c.Last}, {"first", widen(all[0]), c.First}} {
			sum := 0.0
			for _, v := range p.got {
				sum += v * v
			}
			for i, v := range p.got {
				if d := math.Abs(v/math.Sqrt(sum) - p.want[i]); !(d < 2e-4) {
					t.Errorf("%s, %d tokens, %s: element %d is off by %g", c.Model, len(c.IDs), p.name, i, d)
					break
				}
			}
		}
		for _, cut := range []int{1, 5, 17} {
			for i, row := range states(cut, len(c.IDs)) {
				if !slices.Equal(row, all[i]) {
					t.Errorf("%s, %d tokens: row %d is another where the text is cut by %d", c.Model, len(c.IDs), i, cut)
					break
				}
			}
			if last := states(cut, 1); len(last) != 1 || !slices.Equal(last[0], all[len(all)-1]) {
				t.Errorf("%s, %d tokens: the last row alone is another where the text is cut by %d", c.Model, len(c.IDs), cut)
			}
		}
	}
}
