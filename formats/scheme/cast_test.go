package scheme_test

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
)

// TestCast holds casting to the decode of all schemes, over chunks.
func TestCast(t *testing.T) {
	f32, _ := scheme.ByName("f32")
	bf16, _ := scheme.ByName("bf16")
	f16, _ := scheme.ByName("f16")
	x := random(t, rand.New(rand.NewPCG(1, 1)), mustName(t, "q6_k"), 1500, 1024, nil)
	all := decodeAll(t, &x)
	cast, err := scheme.Cast(x, f32)
	if err != nil {
		t.Fatal(err)
	}
	if cast.Scheme != "f32" || cast.Name != "w" || cast.Parts[0].Data.Pieces() < 2 {
		t.Errorf("cast to %v in %d pieces", &cast, cast.Parts[0].Data.Pieces())
	}
	sameBits(t, decodeAll(t, &cast), all)

	rng := rand.New(rand.NewPCG(2, 2))
	w := make([]float32, 64)
	for i := range w {
		w[i] = float32(rng.NormFloat64())
	}
	raw := make([]byte, 256)
	if err := tensor.FromFloat32(raw, w, tensor.F32); err != nil {
		t.Fatal(err)
	}
	for _, shape := range [][]int64{{64}, {8, 8}, {2, 4, 8}} {
		y := split(t, "y", f32, shape, nil, raw)
		for _, to := range []*scheme.Scheme{f16, bf16} {
			cast, err := scheme.Cast(y, to)
			if err != nil {
				t.Fatal(err)
			}
			got, err := cast.Parts[0].Data.Bytes()
			if err != nil {
				t.Fatal(err)
			}
			want := make([]byte, 128)
			if err := tensor.FromFloat32(want, w, to.DType); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("%v cast to %s differs", shape, to)
			}
		}
	}
}

func mustName(t testing.TB, name string) *scheme.Scheme {
	t.Helper()
	s, ok := scheme.ByName(name)
	if !ok {
		t.Fatalf("no scheme %s", name)
	}
	return s
}

// TestCastOverflow wants the place of a weight that a cast would lose.
func TestCastOverflow(t *testing.T) {
	for _, c := range []struct {
		v  float32
		to string
		ok bool
	}{
		{65519, "f16", true}, {65520, "f16", false}, {-1e9, "f16", false}, {float32(math.Inf(1)), "f16", true},
		{1e38, "bf16", true}, {math.Float32frombits(0x7F7F7FFF), "bf16", true}, {math.Float32frombits(0x7F7F8000), "bf16", false},
		{math.MaxFloat32, "f32", true},
	} {
		raw := make([]byte, 24)
		if err := tensor.FromFloat32(raw, []float32{1, 2, 3, 4, 5, c.v}, tensor.F32); err != nil {
			t.Fatal(err)
		}
		x, err := scheme.Cast(split(t, "y", mustName(t, "f32"), []int64{2, 3}, nil, raw), mustName(t, c.to))
		if err != nil {
			t.Fatal(err)
		}
		_, err = x.Parts[0].Data.Bytes()
		var unsupported *formats.UnsupportedError
		if (err == nil) != c.ok {
			t.Errorf("%g as %s: %v", c.v, c.to, err)
		} else if !c.ok && (!errors.As(err, &unsupported) || !strings.Contains(err.Error(), "row 1, column 2")) {
			t.Errorf("%g as %s: %v", c.v, c.to, err)
		}
	}
	for _, to := range []string{"q8_0", "i32", "f8_e4m3"} {
		if _, err := scheme.Cast(split(t, "y", mustName(t, "f32"), []int64{1, 1}, nil, make([]byte, 4)), mustName(t, to)); err == nil {
			t.Errorf("cast to %s", to)
		}
	}
	if _, err := scheme.Cast(split(t, "y", mustName(t, "c64"), []int64{1, 1}, nil, make([]byte, 8)), mustName(t, "f32")); err == nil {
		t.Error("cast a complex number")
	}
}

// TestCastTransposed: a source that is computed whole is made once per
// reading, not once per chunk.
func TestCastTransposed(t *testing.T) {
	const n, k = 4096, 1024
	calls := 0
	x, err := scheme.New("w", mustName(t, "f16"), []int64{n, k}, nil, tensor.Computed(2*n*k, func() ([]byte, error) {
		calls++
		return make([]byte, 2*n*k), nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	y, err := scheme.Cast(x, mustName(t, "f32"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := y.Parts[0].Data.Bytes(); err != nil || calls != 1 {
		t.Errorf("%d computations, %v", calls, err)
	}
}
