package scheme_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/scheme"
)

// Columns in another order decode to the numbers of the old order, of every scheme
// that can be put in it; the others are refused by their names.
func TestPickColumns(t *testing.T) {
	const rows, unit, k = 3, 256, 1024
	rng := rand.New(rand.NewPCG(1, 2))
	moved := map[string]bool{}
	for _, s := range scheme.Table() {
		for _, params := range variants(s, rows, k) {
			x := random(t, rng, s, rows, k, params)
			var index []int64
			for _, b := range []int64{2, 0, 3, 1} {
				for i := range int64(unit) {
					index = append(index, b*unit+i)
				}
			}
			y, err := scheme.PickColumns(x, index)
			if e, ok := errors.AsType[*formats.UnsupportedError](err); ok {
				if s.Plain() && s.DType.Bits()%8 == 0 || s.BlockBytes > 0 && len(x.Parts) == 1 {
					t.Errorf("%s: %v", s.Name, e)
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			moved[s.Name] = true
			want, got := make([]float32, rows*k), make([]float32, rows*k)
			if scheme.DecodeRows(want, &x, 0, rows) != nil {
				continue // integers have no numbers to compare
			}
			if err := scheme.DecodeRows(got, &y, 0, rows); err != nil {
				t.Fatal(err)
			}
			for i := range got {
				w := want[i/k*k+int(index[i%k])]
				if got[i] != w && !(got[i] != got[i] && w != w) {
					t.Fatalf("%s: number %d is %v, not %v", s.Name, i, got[i], w)
				}
			}
			slices.Reverse(index) // which splits every block
			if _, err := scheme.PickColumns(x, index); (err == nil) != (s.Block == 1) {
				t.Errorf("%s: columns within blocks: %v", s.Name, err)
			}
		}
	}
	for _, name := range []string{"bf16", "q8_0", "q4_k"} {
		if !moved[name] {
			t.Errorf("columns of %s were not moved", name)
		}
	}
}

// Runs of columns, and rows of each matrix of a stack, decode to what they are in the
// whole; what would split a block is refused, and so are schemes whose rows are not made of
// blocks.
func TestColumns(t *testing.T) {
	const rows, k, of = 6, 1024, 2
	rng := rand.New(rand.NewPCG(3, 2))
	cut := map[string]bool{}
	for _, s := range scheme.Table() {
		for _, params := range variants(s, rows, k) {
			x := random(t, rng, s, rows, k, params)
			_, unit := scheme.Unit(&x)
			lo, n := unit*max(1, 256/max(unit, 1)), unit*max(1, 512/max(unit, 1))
			runs := []scheme.Run{{From: lo, N: n}, {N: lo}}
			y, err := scheme.Columns(x, runs...)
			if e, ok := errors.AsType[*formats.UnsupportedError](err); ok {
				if s.Plain() && s.DType.Bits()%8 == 0 || s.BlockBytes > 0 || s.Name == "fp8" || s.Name == "affine" && params["index"] == 0 {
					t.Errorf("%s: %v", s.Name, e)
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			cut[s.Name] = true
			if _, err := scheme.Columns(x, scheme.Run{From: 1, N: n}); (err == nil) != (unit == 1) {
				t.Errorf("%s: columns within blocks: %v", s.Name, err)
			}
			want := make([]float32, rows*k)
			if scheme.DecodeRows(want, &x, 0, rows) != nil {
				continue // integers have no numbers to compare
			}
			isPart(t, &y, want, k, rows, runs...)
			if y, err = scheme.Columns(x, scheme.Run{From: lo, N: k - lo}); err != nil { // of which the last block may be short
				t.Fatal(err)
			}
			isPart(t, &y, want, k, rows, scheme.Run{From: lo, N: k - lo})
			stack, err := scheme.Concat("stack", []int64{of, rows / of, k}, x)
			if err != nil {
				t.Fatal(err)
			}
			if y, err = scheme.Columns(stack, runs...); err != nil || !slices.Equal(y.Shape, []int64{of, rows / of, n + lo}) {
				t.Fatalf("%s: %v, %v", s.Name, y.Shape, err)
			}
			isPart(t, &y, want, k, rows, runs...)
			if y, err = scheme.Each(stack, 1, 2); err != nil || !slices.Equal(y.Shape, []int64{of, 2, k}) {
				t.Fatalf("%s: %v, %v", s.Name, y.Shape, err)
			}
			isPart(t, &y, slices.Concat(want[k:3*k], want[4*k:]), k, 4, scheme.Run{N: k})
		}
	}
	for _, name := range []string{"f32", "bf16", "q8_0", "q4_k", "q6_k", "mxfp4", "nvfp4", "fp8", "affine"} {
		if !cut[name] {
			t.Errorf("%s was not cut", name)
		}
	}
}

// isPart holds a tensor to runs of columns of rows of k numbers.
func isPart(t *testing.T, y *formats.Tensor, want []float32, k, rows int64, runs ...scheme.Run) {
	t.Helper()
	var all []float32
	for r := range rows {
		for _, c := range runs {
			all = append(all, want[r*k+c.From:][:c.N]...)
		}
	}
	got := make([]float32, len(all))
	if err := scheme.DecodeRows(got, y, 0, rows); err != nil {
		t.Fatal(err)
	}
	for i, v := range got {
		if w := all[i]; v != w && !(v != v && w != w) {
			t.Fatalf("%s: number %d is %v, not %v", y.Scheme, i, v, w)
		}
	}
}

// Trellis codes are cut between rotated blocks, of which all have the same signs.
func TestTCQParts(t *testing.T) {
	s, _ := scheme.ByName("tcq")
	const n, k = 96, 256
	for _, params := range []map[string]int64{tcqParams(), tcqParams("out_scales", 1, "in_scales", 1), tcqParams("rotate_out", 1, "rotate_in", 1, "bits", 5)} {
		x := random(t, rand.New(rand.NewPCG(3, 4)), s, n, k, params)
		want, runs := decodeAll(t, &x), []scheme.Run{{From: 64, N: 128}}
		if params["in_scales"] != 0 {
			runs = append(runs, scheme.Run{N: 64})
		}
		y, err := scheme.Columns(x, runs...)
		if err != nil {
			t.Fatal(err)
		}
		isPart(t, &y, want, k, n, runs...)
		stack := x
		if params["in_scales"] == 0 {
			if stack, err = scheme.Concat("stack", []int64{2, n, k}, x, x); err != nil {
				t.Fatal(err)
			}
			if y, err = scheme.Each(stack, 32, 64); err != nil {
				t.Fatal(err)
			}
			isPart(t, &y, slices.Concat(want[32*k:], want[32*k:]), k, 128, scheme.Run{N: k})
		}
		if rows, columns := scheme.Unit(&x); rows != max(16, params["rotate_out"]) || columns != max(16, params["rotate_in"]) {
			t.Errorf("units of %d rows and %d columns", rows, columns)
		}
		for _, wrong := range []func() error{
			func() error { _, err := scheme.Columns(x, scheme.Run{From: 8, N: 128}); return err },
			func() error { _, err := scheme.Each(stack, 8, 64); return err },
		} {
			if len(stack.Shape) < 3 {
				break
			}
			var unsupported *formats.UnsupportedError
			if err := wrong(); !errors.As(err, &unsupported) {
				t.Errorf("half a tile was cut: %v", err)
			}
		}
	}
}
