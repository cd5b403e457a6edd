package fit_test

import (
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/quantize/fit"
)

// TestPacked fits by an input that was packed and unpacked, and wants the bits of the input
// itself; numbers that are cut, too many, or of other kernels are refused.
func TestPacked(t *testing.T) {
	const n, k = 384, 544 // panels of 256 columns, and of 128, with rests
	w, h := correlated(rand.New(rand.NewPCG(5, 5)), n, k)
	rows := func(first, n int) ([]float32, error) { return w[first*k : (first+n)*k], nil }
	for i, c := range codes("tcq2", "q4_0", "q8_0") {
		o := fit.Options{Seed: 3, Effort: []int{1, 2, 1}[i], Threads: 2}
		in := fit.NewInput(h, k)
		want, err := fit.Matrix(t.Context(), "w", w, n, k, c, in, o)
		if err != nil {
			t.Fatal(c, err)
		}
		in = fit.NewInput(h, k)
		if err := in.Prepare(c, o); err != nil {
			t.Fatal(c, err)
		}
		is, numbers := in.Pack()
		raw, err := json.Marshal(is)
		var back fit.Packed
		if err = errors.Join(err, json.Unmarshal(raw, &back)); err != nil {
			t.Fatal(err)
		}
		p, err := numbers.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		out, err := back.Unpack(p)
		if err != nil {
			t.Fatal(c, err)
		}
		cut, err := fit.NewCut("w", rows, n, k, c, out, o)
		if err != nil {
			t.Fatal(c, err)
		}
		pieces, err := cut.Fit(t.Context(), 0, 128, 256)
		if err != nil {
			t.Fatal(c, err)
		}
		got, err := fit.Join("w", pieces)
		if err != nil || math.Float64bits(got.Error) != math.Float64bits(want.Error) || math.Float64bits(got.Reference) != math.Float64bits(want.Reference) || got.Method != want.Method {
			t.Errorf("%s: %g of %g by %s, not packed %g of %g by %s, %v", c, got.Error, got.Reference, got.Method, want.Error, want.Reference, want.Method, err)
		}
		sameParts(t, got.Tensor, want.Tensor)
		other := back
		other.Width++
		for name, try := range map[string]func() (*fit.Input, error){
			"no numbers":    func() (*fit.Input, error) { return back.Unpack(nil) },
			"cut":           func() (*fit.Input, error) { return back.Unpack(p[:len(p)-4]) },
			"too long":      func() (*fit.Input, error) { return back.Unpack(append(p[:len(p):len(p)], 0, 0, 0, 0)) },
			"other kernels": func() (*fit.Input, error) { return other.Unpack(p) },
		} {
			var f *formats.FormatError
			if _, err := try(); !errors.As(err, &f) {
				t.Errorf("%s, %s: %v", c, name, err)
			}
		}
	}
	h[0] = math.NaN()
	if err := fit.NewInput(h, k).Prepare(codes("tcq2")[0], fit.Options{}); err == nil {
		t.Error("factors of a NaN were made")
	}
}
