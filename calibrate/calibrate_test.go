package calibrate_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/nstf/nstf/calibrate"
	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/stats"
)

func openMicro(t *testing.T, name string) *model.Model {
	t.Helper()
	m, err := checkpoint.Open("../testdata/micro/" + name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// TestMeasureThreads wants the same bits from one thread and from three.
func TestMeasureThreads(t *testing.T) {
	for _, name := range []string{"llama-31", "mixtral"} {
		m := openMicro(t, name)
		windows := [][]int32{{1, 5, 9, 13, 17, 21, 25}, {2, 40, 80, 120, 160}}
		var all [2]*stats.File
		for i, threads := range []int{1, 3} {
			s, err := calibrate.Measure(t.Context(), m, windows, calibrate.Options{Threads: threads})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			all[i] = s
		}
		if len(all[0].Inputs) < 5 || len(all[0].Inputs) != len(all[1].Inputs) {
			t.Fatalf("%s: %d inputs at one thread, %d at three", name, len(all[0].Inputs), len(all[1].Inputs))
		}
		for input := range all[0].Inputs {
			one, err := all[0].Moments(input, -1)
			if err != nil {
				t.Fatal(err)
			}
			if three, err := all[1].Moments(input, -1); err != nil || !slices.Equal(one, three) {
				t.Errorf("%s: %s differs between one thread and three (%v)", name, input, err)
			}
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
	all, err := calibrate.Windows{Context: 16}.Cut(t.Context(), tok, "t", texts)
	if err != nil {
		t.Fatal(err)
	}
	bos, has := tok.BOS()
	for _, w := range all {
		if len(w) != 16 || has && w[0] != bos {
			t.Fatalf("window %v", w)
		}
	}
	some, err := calibrate.Windows{Context: 16, Samples: 5, Seed: 3}.Cut(t.Context(), tok, "t", texts)
	if err != nil || len(some) != 5 {
		t.Fatalf("%d windows, %v", len(some), err)
	}
	again, _ := calibrate.Windows{Context: 16, Samples: 5, Seed: 3}.Cut(t.Context(), tok, "t", texts)
	other, _ := calibrate.Windows{Context: 16, Samples: 5, Seed: 4}.Cut(t.Context(), tok, "t", texts)
	if !slices.EqualFunc(some, again, slices.Equal[[]int32]) || slices.EqualFunc(some, other, slices.Equal[[]int32]) {
		t.Error("a seed does not decide on the windows")
	}
	var unsupported *formats.UnsupportedError
	if _, err := (calibrate.Windows{Context: 16, Samples: 10000}).Cut(t.Context(), tok, "t.txt", texts); !errors.As(err, &unsupported) || unsupported.Hint == "" || !strings.Contains(err.Error(), "t.txt") {
		t.Errorf("too little text: %v", err)
	}
	if _, err := (calibrate.Windows{Context: 1}).Cut(t.Context(), tok, "t", texts); has && err == nil {
		t.Error("windows without room for text were accepted")
	}
}
