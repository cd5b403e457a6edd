package calibrate

import (
	"context"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/kernels/cpu"
)

// TestLevel corrects what errors cost on short passages to what they cost on all
// of all windows.
func TestLevel(t *testing.T) {
	m, err := checkpoint.Open(filepath.Join("..", "testdata", "micro", "qwen3"))
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
	var mean, want float64
	var few, all map[string]float64
	const seeds = 16 // of which the noise of one says little
	for seed := range uint64(seeds) {
		o := o
		o.Seed = seed
		if few, err = apart(ctx, m, s, windows, o, map[string]float64{}); err != nil {
			t.Fatal(err)
		}
		level, err := measureLevel(ctx, m, s, windows, o, few, map[string]float64{})
		if err != nil {
			t.Fatal(err)
		}
		o.Tokens = 4 * 480
		if all, err = apart(ctx, m, s, windows, o, map[string]float64{}); err != nil {
			t.Fatal(err)
		}
		mean, want = mean+level/seeds, want+sum(all)/sum(few)/seeds
	}
	t.Logf("level %.3f, of all windows %.3f", mean, want)
	if r := mean / want; r < 0.95 || r > 1.05 {
		t.Errorf("level %.3f, all windows say %.3f", mean, want)
	}
	o.Tokens = 4 * 480
	if one, err := measureLevel(ctx, m, s, windows, o, all, map[string]float64{}); one != 1 || err != nil {
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

// TestDivergence holds divergences to float64: of logits that hardly differ, of a token that has nearly all, and of
// tokens that have nothing.
func TestDivergence(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, level := range cpu.Levels() {
		set, err := cpu.ForLevel(level)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct{ size, noise, top float64 }{{3, 0.01, 0}, {3, 1, 0}, {0.1, 0.1, 0}, {2, 0.01, 25}, {60, 5, 0}} {
			ref, x := make([]float32, 5000), make([]float32, 5000)
			for i := range ref {
				ref[i] = float32(c.size * r.NormFloat64())
				if i == 77 {
					ref[i] += float32(c.top)
				}
				x[i] = ref[i] + float32(c.noise*r.NormFloat64())
			}
			var want float64
			logSum := func(x []float32) (sum float64) {
				for _, v := range x {
					sum += math.Exp(float64(v))
				}
				return math.Log(sum)
			}
			own, other := logSum(ref), logSum(x)
			for i, v := range ref {
				want += math.Exp(float64(v)-own) * (float64(v) - own - float64(x[i]) + other)
			}
			got := divergence(set, make([]float32, len(x)), ref, x)
			if math.Abs(got-want) > 1e-6+1e-5*want {
				t.Errorf("%v, %+v: %g, want %g", level, c, got, want)
			}
		}
		odd := []float32{1, float32(math.NaN()), 2}
		if got := divergence(set, make([]float32, 3), []float32{1, 2, 3}, odd); !math.IsNaN(got) {
			t.Errorf("%v: %g of what is not a number", level, got)
		}
	}
}

// TestDisturb wants errors of the size that was asked for, told by a product with the moments, and the same from any
// number of threads.
func TestDisturb(t *testing.T) {
	const n, k = 300, 96
	r := rand.New(rand.NewPCG(5, 6))
	x := make([]float64, 2*k*k)
	for i := range x {
		x[i] = r.NormFloat64() * math.Pow(3, float64(i%k%4))
	}
	h := make([]float64, k*k)
	for i := range k {
		for j := range k {
			for s := range 2 * k {
				h[i*k+j] += x[s*k+i] * (x[s*k+j] + x[s*k+(j+1)%k]/2 + x[s*k+(j+k-1)%k]/2) / (2 * k)
			}
		}
	}
	for i := range k { // as moments are
		for j := range i {
			h[i*k+j] = (h[i*k+j] + h[j*k+i]) / 2
			h[j*k+i] = h[i*k+j]
		}
		h[i*k+i] *= 2
	}
	w := make([]float32, n*k)
	for i := range w {
		w[i] = float32(r.NormFloat64())
	}
	trace := func(x func(i int) float64) (sum float64) {
		for row := range n {
			for i := range k {
				for j := range k {
					sum += x(row*k+i) * h[i*k+j] * x(row*k+j)
				}
			}
		}
		return sum
	}
	for _, alone := range []bool{false, true} {
		var first []float32
		for _, threads := range []int{1, 2, 5} {
			pool := cpu.NewPool(threads)
			s := newShaper(k, h, cpu.Best(), pool)
			got := slices.Clone(w)
			s.disturb(got, 0.02, s.size(got), alone, draw{1, 2})
			pool.Close()
			if first == nil {
				first = got
			}
			if !slices.Equal(got, first) {
				t.Errorf("%d threads make other errors than one", threads)
			}
		}
		errors := trace(func(i int) float64 { return float64(first[i]) - float64(w[i]) })
		if r := errors / trace(func(i int) float64 { return float64(w[i]) }); math.Abs(r/0.02-1) > 1e-3 {
			t.Errorf("alone %v: errors of size %g, want 0.02", alone, r)
		}
	}
}
