package scheme_test

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
)

// variants are parameters to try each scheme with, for n rows of k weights.
func variants(s *scheme.Scheme, n, k int64) []map[string]int64 {
	switch s.Name {
	case "affine":
		return []map[string]int64{
			{"bits": 4, "group": 32, "scale": 2},
			{"bits": 4, "group": k, "scale": 1, "zero": 9},
			{"bits": 3, "group": 48, "scale": 3, "zero": 6},
			{"bits": 8, "group": 1, "scale": 3, "zero": 2},
			{"bits": 4, "group": 32, "scale": 2, "index": n},
			{"bits": 2, "group": 64, "scale": 2, "zero": 9, "index": 4},
		}
	case "fp8":
		return []map[string]int64{
			{"rows": n, "cols": k, "scale": 1},
			{"rows": 1, "cols": k, "scale": 3},
			{"rows": 4, "cols": 96, "scale": 1},
			{"rows": 5, "cols": 7, "scale": 2},
		}
	case "nf4":
		return []map[string]int64{{"block": 64}, {"block": 64, "nested": 8}, {"block": 32, "nested": 3}}
	case "nvfp4":
		return []map[string]int64{nil, {"rows": n}, {"rows": 1}, {"rows": 3}}
	case "tcq":
		return nil // rows come in tiles: tcq_test.go cuts and stacks them
	}
	return []map[string]int64{nil}
}

