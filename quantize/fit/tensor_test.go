package fit_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
	"github.com/nstf/nstf/quantize/fit"
)

// newTensor stores w as f32.
func newTensor(t testing.TB, w []float32, shape ...int64) formats.Tensor {
	t.Helper()
	raw := make([]byte, 4*len(w))
	if err := tensor.FromFloat32(raw, w, tensor.F32); err != nil {
		t.Fatal(err)
	}
	s, _ := scheme.ByName("f32")
	x, err := scheme.New("blk.w", s, shape, nil, tensor.BytesBlob(raw))
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// TestTensor fits a tensor of several chunks and wants the bytes of a plain
// call, at one core and at many.
func TestTensor(t *testing.T) {
	const n, k = 2050, 4096
	block := rowsOf(5, 64*k)
	w := make([]float32, n*k)
	for i := range w {
		w[i] = block[i%len(block)]
	}
	x := newTensor(t, w, n/2, 2, k)
	s, _ := scheme.ByName("q8_0")
	want := make([]byte, n*k/32*34)
	f, _ := fit.For(s)
	if err := f(want, w, nil, k); err != nil {
		t.Fatal(err)
	}
	got, err := fit.Tensor(x, s, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got.Name != x.Name || fmt.Sprint(got.Shape) != fmt.Sprint(x.Shape) || got.Scheme != "q8_0" || got.Parts[0].Data.Pieces() < 3 {
		t.Errorf("fitted %v in %d pieces", &got, got.Parts[0].Data.Pieces())
	}
	for _, cores := range []int{1, 5} {
		old := runtime.GOMAXPROCS(cores)
		raw, err := got.Parts[0].Data.Bytes()
		runtime.GOMAXPROCS(old)
		if err != nil || !bytes.Equal(raw, want) {
			t.Errorf("%d cores: the bytes differ, %v", cores, err)
		}
	}
}

// TestTensorErrors: the error names the tensor and the place in it.
func TestTensorErrors(t *testing.T) {
	const n, k = 4100, 1024
	w := make([]float32, n*k)
	w[4098*k+17] = float32(math.NaN())
	w[4099*k+1] = float32(math.NaN())
	s, _ := scheme.ByName("q4_0")
	x, err := fit.Tensor(newTensor(t, w, n, k), s, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = x.Parts[0].Data.Bytes()
	var malformed *formats.FormatError
	if !errors.As(err, &malformed) || malformed.Tensor != "blk.w" || !strings.Contains(err.Error(), "row 4098, column 17") {
		t.Errorf("%v", err)
	}
	var unsupported *formats.UnsupportedError
	iq, _ := scheme.ByName("iq1_s")
	if _, err := fit.Tensor(newTensor(t, w[:k], 1, k), iq, nil); !errors.As(err, &unsupported) {
		t.Errorf("iq2_xs: %v", err)
	}
	q4k, _ := scheme.ByName("q4_k")
	if _, err := fit.Tensor(newTensor(t, w[:96], 1, 96), q4k, nil); !errors.As(err, &unsupported) {
		t.Errorf("rows of 96: %v", err)
	}
}
