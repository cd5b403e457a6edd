package calibrate

import (
	"context"
	"path/filepath"
	"slices"
	"testing"

	"github.com/nstf/nstf/formats/model"
)

// TestLevel corrects what errors cost on short passages to what they cost on all
// of all windows.
func TestLevel(t *testing.T) {
	m, err := model.Open(filepath.Join("..", "testdata", "micro", "qwen3"))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var windows [][]int32
	for w := range int32(4) {
		ids := make([]int32, 480)
		for i := range ids { // the further in, the fewer tokens there are to tell apart
			ids[i] = (int32(i*i*7)%(481-int32(i)) + w*37) % int32(m.Graph.Vocab)
		}
		windows = append(windows, ids)
	}
	ctx, o := context.Background(), SensitivityOptions{Tokens: 4 * passage}
	o.fill()
	s, err := Measure(ctx, m, windows, o.Options)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	sum := func(all map[string]float64) (sum float64) {
		for _, v := range all {
			sum += v
		}
		return sum
	}
	few, err := apart(ctx, m, s, windows, o)
	if err != nil {
		t.Fatal(err)
	}
	level, err := measureLevel(ctx, m, s, windows, o, few)
	if err != nil {
		t.Fatal(err)
	}
	o.Tokens = 4 * 480
	all, err := apart(ctx, m, s, windows, o)
	if err != nil {
		t.Fatal(err)
	}
	want := sum(all) / sum(few)
	t.Logf("level %.3f, of all windows %.3f", level, want)
	if r := level / want; r < 0.95 || r > 1.05 {
		t.Errorf("level %.3f, all windows say %.3f", level, want)
	}
	if one, err := measureLevel(ctx, m, s, windows, o, all); one != 1 || err != nil {
		t.Errorf("where passages are all there is: %g, %v", one, err)
	}
}

func TestWholeWindows(t *testing.T) {
	for _, c := range []struct {
		windows, length, tokens int
		lengths, passages       []int
	}{
		{10, 400, 3 * 192, []int{400, 400, 400, 400, 400, 400}, []int{192, 0, 192, 0, 192, 0}},
		{3, 400, 2 * 192, []int{400, 400, 400}, []int{192, 192, 0}},
		{4, 100, 1000, []int{100, 100, 100, 100}, []int{100, 100, 100, 100}},
		{9, 5000, 192, []int{768, 768}, []int{192, 0}},
	} {
		windows := make([][]int32, c.windows)
		for i := range windows {
			windows[i] = make([]int32, c.length)
		}
		whole, passages := wholeWindows(windows, c.tokens)
		var lengths []int
		for _, w := range whole {
			lengths = append(lengths, len(w))
		}
		if !slices.Equal(lengths, c.lengths) || !slices.Equal(passages, c.passages) {
			t.Errorf("%+v: %v, %v", c, lengths, passages)
		}
	}
}

// TestSplit holds out windows from all parts of a text.
func TestSplit(t *testing.T) {
	for n, want := range map[int][]int32{1: nil, 2: {1}, 7: {3}, 16: {4, 12}, 27: {4, 13, 22}} {
		windows := make([][]int32, n)
		for i := range windows {
			windows[i] = []int32{int32(i)}
		}
		fit, held := Split(windows)
		var got []int32
		for _, w := range held {
			got = append(got, w...)
		}
		if !slices.Equal(got, want) || len(fit)+len(held) != n {
			t.Errorf("%d windows: %v held out and %d fitted to", n, got, len(fit))
		}
	}
}
