package fit_test

import (
	"encoding/binary"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
	"github.com/nstf/nstf/quantize/fit"
	"github.com/nstf/nstf/testdata/packed"
)

const vectors = "../../testdata/vectors"

func readF32(t testing.TB, name string) []float32 {
	t.Helper()
	raw := packed.Read(t, filepath.Join(vectors, name))
	out := make([]float32, len(raw)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return out
}

func rmse(a, b []float32) float64 {
	var sum float64
	for i := range a {
		d := float64(a[i]) - float64(b[i])
		sum += d * d
	}
	return math.Sqrt(sum / float64(len(a)))
}

// fitted packs and decodes rows of k weights.
func fitted(t testing.TB, s *scheme.Scheme, w, importance []float32, k int) []float32 {
	t.Helper()
	f, ok := fit.For(s)
	if !ok {
		t.Fatalf("no fitter for %s", s)
	}
	shape := []int64{int64(len(w) / k), int64(k)}
	size, err := s.Size(shape, nil)
	if err != nil {
		t.Fatal(err)
	}
	packed := make([]byte, size)
	if err := f(packed, w, importance, k); err != nil {
		t.Fatal(err)
	}
	x, err := scheme.New("w", s, shape, nil, tensor.BytesBlob(packed))
	if err != nil {
		t.Fatal(err)
	}
	out := make([]float32, len(w))
	if err := scheme.DecodeRows(out, &x, 0, shape[0]); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestAgainstGGML packs the source of ggml's vectors and asks for no more
// error than ggml's own packing has.
func TestAgainstGGML(t *testing.T) {
	source := readF32(t, "source.f32")
	for _, name := range []string{"q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s", "iq4_nl", "iq4_xs", "mxfp4", "q1_0", "q2_0"} {
		t.Run(name, func(t *testing.T) {
			s, _ := scheme.ByName(name)
			ours := rmse(source, fitted(t, s, source, nil, 768))
			theirs := rmse(source, readF32(t, strings.ToUpper(name)+".f32"))
			t.Logf("rmse %.6g, ggml %.6g, ratio %.4f", ours, theirs, ours/theirs)
			most := theirs
			if name == "q1_0" { // a weight within a 256th of the scale has either sign
				most *= 1 + 1e-4
			}
			if !(ours <= most) {
				t.Errorf("rmse %.6g is worse than ggml's %.6g", ours, theirs)
			}
		})
	}
}
