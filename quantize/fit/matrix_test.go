package fit_test

import (
	"bytes"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/form"
	"github.com/nstf/nstf/formats/plan"
	"github.com/nstf/nstf/quantize/fit"
)

// decoded returns the weights that a fitted matrix stores.
func decoded(t testing.TB, x formats.Tensor) []float32 {
	t.Helper()
	out, err := form.Decode(&x)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// codes parses names.
func codes(names ...string) (out []plan.Code) {
	for _, s := range names {
		out = append(out, plan.MustCode(s))
	}
	return out
}

// TestMatrix fits by every recipe: what the result says about its error is
// true, and it is no worse than the plain fit.
func TestMatrix(t *testing.T) {
	const n, k = 16, 256
	w, h := correlated(rand.New(rand.NewPCG(1, 2)), n, k)
	in := fit.NewInput(h, k)
	for _, recipe := range fit.Codes() {
		if testing.Short() && recipe.Bits > 2 {
			continue
		}
		r, err := fit.Matrix(context.Background(), "w", w, n, k, recipe, in, fit.Options{Seed: 3})
		if err != nil {
			t.Fatal(recipe, err)
		}
		want := loss(w, decoded(t, r.Tensor), h, n, k)
		if got := r.Error / r.Reference; math.Abs(got-want) > 1e-4*want {
			t.Errorf("%s: the result states an error of %g, it is %g", recipe, got, want)
		}
		plain, err := fit.Matrix(context.Background(), "w", w, n, k, recipe, nil, fit.Options{Seed: 3})
		if err != nil {
			t.Fatal(recipe, err)
		}
		p := loss(w, decoded(t, plain.Tensor), h, n, k)
		t.Logf("%s: %.3g by %s, %.3g plain", recipe, want, r.Method, p)
		if want > p*(1+1e-6) || plain.Method != fit.MethodPlain {
			t.Errorf("%s: an error of %g by %s, plain %g by %s", recipe, want, r.Method, p, plain.Method)
		}
		if size := fit.Bytes(recipe, n, k); size != tensorBytes(r.Tensor) {
			t.Errorf("%s: %d bytes were foretold, there are %d", recipe, size, tensorBytes(r.Tensor))
		}
	}
}

func tensorBytes(t formats.Tensor) (sum int64) {
	for _, p := range t.Parts {
		sum += p.Data.Len()
	}
	return sum
}

// TestEstimate holds estimates from few rows to what all rows leave.
func TestEstimate(t *testing.T) {
	const n, k = 96, 256
	w, h := correlated(rand.New(rand.NewPCG(1, 2)), n, k)
	in := fit.NewInput(h, k)
	for _, recipe := range codes("q4_k", "q6_k", "iq3_s", "iq2_xs", "tcq2") {
		r, err := fit.Matrix(context.Background(), "w", w, n, k, recipe, in, fit.Options{})
		if err != nil {
			t.Fatal(err)
		}
		e, err := fit.Estimate(context.Background(), w, n, k, recipe, in, fit.Options{})
		if got := e / (r.Error / r.Reference); err != nil || got < 0.7 || got > 1.4 {
			t.Errorf("%s: estimate is %.3f of the truth, %v", recipe, got, err)
		}
	}
}

// TestMatrixRefuses: recipes, shapes and values that cannot be.
func TestMatrixRefuses(t *testing.T) {
	const n, k = 16, 256
	w, h := correlated(rand.New(rand.NewPCG(1, 2)), n, k)
	call := func(w []float32, n, k int, recipe string, in *fit.Input) error {
		_, err := fit.Matrix(context.Background(), "blk.0.w", w, n, k, plan.MustCode(recipe), in, fit.Options{})
		return err
	}
	var unsupported *formats.UnsupportedError
	for _, recipe := range []string{"iq1_s", "i8"} {
		if err := call(w, n, k, recipe, nil); !errors.As(err, &unsupported) || fit.Fits(plan.MustCode(recipe), n, k) {
			t.Errorf("%q: %v", recipe, err)
		}
	}
	for _, c := range []struct {
		n, k   int
		recipe string
	}{{16, 128, "q4_k"}, {16, 16, "q4_0"}, {1, 256, "tcq4"}, {16, 24, "tcq4"}} {
		if err := call(w[:c.n*c.k], c.n, c.k, c.recipe, nil); !errors.As(err, &unsupported) || !strings.Contains(err.Error(), c.recipe) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	var format *formats.FormatError
	for _, recipe := range []string{"q4_k", "tcq4"} {
		bad := slices.Clone(w)
		bad[3*k+9] = float32(math.Inf(-1))
		if err := call(bad, n, k, recipe, nil); !errors.As(err, &format) || !strings.Contains(err.Error(), "row 3, column 9") {
			t.Errorf("%s: %v", recipe, err)
		}
		for _, v := range []float64{math.NaN(), math.Inf(1), -1} {
			m := slices.Clone(h)
			m[7*k+7] = v
			if err := call(w, n, k, recipe, fit.NewInput(m, k)); !errors.As(err, &format) || !strings.Contains(err.Error(), "column 7") {
				t.Errorf("%s, moment %g: %v", recipe, v, err)
			}
		}
	}
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := fit.Matrix(canceled, "w", w, n, k, plan.MustCode("q4_k"), nil, fit.Options{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestMatrixSameBytes wants the same bytes from any number of threads, and of
// factors that were made anew.
func TestMatrixSameBytes(t *testing.T) {
	const n, k = 80, 288
	w, h := correlated(rand.New(rand.NewPCG(1, 2)), n, k)
	for _, recipe := range codes("q4_0", "iq4_nl", "tcq2") {
		var want []byte
		for _, threads := range []int{1, 3} {
			r, err := fit.Matrix(context.Background(), "w", w, n, k, recipe, fit.NewInput(h, k), fit.Options{Threads: threads})
			if err != nil {
				t.Fatal(err)
			}
			got, err := r.Tensor.Parts[0].Data.Bytes()
			if err != nil {
				t.Fatal(err)
			}
			if want != nil && !bytes.Equal(got, want) {
				t.Errorf("%s: %d threads give other bytes", recipe, threads)
			}
			want = got
		}
	}
}

// TestDeadColumns: inputs that are always zero, or all of them, leave finite
// weights and no feedback from or to them.
func TestDeadColumns(t *testing.T) {
	const n, k = 32, 256
	w, h := correlated(rand.New(rand.NewPCG(1, 2)), n, k)
	for i := range k {
		for _, dead := range []int{0, 100, 255} {
			h[i*k+dead], h[dead*k+i] = 0, 0
		}
	}
	for name, m := range map[string][]float64{"some": h, "all": make([]float64, k*k)} {
		for _, recipe := range codes("q4_k", "q8_0", "tcq2") {
			r, err := fit.Matrix(context.Background(), "w", w, n, k, recipe, fit.NewInput(m, k), fit.Options{})
			if err != nil {
				t.Fatal(name, recipe, err)
			}
			var num, den float64
			for i, v := range decoded(t, r.Tensor) {
				num += float64(v-w[i]) * float64(v-w[i])
				den += float64(w[i]) * float64(w[i])
			}
			if !(num < 0.5*den) {
				t.Errorf("%s dead, %s: the weights' own error is %g", name, recipe, num/den)
			}
		}
	}
}

// TestEffort: more effort leaves no more error, and without answers errors are
// weighed by the diagonal.
func TestEffort(t *testing.T) {
	const n, k = 96, 512
	w, h := correlated(rand.New(rand.NewPCG(1, 2)), n, k)
	in := fit.NewInput(h, k)
	last := math.Inf(1)
	for effort, method := range []string{1: fit.MethodWeighted, 2: fit.MethodFeedback, 3: fit.MethodFeedback, 6: fit.MethodFeedback} {
		if method == "" {
			continue
		}
		r, err := fit.Matrix(context.Background(), "w", w, n, k, plan.MustCode("q4_k"), in, fit.Options{Effort: effort})
		if err != nil {
			t.Fatal(err)
		}
		e := loss(w, decoded(t, r.Tensor), h, n, k)
		if r.Method != method || e > last {
			t.Errorf("effort %d: %g by %s, after %g", effort, e, r.Method, last)
		}
		last = e
	}
}
