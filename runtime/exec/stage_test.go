package exec_test

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/runtime/device"
	"github.com/nstf/nstf/runtime/exec"
)

// TestStages walks models block by block and wants, at every linear, the very
// inputs that the whole model has.
func TestStages(t *testing.T) {
	for _, name := range []string{"llama-31", "gemma3", "gptj", "gpt2", "mixtral"} {
		t.Run(name, func(t *testing.T) {
			m, err := model.Open("../../testdata/micro/" + name)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			tokens := make([]int32, 21)
			for i := range tokens {
				tokens[i] = int32(i*37) % int32(m.Graph.Vocab)
			}
			whole, parts := map[string]float64{}, map[string]float64{}
			record := func(into map[string]float64) device.Hook {
				return func(in device.Input) {
					if in.Block < 0 {
						return // the head
					}
					var sum float64
					for i, v := range in.X {
						sum += float64(v) * float64(i%7+1)
					}
					into[fmt.Sprint(in.Block, in.Linear.Weight, in.Expert)] = sum
				}
			}
			ex, err := exec.New(m, exec.Options{Context: 32, Exact: true, Hook: record(whole)})
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
			x := make([]float32, len(tokens)*int(m.Graph.Width))
			for i := range m.Graph.Blocks {
				st, err := exec.NewStage(m.Path, m.Graph, m.Tensor, i, 1, exec.Options{Exact: true, Hook: record(parts)})
				if err != nil {
					t.Fatal(err)
				}
				if i == 0 {
					err = st.Embed(x, tokens)
				}
				if err == nil {
					err = st.Transform(x)
				}
				if err == nil && i == len(m.Graph.Blocks)-1 {
					err = endsLike(st, x, logits)
				}
				if err != nil {
					t.Fatal(err)
				}
				st.Close()
			}
			if len(parts) == 0 {
				t.Fatal("the hook saw nothing")
			}
			for key, want := range whole {
				if got, ok := parts[key]; !ok || got != want {
					t.Errorf("%s: %g, in the whole model %g", key, got, want)
				}
			}
		})
	}
}

// endsLike compares the logits of the last of x[T][D] with those wanted.
func endsLike(s *exec.Stage, x, want []float32) error {
	if err := s.Normalize(x); err != nil {
		return err
	}
	v := len(want)
	got := make([]float32, 21*v)
	if err := s.Head(got, x); err != nil {
		return err
	}
	for i, w := range want {
		if g := got[20*v+i]; math.Abs(float64(g-w)) > 1e-4*(1+math.Abs(float64(w))) {
			return fmt.Errorf("logit %d is %g, of the whole model %g", i, g, w)
		}
	}
	return nil
}