// random makes a tensor of random bytes, valid where bytes can be wrong.
func random(t testing.TB, rng *rand.Rand, s *scheme.Scheme, n, k int64, params map[string]int64) formats.Tensor {
	t.Helper()
	specs, err := s.Parts([]int64{n, k}, params)
	if err != nil {
		t.Fatal(err)
	}
	var parts []tensor.Blob
	for _, p := range specs {
		b := make([]byte, p.Bytes)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		if p.Name == "index" {
			groups := uint32((k + params["group"] - 1) / params["group"])
			for i := 0; i < len(b); i += 4 {
				binary.LittleEndian.PutUint32(b[i:], rng.Uint32N(groups))
			}
		}
		parts = append(parts, tensor.BytesBlob(b))
	}
	x, err := scheme.New("w", s, []int64{n, k}, params, parts...)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// forAll runs f for every scheme that decodes, with all its variants.
func forAll(t *testing.T, n, k int64, f func(t *testing.T, x formats.Tensor, all []float32)) {
	rng := rand.New(rand.NewPCG(7, 7))
	for _, s := range scheme.Table() {
		if s.DType == tensor.C64 {
			continue
		}
		for i, params := range variants(s, n, k) {
			t.Run(s.Name+"/"+itoa(int64(i)), func(t *testing.T) {
				x := random(t, rng, s, n, k, params)
				f(t, x, decodeAll(t, &x))
			})
		}
	}
}

// TestSlice compares the rows of slices, and of slices of slices, with those
// of the whole.
func TestSlice(t *testing.T) {
	const n, k = 13, 768
	forAll(t, n, k, func(t *testing.T, x formats.Tensor, all []float32) {
		for row := int64(0); row <= n; row++ {
			for rows := int64(0); row+rows <= n; rows++ {
				part, err := scheme.Slice(x, row, rows)
				if err != nil {
					t.Fatal(err)
				}
				sameBits(t, decodeAll(t, &part), all[row*k:(row+rows)*k])
				if rows < 3 {
					continue
				}
				inner, err := scheme.Slice(part, 1, rows-2)
				if err != nil {
					t.Fatal(err)
				}
				sameBits(t, decodeAll(t, &inner), all[(row+1)*k:(row+rows-1)*k])
			}
		}
	})
}

// TestPickRows compares reordered and repeated rows, with and without a slice
// before.
func TestPickRows(t *testing.T) {
	const n, k = 12, 768
	orders := [][]int64{{}, {3}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, {11, 10, 9, 0, 0, 5, 6, 7}, {0, 6, 1, 7, 2, 8, 3, 9, 4, 10, 5, 11}}
	forAll(t, n, k, func(t *testing.T, x formats.Tensor, all []float32) {
		for _, order := range orders {
			got, err := scheme.PickRows(x, order)
			if err != nil {
				t.Fatal(err)
			}
			var want []float32
			for _, r := range order {
				want = append(want, all[r*k:(r+1)*k]...)
			}
			sameBits(t, decodeAll(t, &got), want)
			if len(order) < 4 {
				continue
			}
			part, err := scheme.Slice(got, 1, 3)
			if err != nil {
				t.Fatal(err)
			}
			sameBits(t, decodeAll(t, &part), want[k:4*k])
		}
	})
}

// TestConcat cuts a tensor at odd places and joins the pieces again, then
// stacks two of them.
func TestConcat(t *testing.T) {
	const n, k = 14, 768
	forAll(t, n, k, func(t *testing.T, x formats.Tensor, all []float32) {
		var pieces []formats.Tensor
		for _, cut := range [][2]int64{{0, 4}, {4, 1}, {5, 0}, {5, 9}} {
			p, err := scheme.Slice(x, cut[0], cut[1])
			if err != nil {
				t.Fatal(err)
			}
			pieces = append(pieces, p)
		}
		whole, err := scheme.Concat("whole", []int64{n, k}, pieces...)
		if err != nil {
			t.Fatal(err)
		}
		sameBits(t, decodeAll(t, &whole), all)
		stack, err := scheme.Concat("stack", []int64{2, n, k}, x, whole)
		if err != nil && x.Params["nested"] == 0 {
			t.Fatal(err)
		}
		if err == nil {
			sameBits(t, decodeAll(t, &stack), append(append([]float32(nil), all...), all...))
		}
	})
}

// TestVectors splits and joins plain vectors, as a fused bias is.
func TestVectors(t *testing.T) {
	s, _ := scheme.ByName("f32")
	x := split(t, "b", s, []int64{5}, nil, []byte("aaaabbbbccccddddeeee"))
	part, err := scheme.Slice(x, 1, 3)
	if err != nil {
		t.Fatal(err)
	}
	picked, err := scheme.PickRows(part, []int64{2, 0})
	if err != nil {
		t.Fatal(err)
	}
	joined, err := scheme.Concat("j", []int64{5}, part, picked)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := joined.Parts[0].Data.Bytes()
	if err != nil || string(raw) != "bbbbccccddddddddbbbb" {
		t.Errorf("got %q, %v", raw, err)
	}
	rows, err := scheme.Concat("r", []int64{2, 5}, x, x)
	if err != nil || rows.Parts[0].Data.Len() != 40 {
		t.Errorf("stacked vectors: %v, %v", rows, err)
	}
}

// TestCannotCut wants an UnsupportedError where rows and blocks disagree.
func TestCannotCut(t *testing.T) {
	s, _ := scheme.ByName("nf4")
	x := random(t, rand.New(rand.NewPCG(1, 1)), s, 4, 96, map[string]int64{"block": 64})
	var unsupported *formats.UnsupportedError
	if _, err := scheme.Slice(x, 1, 1); !errors.As(err, &unsupported) || unsupported.Tensor != "w" {
		t.Errorf("slice inside a block: %v", err)
	}
	if _, err := scheme.Slice(x, 2, 1); err != nil {
		t.Errorf("slice at a block: %v", err)
	}
	if _, err := scheme.PickRows(x, []int64{1}); !errors.As(err, &unsupported) {
		t.Errorf("pick across blocks: %v", err)
	}
	if _, err := scheme.Concat("y", []int64{5, 96}, mustSlice(t, x, 2, 1), x); !errors.As(err, &unsupported) {
		t.Errorf("join inside a block: %v", err)
	}
	q, _ := scheme.ByName("q8_0")
	y := random(t, rand.New(rand.NewPCG(1, 1)), q, 4, 96, nil)
	if _, err := scheme.Concat("z", []int64{8, 96}, x, y); !errors.As(err, &unsupported) {
		t.Errorf("join of two schemes: %v", err)
	}
	var malformed *formats.FormatError
	if _, err := scheme.Concat("z", []int64{9, 96}, y, y); !errors.As(err, &malformed) || malformed.Tensor != "z" {
		t.Errorf("join that does not fill its shape: %v", err)
	}
}

func mustSlice(t *testing.T, x formats.Tensor, row, n int64) formats.Tensor {
	t.Helper()
	p, err := scheme.Slice(x, row, n)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
