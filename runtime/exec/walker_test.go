package exec_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/runtime/device"
	"github.com/nstf/nstf/runtime/exec"
)

// TestStages walks models block by block and wants, at every input, the sums that the
// whole model has, to the bit, and its logits.
func TestStages(t *testing.T) {
	for _, name := range []string{"llama-31", "gemma3", "gptj", "gpt2", "mixtral", "gemma4-dense", "gemma4-moe", "gemma4-e", "gemma4-mm"} {
		t.Run(name, func(t *testing.T) {
			m, err := checkpoint.Open("../../testdata/micro/" + name)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			tokens := make([]int32, 21)
			for i := range tokens {
				tokens[i] = int32(i*37) % int32(m.Graph.Vocab)
			}
			whole, parts := map[string][]float64{}, map[string][]float64{}
			d, wide := int(m.Graph.Width), int(m.Graph.WidestRow())
			x := device.HostRows{X: make([]float32, len(tokens)*wide), Width: wide}
			at, n := exec.Part{Rows: x, Width: wide}, len(m.Graph.Blocks)
			gather := func(into map[string][]float64, spans ...device.Span) {
				t.Helper()
				for _, span := range spans {
					walk, err := exec.NewWalker(m.Path, m.Graph, m.Tensor, span, exec.Options{Exact: true})
					if err != nil {
						t.Fatal(err)
					}
					err = walk.Gather(func(bool) error {
						if span.Embed {
							return walk.Embed(at, [][]int32{tokens})
						}
						return walk.Transform(at, at, [][]int32{tokens})
					}, func(got *device.Sums) error {
						into[fmt.Sprint(got.Input, got.Expert, got.Tokens)] = got.Squares
						return nil
					})
					if err != nil {
						t.Fatal(err)
					}
					walk.Close()
				}
			}
			gather(whole, device.Span{Hi: n, Embed: true})
			spans := []device.Span{{Hi: 1, Embed: true}}
			for i := 1; i < n; i++ {
				spans = append(spans, device.Block(i))
			}
			gather(parts, spans...)
			ex, err := exec.New(m, exec.Options{Context: 32, Exact: true})
			if err != nil {
				t.Fatal(err)
			}
			defer ex.Close()
			s, err := ex.NewSequence()
			if err != nil {
				t.Fatal(err)
			}
			logits, err := s.PrefillLast(context.Background(), tokens)
			if err != nil {
				t.Fatal(err)
			}
			for i := range tokens {
				copy(x.X[i*d:(i+1)*d], x.X[i*wide:])
			}
			if err := endsLike(m, x.X[:len(tokens)*d], logits); err != nil {
				t.Error(err)
			}
			if len(parts) != len(whole) || len(parts) == 0 {
				t.Fatalf("%d sums in parts, %d of the whole", len(parts), len(whole))
			}
			for key, want := range whole {
				if !slices.Equal(parts[key], want) {
					t.Errorf("%s: other sums than in the whole model", key)
				}
			}
		})
	}
}

// endsLike compares the logits of the last of x[T][D] with those wanted.
func endsLike(m *model.Model, x, want []float32) error {
	walk, err := exec.NewWalker(m.Path, m.Graph, m.Tensor, device.Head(m.Graph), exec.Options{Exact: true})
	if err != nil {
		return err
	}
	defer walk.Close()
	v := len(want)
	got := make([]float32, 21*v)
	if err := walk.Logits(got, x); err != nil {
		return err
	}
	for i, w := range want {
		if g := got[20*v+i]; math.Abs(float64(g-w)) > 1e-4*(1+math.Abs(float64(w))) {
			return fmt.Errorf("logit %d is %g, of the whole model %g", i, g, w)
		}
	}
	return nil
}
