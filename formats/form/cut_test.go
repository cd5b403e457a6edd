package form_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/form"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
)

// Parts of a tensor of a form decode to the rows and columns of the whole, of stacks those of
// each matrix; a train has no parts.
func TestCut(t *testing.T) {
	const experts, n, k, r = 3, 6, 64, 2
	rng := rand.New(rand.NewPCG(4, 1))
	factor := func(name, to string, shape ...int64) formats.Tensor {
		t.Helper()
		s, _ := scheme.ByName(to)
		size, err := s.Size(shape, nil)
		if err != nil {
			t.Fatal(err)
		}
		raw, count := make([]byte, size), int64(1)
		for _, d := range shape {
			count *= d
		}
		if to == "f32" {
			x := make([]float32, count)
			for i := range x {
				x[i] = float32(rng.NormFloat64())
			}
			if err := tensor.FromFloat32(raw, x, tensor.F32); err != nil {
				t.Fatal(err)
			}
		} else {
			for i := range raw {
				raw[i] = byte(rng.IntN(60)) // scales that are numbers
			}
		}
		x, err := scheme.New(name, s, shape, nil, tensor.BytesBlob(raw))
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	decoded := func(x formats.Tensor) []float32 {
		t.Helper()
		m, err := form.Open(&x)
		if err != nil {
			t.Fatal(err)
		}
		rows, k := x.Rows()
		out := make([]float32, rows*k)
		for i := range rows {
			m.DecodeRow(out[i*k:], i)
		}
		return out
	}
	for _, c := range []struct {
		id      form.ID
		stack   bool
		factors []formats.Tensor
	}{
		{form.LowRank, false, []formats.Tensor{factor("a", "f32", n, r), factor("b", "q8_0", r, k)}},
		{form.Corrected, false, []formats.Tensor{factor("q", "q8_0", n, k), factor("a", "f32", n, r), factor("b", "f32", r, k)}},
		{form.Corrected, true, []formats.Tensor{factor("q", "q8_0", experts, n, k), factor("a", "f32", experts, n, r), factor("b", "f32", experts, r, k)}},
		{form.Shared, true, []formats.Tensor{factor("c", "f32", experts, 2), factor("u", "f32", 2, n, k), factor("q", "q8_0", experts, n, k)}},
	} {
		shape, matrices := []int64{n, k}, int64(1)
		if c.stack {
			shape, matrices = []int64{experts, n, k}, experts
		}
		x, err := form.New("w", c.id, shape, nil, c.factors...)
		if err != nil {
			t.Fatal(err)
		}
		whole := decoded(x)
		_, unit := form.Unit(&x)
		if unit != 32 {
			t.Errorf("%v: units of %d columns", x.Form, unit)
		}
		columns, err := form.Columns(x, func(t formats.Tensor) (formats.Tensor, error) { return scheme.Columns(t, scheme.Run{From: 32, N: 32}) })
		if err != nil {
			t.Fatal(err)
		}
		rows, err := form.Rows(x, func(t formats.Tensor) (formats.Tensor, error) {
			if c.stack {
				return scheme.Each(t, 1, 4)
			}
			return scheme.Slice(t, 1, 4)
		})
		if err != nil {
			t.Fatal(err)
		}
		var wantRows, wantColumns []float32
		for m := range matrices {
			wantRows = append(wantRows, whole[(m*n+1)*k:(m*n+5)*k]...)
		}
		for row := range matrices * n {
			wantColumns = append(wantColumns, whole[row*k+32:(row+1)*k]...)
		}
		if !slices.Equal(decoded(rows), wantRows) || !slices.Equal(decoded(columns), wantColumns) {
			t.Errorf("%s of %v: parts are not those of the whole", x.Form, shape)
		}
	}
	cores := []form.TrainCore{{Rows: 3, RankIn: 1, Columns: 8, RankOut: 2}, {Rows: 2, RankIn: 2, Columns: 8, RankOut: 1}}
	train, err := form.New("w", form.Train, []int64{n, k}, form.TrainParams(cores), factor("g1", "f32", 3, 16), factor("g2", "f32", 2, 16))
	if err != nil {
		t.Fatal(err)
	}
	var unsupported *formats.UnsupportedError
	if _, err := form.Rows(train, nil); !errors.As(err, &unsupported) || unsupported.Tensor != "w" {
		t.Errorf("%v", err)
	}
}
