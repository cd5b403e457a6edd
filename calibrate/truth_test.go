package calibrate

import (
	"cmp"
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/formats/corpus"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/plan"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/quantize/fit"
)

// TestAgainstTruth quantizes one tensor at a time and compares the divergence
// that is measured with the one that noise predicts on other text: in rank over
// the tensors, and in sum. NSTF_TRUTH_MODEL, _RECIPE and _TOKENS choose
// another case: docs/perf/sensitivity.md was made by them.
func TestAgainstTruth(t *testing.T) {
	shared := os.Getenv("NSTF_SHARED")
	if shared == "" {
		t.Skip("NSTF_SHARED names no folder of shared models")
	}
	models, recipe, tokens := []string{"tiny-qwen3"}, "q4_0", 768
	if name := os.Getenv("NSTF_TRUTH_MODEL"); name != "" {
		models, recipe = []string{name}, cmp.Or(os.Getenv("NSTF_TRUTH_RECIPE"), recipe)
		if n, err := strconv.Atoi(os.Getenv("NSTF_TRUTH_TOKENS")); err == nil {
			tokens = n
		}
	} else if testing.Short() {
		t.Skip("some seconds")
	}
	for _, name := range models {
		t.Run(name, func(t *testing.T) { compareWithTruth(t, shared, name, recipe, tokens) })
	}
}

func compareWithTruth(t *testing.T, shared, name, recipe string, tokens int) {
	m, err := checkpoint.Open(filepath.Join(shared, "models", name))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	texts, err := corpus.Read(filepath.Join(shared, "text", "calib.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	tok, err := m.Tokenizer()
	if err != nil {
		t.Fatal(err)
	}
	windows, err := Windows{Context: 256, Samples: max(16, tokens/64), Seed: 1}.Cut(t.Context(), tok, "calib.jsonl", texts)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Measure(context.Background(), m, windows, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	o := SensitivityOptions{Tokens: tokens}
	half := len(windows) / 2
	if err := Sensitivities(context.Background(), m, s, windows[:half], o); err != nil {
		t.Fatal(err)
	}
	o.fill()
	d := newDisturber(m, readBy(s), spread(windows[half:], o.Tokens), o, map[string]float64{}) // other windows than the noise met
	defer d.close()
	errors := map[string]float64{}
	d.change = func(name string, in *reading, table bool) (*formats.Tensor, float64, error) {
		x, relative, err := quantized(m, name, recipe, in.h, table)
		errors[name] = relative
		return x, relative, err
	}
	if err := d.run(context.Background()); err != nil {
		t.Fatal(err)
	}
	report(t, s.Sensitivity, d.out, errors)
}

// quantized fits a tensor, matrix by matrix.
func quantized(m *model.Model, name, recipe string, h []float64, table bool) (*formats.Tensor, float64, error) {
	t := m.Tensor(name)
	n, k := int(t.Shape[len(t.Shape)-2]), int(t.Shape[len(t.Shape)-1])
	var in *fit.Input
	if h != nil {
		in = fit.NewInput(h, k)
	}
	rows, _ := t.Rows()
	var parts []formats.Tensor
	var lost, whole float64
	for first := int64(0); first < rows; first += int64(n) {
		w := make([]float32, n*k)
		if err := scheme.DecodeRows(w, &t, first, int64(n)); err != nil {
			return nil, 0, err
		}
		r, err := fit.Matrix(context.Background(), name, w, n, k, plan.MustCode(recipe), in, fit.Options{Seed: 1, Lookup: table})
		if err != nil {
			return nil, 0, err
		}
		parts, lost, whole = append(parts, r.Tensor), lost+r.Error, whole+r.Reference
	}
	x, err := scheme.Concat(name, t.Shape, parts...)
	return &x, lost / whole, err
}

// report compares predicted with measured divergences.
func report(t *testing.T, predicted, measured, errors map[string]float64) {
	names := slices.Sorted(maps.Keys(measured))
	var p, q []float64
	var sums [2]float64
	for _, name := range names {
		e := errors[name]
		p, q = append(p, predicted[name]*e), append(q, measured[name]*e)
		sums[0], sums[1] = sums[0]+predicted[name]*e, sums[1]+measured[name]*e
		t.Logf("%-28s error %.5f predicted %.6f measured %.6f ratio %.2f", name, e, predicted[name]*e, measured[name]*e, measured[name]/predicted[name])
	}
	c := rankCorrelation(p, q)
	t.Logf("%d tensors: rank correlation %.3f, sums %.5f and %.5f", len(names), c, sums[0], sums[1])
	if r := sums[1] / sums[0]; c < 0.9 || r > 1.5 || r < 1/1.5 {
		t.Errorf("%d tensors: rank correlation %.3f, predicted %.5f and measured %.5f in sum", len(names), c, sums[0], sums[1])
	}
}

// rankCorrelation is Spearman's, of numbers without ties.
func rankCorrelation(x, y []float64) float64 {
	rank := func(v []float64) []float64 {
		order := make([]int, len(v))
		for i := range order {
			order[i] = i
		}
		slices.SortFunc(order, func(a, b int) int { return cmp.Compare(v[a], v[b]) })
		out := make([]float64, len(v))
		for r, i := range order {
			out[i] = float64(r)
		}
		return out
	}
	a, b, n := rank(x), rank(y), float64(len(x))
	var sum float64
	for i := range a {
		sum += (a[i] - b[i]) * (a[i] - b[i])
	}
	return 1 - 6*sum/(n*(n*n-1))
}
