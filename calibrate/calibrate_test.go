package calibrate_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/nstf/nstf/calibrate"
	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/runtime/device"
	"github.com/nstf/nstf/runtime/exec"
)

func openMicro(t *testing.T, name string) *model.Model {
	t.Helper()
	m, err := model.Open("../testdata/micro/" + name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// TestMoments holds what two windows leave to plain sums over the same inputs,
// at one and at three threads.
func TestMoments(t *testing.T) {
	for _, name := range []string{"llama-31", "mixtral"} {
		m := openMicro(t, name)
		windows := [][]int32{{1, 5, 9, 13, 17, 21, 25}, {2, 40, 80, 120, 160}}
		want := map[string][]float64{}
		tokens := map[string]int64{}
		owner := map[string]string{}
		plain := func(in device.Input) {
			l, k := in.Linear, int(in.Linear.In)
			if want[l.Input] == nil {
				want[l.Input], owner[l.Input] = make([]float64, k*k), l.Weight
			}
			if owner[l.Input] != l.Weight {
				return
			}
			tokens[l.Input] += int64(in.T)
			for r := range in.T {
				for i := range k {
					for j := range k {
						want[l.Input][i*k+j] += float64(in.X[r*k+i]) * float64(in.X[r*k+j])
					}
				}
			}
		}
		walk := func(hook device.Hook) {
			s, err := exec.NewStage(m.Path, m.Graph, m.Tensor, 0, len(m.Graph.Blocks), exec.Options{Threads: 1, Exact: true, Hook: hook})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			h, err := calibrate.NewHidden(context.Background(), s, int(m.Graph.Width), windows)
			if err == nil {
				err = h.Through(context.Background(), s, true)
			}
			if err == nil {
				err = h.Normalize(context.Background(), s, false)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		walk(plain)
		var first map[string]*calibrate.Moments
		for _, threads := range []int{1, 3} {
			g := calibrate.NewGatherer(threads)
			defer g.Close()
			walk(g.Hook)
			if len(g.Inputs) != len(want) || len(want) < 5 {
				t.Fatalf("%s: %d inputs, want %d", name, len(g.Inputs), len(want))
			}
			for input, moments := range g.Inputs {
				if moments.Tokens != tokens[input] {
					t.Errorf("%s: %s counts %d tokens, want %d", name, input, moments.Tokens, tokens[input])
				}
				mean, k := moments.Mean(), moments.K
				for i, v := range mean {
					w := want[input][i] / float64(max(tokens[input], 1))
					size := math.Sqrt(want[input][i/k*k+i/k] * want[input][i%k*k+i%k])
					if math.Abs(v-w) > 1e-6*size {
						t.Fatalf("%s: %s [%d][%d] is %g, want %g", name, input, i/k, i%k, v, w)
					}
				}
				if first != nil && !slices.Equal(mean, first[input].Mean()) {
					t.Errorf("%s: %s differs between one thread and three", name, input)
				}
			}
			first = g.Inputs
		}
	}
}

// TestCut cuts, chooses and refuses.
func TestCut(t *testing.T) {
	m := openMicro(t, "llama-31")
	tok, err := m.Tokenizer()
	if err != nil {
		t.Fatal(err)
	}
	texts := []string{strings.Repeat("some words of text ", 100), strings.Repeat("and more of them ", 100)}
	all, err := calibrate.Windows{Context: 16}.Cut(tok, "t", texts)
	if err != nil {
		t.Fatal(err)
	}
	bos, has := tok.BOS()
	for _, w := range all {
		if len(w) != 16 || has && w[0] != bos {
			t.Fatalf("window %v", w)
		}
	}
	some, err := calibrate.Windows{Context: 16, Samples: 5, Seed: 3}.Cut(tok, "t", texts)
	if err != nil || len(some) != 5 {
		t.Fatalf("%d windows, %v", len(some), err)
	}
	again, _ := calibrate.Windows{Context: 16, Samples: 5, Seed: 3}.Cut(tok, "t", texts)
	other, _ := calibrate.Windows{Context: 16, Samples: 5, Seed: 4}.Cut(tok, "t", texts)
	if !slices.EqualFunc(some, again, slices.Equal[[]int32]) || slices.EqualFunc(some, other, slices.Equal[[]int32]) {
		t.Error("a seed does not decide on the windows")
	}
	var unsupported *formats.UnsupportedError
	if _, err := (calibrate.Windows{Context: 16, Samples: 10000}).Cut(tok, "t.txt", texts); !errors.As(err, &unsupported) || unsupported.Hint == "" || !strings.Contains(err.Error(), "t.txt") {
		t.Errorf("too little text: %v", err)
	}
	if _, err := (calibrate.Windows{Context: 1}).Cut(tok, "t", texts); has && err == nil {
		t.Error("windows without room for text were accepted")
	}
}
