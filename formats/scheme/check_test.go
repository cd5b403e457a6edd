package scheme_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
)

// TestCheckLies changes one thing of a good tensor at a time; each must be
// refused with an error that names the tensor and quotes the change.
func TestCheckLies(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	q4k, _ := scheme.ByName("q4_k")
	aff, _ := scheme.ByName("affine")
	params := map[string]int64{"bits": 4, "group": 32, "scale": 2, "zero": 9, "index": 2}
	for _, c := range []struct {
		name  string
		s     *scheme.Scheme
		lie   func(x *formats.Tensor)
		quote string
	}{
		{"row too long", q4k, func(x *formats.Tensor) { x.Shape[1] = 257 }, "257"},
		{"more rows", q4k, func(x *formats.Tensor) { x.Shape[0] = 3 }, "[2 144]"},
		{"negative shape", q4k, func(x *formats.Tensor) { x.Shape[0] = -2 }, "-2"},
		{"overflow", q4k, func(x *formats.Tensor) { x.Shape = []int64{1 << 40, 1 << 40} }, "1099511627776"},
		{"byte overflow", q4k, func(x *formats.Tensor) { x.Shape = []int64{1 << 55, 256} }, "256"},
		{"scalar", q4k, func(x *formats.Tensor) { x.Shape = nil }, "1"},
		{"part name", q4k, func(x *formats.Tensor) { x.Parts[0].Name = "date" }, "date"},
		{"part type", q4k, func(x *formats.Tensor) { x.Parts[0].DType = tensor.I8 }, "i8"},
		{"part shape", q4k, func(x *formats.Tensor) { x.Parts[0].Shape = []int64{288} }, "[288]"},
		{"part bytes", q4k, func(x *formats.Tensor) { x.Parts[0].Data = x.Parts[0].Data.Slice(0, 287) }, "287"},
		{"no parts", q4k, func(x *formats.Tensor) { x.Parts = nil }, "0 parts"},
		{"a part too many", q4k, func(x *formats.Tensor) { x.Parts = append(x.Parts, x.Parts[0]) }, "2 parts"},
		{"unknown parameter", q4k, func(x *formats.Tensor) { x.Params = map[string]int64{"group": 3} }, "group"},
		{"parameter missing", aff, func(x *formats.Tensor) { delete(x.Params, "bits") }, "bits"},
		{"group missing", aff, func(x *formats.Tensor) { delete(x.Params, "group") }, "group"},
		{"scale missing", aff, func(x *formats.Tensor) { delete(x.Params, "scale") }, "scale"},
		{"bits", aff, func(x *formats.Tensor) { x.Params["bits"] = 9 }, "9"},
		{"group 0", aff, func(x *formats.Tensor) { x.Params["group"] = 0 }, "0"},
		{"other groups", aff, func(x *formats.Tensor) { x.Params["group"] = 257 }, "[2 1]"},
		{"scale type", aff, func(x *formats.Tensor) { x.Params["scale"] = 9 }, "9"},
		{"zero type", aff, func(x *formats.Tensor) { x.Params["zero"] = -1 }, "-1"},
		{"index", aff, func(x *formats.Tensor) { x.Params["index"] = -1 }, "-1"},
		{"another parameter", aff, func(x *formats.Tensor) { x.Params["rows"] = 1 }, "rows"},
		{"one dimension", aff, func(x *formats.Tensor) { x.Shape = []int64{512} }, "[512]"},
		{"run too long", aff, func(x *formats.Tensor) { x.Params["index"] = 1<<40 + 1 }, "1099511627777"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := map[string]int64(nil)
			if c.s == aff {
				p = map[string]int64{}
				for k, v := range params {
					p[k] = v
				}
			}
			x := random(t, rng, c.s, 2, 256, p)
			c.lie(&x)
			err := scheme.Check(&x)
			var malformed *formats.FormatError
			if !errors.As(err, &malformed) || malformed.Tensor != "w" || !strings.Contains(malformed.Reason, c.quote) {
				t.Errorf("%v", err)
			}
			if _, err := scheme.Open(&x); err == nil {
				t.Error("opened")
			}
		})
	}
	x := random(t, rng, q4k, 2, 256, nil)
	x.Scheme = "q7_k"
	var unsupported *formats.UnsupportedError
	if err := scheme.Check(&x); !errors.As(err, &unsupported) || !strings.Contains(err.Error(), "q7_k") {
		t.Errorf("unknown scheme: %v", err)
	}
}

