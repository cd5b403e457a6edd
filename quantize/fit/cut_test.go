package fit_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/quantize/fit"
)

// TestCut fits matrices in pieces, as processes do that share them, and wants the bits of the
// whole: weights, errors, reference and method.
func TestCut(t *testing.T) {
	const k = 256
	methods := map[int]int{}
	for _, n := range []int{384, 400} {
		w, h := correlated(rand.New(rand.NewPCG(1, uint64(n))), n, k)
		one := make([]float64, k*k) // of an input that leaves open what is best
		for i := range k {
			one[i*k+i] = 1
		}
		rows := func(first, n int) ([]float32, error) { return w[first*k : (first+n)*k], nil }
		for name, in := range map[string]*fit.Input{"moments": fit.NewInput(h, k), "no moments": nil, "white": fit.NewInput(one, k)} {
			for i, c := range codes("q4_0", "q4_0", "q4_k", "mxfp4", "tcq2") {
				if c.Bits > 0 && (n == 400) == (name == "white") { // which take longest
					continue
				}
				o := fit.Options{Seed: 3, Effort: []int{1, 2, 2, 2, 1}[i], Threads: 3}
				want, err := fit.Matrix(context.Background(), "w", w, n, k, c, in, o)
				if err != nil {
					t.Fatal(c, err)
				}
				o.Threads = 1
				pieces := pieced(t, rows, []int{128, 128, n - 256}, func(rows fit.Rows) *fit.Cut {
					x, err := fit.NewCut("w", rows, n, k, c, in, o)
					if err != nil {
						t.Fatal(c, err)
					}
					return x
				})
				methods[len(pieces[0].Ways)]++
				got, err := fit.Join("w", pieces)
				if err != nil {
					t.Fatal(c, err)
				}
				if math.Float64bits(got.Error) != math.Float64bits(want.Error) || math.Float64bits(got.Reference) != math.Float64bits(want.Reference) || got.Method != want.Method {
					t.Errorf("%s of %d rows with %s: %g of %g by %s, as a whole %g of %g by %s", c, n, name, got.Error, got.Reference, got.Method, want.Error, want.Reference, want.Method)
				}
				sameParts(t, got.Tensor, want.Tensor)
			}
		}
	}
	if methods[1] == 0 || methods[2]+methods[3] == 0 {
		t.Errorf("pieces were fitted by %v methods", methods)
	}
}

// pieced fits runs of rows: the first by itself, the others at once by another Cut, which is
// told the methods. Their records go through JSON.
func pieced(t *testing.T, rows fit.Rows, cut []int, begin func(rows fit.Rows) *fit.Cut) []fit.Piece {
	t.Helper()
	a, b := begin(rows), begin(rows)
	pieces, err := a.Fit(t.Context(), 0, cut[0])
	if err != nil {
		t.Fatal(err)
	}
	b.Methods = a.Methods
	more, err := b.Fit(t.Context(), cut[0], cut[1:]...)
	if err != nil {
		t.Fatal(err)
	}
	pieces = append(pieces, more...)
	for i, p := range pieces {
		raw, err := json.Marshal(p)
		var back fit.Piece
		if err = errors.Join(err, json.Unmarshal(raw, &back)); err != nil {
			t.Fatal(err)
		}
		for j := range back.Ways {
			back.Ways[j].Tensor = p.Ways[j].Tensor
		}
		pieces[i] = back
	}
	return pieces
}

func sameParts(t *testing.T, a, b formats.Tensor) {
	t.Helper()
	if len(a.Parts) != len(b.Parts) || fmt.Sprint(a.Params, a.Shape) != fmt.Sprint(b.Params, b.Shape) {
		t.Fatalf("%v %v instead of %v %v", a.Params, a.Shape, b.Params, b.Shape)
	}
	for i, p := range a.Parts {
		x, err := p.Data.Bytes()
		y, err2 := b.Parts[i].Data.Bytes()
		if err != nil || err2 != nil || !bytes.Equal(x, y) {
			t.Errorf("%s: part %s has other bytes: %v, %v", a.Scheme, p.Name, err, err2)
		}
	}
}

// TestCutBlames wants the row and column of a weight that cannot be fitted, in a piece and in
// the sample that says by which methods.
func TestCutBlames(t *testing.T) {
	const n, k = 640, 256
	w, h := correlated(rand.New(rand.NewPCG(5, 6)), n, k)
	w[333*k+7] = float32(math.Inf(1))
	rows := func(first, n int) ([]float32, error) { return w[first*k : (first+n)*k], nil }
	for _, c := range codes("q4_k", "tcq2") {
		cut, err := fit.NewCut("w", rows, n, k, c, fit.NewInput(h, k), fit.Options{Threads: 1})
		if err != nil {
			t.Fatal(err)
		}
		_, err = cut.Fit(t.Context(), 256, 128)
		if v, ok := errors.AsType[*fit.ValueError](err); !ok || v.Row != 333 || v.Column != 7 {
			t.Errorf("%s: %v", c, err)
		}
	}
}
