package exec

import (
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/nstf/nstf/kernels/cpu"
)

// Int8 activations cost a little and only where they are used: logits move,
// stay near those of exact activations, depend on no thread, and prefill and
// steps differ by no more than either does from the exact ones.
func TestIntegerActivations(t *testing.T) {
	processorOnly(t, "levels of SIMD")
	dir := shared(t)
	path := filepath.Join(dir, "tiny-llama-Q4_K_M.gguf")
	ids := readIDs(t, filepath.Join(dir, "tiny-llama/reference/logits_ids.json"))
	exact := allLogits(t, sequence(t, open(t, path, Options{Exact: true})), ids)
	for _, level := range cpu.Levels() {
		if testing.Short() && level != cpu.Best().Level() {
			continue // plain Go takes most of the time, on few threads or many
		}
		set, err := cpu.ForLevel(level)
		if err != nil {
			t.Fatal(err)
		}
		few, _ := set.Integer("q4_k").Tuned()
		var first [][]float32
		for _, threads := range []int{1, 2, 3} {
			s := sequence(t, open(t, path, Options{KV: "f32", Level: level.String(), Threads: threads}))
			got := allLogits(t, s, ids)
			s.Reset()
			steps := stepLogits(t, s, ids)
			if first == nil {
				first = got
			}
			for r := range got {
				if !slices.Equal(got[r], first[r]) {
					t.Fatalf("%v: row %d differs between 1 and %d threads", level, r, threads)
				}
				for _, x := range [][]float32{got[r], steps[r]} {
					if e := relativeError(x, exact[r]); e > 0.03 || few && e == 0 {
						t.Errorf("%v: row %d is off by %.4f of its size", level, r, e)
					}
				}
			}
		}
	}
}

// relativeError is the root mean square of got-want by that of want around its
// mean: a shift of all logits means nothing.
func relativeError(got, want []float32) float64 {
	var mean, shift, sum, size float64
	for i, v := range want {
		mean += float64(v) / float64(len(want))
		shift += float64(got[i]-v) / float64(len(want))
	}
	for i, v := range want {
		sum += math.Pow(float64(got[i]-v)-shift, 2)
		size += math.Pow(float64(v)-mean, 2)
	}
	return math.Sqrt(sum / size)
}