// TestIndexRange refuses a group index that is not below the groups.
func TestIndexRange(t *testing.T) {
	s, _ := scheme.ByName("affine")
	x := random(t, rand.New(rand.NewPCG(1, 1)), s, 2, 64, map[string]int64{"bits": 4, "group": 32, "scale": 2, "index": 2})
	for _, bad := range []string{"\x02\x00\x00\x00", "\xff\xff\xff\xff"} {
		raw := bytes.Repeat([]byte{0}, 256)
		copy(raw[8:], bad)
		x.Parts[2].Data = tensor.BytesBlob(raw)
		var malformed *formats.FormatError
		if _, err := scheme.Open(&x); !errors.As(err, &malformed) || !strings.Contains(err.Error(), "index 2") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// TestSizes checks bits per weight and overflows of every scheme.
func TestSizes(t *testing.T) {
	for _, s := range scheme.Table() {
		for _, params := range variants(s, 8, 768) {
			bpw, err := s.BPW([]int64{8, 768}, params)
			if err != nil || bpw < 1.125 || bpw > 72 {
				t.Errorf("%s %v: %g bits per weight, %v", s.Name, params, bpw, err)
			}
			for _, shape := range [][]int64{{math.MaxInt64 / 256 * 256, 256}, {1 << 50, 1 << 20}, {-1, 256}, {256, -256}, {1 << 31, 1 << 31, 256}} {
				if _, err := s.Parts(shape, params); err == nil {
					t.Errorf("%s has parts for %v", s.Name, shape)
				}
			}
			p := params
			if s.Name == "affine" || s.Name == "fp8" {
				p = map[string]int64{"scale": 1}
				for _, k := range []string{"bits", "group", "rows", "cols"} {
					if _, ok := params[k]; ok {
						p[k] = 1
					}
				}
				if s.Name == "affine" {
					p["bits"] = 2
				}
			}
			for _, shape := range [][]int64{{0, 768}, {768, 0}, {0, 0}} {
				if size, err := s.Size(shape, p); s.Name != "nf4" && (err != nil || size != 0) {
					t.Errorf("%s takes %d bytes for %v, %v", s.Name, size, shape, err)
				}
			}
		}
	}
}

// TestDecodeRows reads a few rows without opening the tensor.
func TestDecodeRows(t *testing.T) {
	x := random(t, rand.New(rand.NewPCG(1, 1)), mustName(t, "q5_k"), 9, 512, nil)
	all := decodeAll(t, &x)
	got := make([]float32, 3*512)
	if err := scheme.DecodeRows(got, &x, 4, 3); err != nil {
		t.Fatal(err)
	}
	sameBits(t, got, all[4*512:7*512])
	v := split(t, "v", mustName(t, "u8"), []int64{5}, nil, []byte{1, 2, 3, 4, 5})
	got = make([]float32, 5)
	if err := scheme.DecodeRows(got, &v, 0, 1); err != nil {
		t.Fatal(err)
	}
	sameBits(t, got, []float32{1, 2, 3, 4, 5})
}

// TestNoAllocation: whatever has no kernel of its own is decoded row by row
// while a model runs.
func TestNoAllocation(t *testing.T) {
	forAll(t, 3, 768, func(t *testing.T, x formats.Tensor, _ []float32) {
		m, err := scheme.Open(&x)
		if err != nil {
			t.Fatal(err)
		}
		dst := make([]float32, m.K)
		if n := testing.AllocsPerRun(10, func() { m.DecodeRow(dst, 1) }); n != 0 {
			t.Errorf("%g allocations", n)
		}
	})
}

// TestGuard: a row writes its K weights and nothing beside them.
func TestGuard(t *testing.T) {
	forAll(t, 2, 768, func(t *testing.T, x formats.Tensor, all []float32) {
		m, err := scheme.Open(&x)
		if err != nil {
			t.Fatal(err)
		}
		dst := make([]float32, 770)
		dst[0], dst[769] = 42, 43
		m.DecodeRow(dst[1:], 1)
		sameBits(t, dst[1:769], all[768:])
		if dst[0] != 42 || dst[769] != 43 {
			t.Error("wrote outside the row")
		}
		defer func() {
			if recover() == nil {
				t.Error("row 2 of 2 did not panic")
			}
		}()
		m.DecodeRow(dst, 2)
	})
}

func ExampleOpen() {
	s, _ := scheme.ByName("q8_0")
	block := append([]byte{0x00, 0x38}, make([]byte, 32)...) // scale 0.5
	block[2], block[3] = 4, 0xFE                             // codes 4 and -2
	t, err := scheme.New("w", s, []int64{1, 32}, nil, tensor.BytesBlob(block))
	if err != nil {
		panic(err)
	}
	m, err := scheme.Open(&t)
	if err != nil {
		panic(err)
	}
	row := make([]float32, m.K)
	m.DecodeRow(row, 0)
	fmt.Println(row[:3])
	// Output: [2 -1 0]
}
