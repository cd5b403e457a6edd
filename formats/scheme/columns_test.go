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

// Runs of columns decode to what they are in the whole; what would split a block is
// refused, and so are schemes whose rows are not made of blocks.
func TestColumns(t *testing.T) {
	const rows, k, lo, n = 3, 1024, 256, 512
	rng := rand.New(rand.NewPCG(3, 2))
	cut := map[string]bool{}
	for _, s := range scheme.Table() {
		for _, params := range variants(s, rows, k) {
			x := random(t, rng, s, rows, k, params)
			y, err := scheme.Columns(x, scheme.Run{From: lo, N: n / 2}, scheme.Run{From: 0, N: n / 2})
			if e, ok := errors.AsType[*formats.UnsupportedError](err); ok {
				if s.Plain() && s.DType.Bits()%8 == 0 || s.BlockBytes > 0 && len(x.Parts) == 1 {
					t.Errorf("%s: %v", s.Name, e)
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			cut[s.Name] = true
			if _, err := scheme.Columns(x, scheme.Run{From: 1, N: n}); (err == nil) != (s.Block == 1) {
				t.Errorf("%s: columns within blocks: %v", s.Name, err)
			}
			want, got := make([]float32, rows*k), make([]float32, rows*n)
			if scheme.DecodeRows(want, &x, 0, rows) != nil {
				continue // integers have no numbers to compare
			}
			if err := scheme.DecodeRows(got, &y, 0, rows); err != nil {
				t.Fatal(err)
			}
			for i := range got {
				at := i % n
				if at += lo; i%n >= n/2 {
					at = i%n - n/2
				}
				w := want[i/n*k+at]
				if got[i] != w && !(got[i] != got[i] && w != w) {
					t.Fatalf("%s: number %d is %v, not %v", s.Name, i, got[i], w)
				}
			}
		}
	}
	for _, name := range []string{"f32", "bf16", "q8_0", "q4_k", "q6_k"} {
		if !cut[name] {
			t.Errorf("%s was not cut", name)
		}
	}
}
