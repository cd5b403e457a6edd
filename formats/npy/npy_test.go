package npy_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/npy"
)

func write(t testing.TB, x []float32, shape ...int64) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := npy.NewWriter(&b, shape...)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(x); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func Example() {
	var file bytes.Buffer
	w, _ := npy.NewWriter(&file, 2, 2)
	w.Write([]float32{1, 2})
	w.Write([]float32{3, 4})
	fmt.Println(w.Close())
	a, err := npy.Parse("logits.npy", file.Bytes())
	fmt.Println(a.Shape, a.Data, err)
	// Output:
	// <nil>
	// [2 2] [1 2 3 4] <nil>
}

func TestRoundTrip(t *testing.T) {
	x := []float32{0, -1.5, float32(math.Inf(1)), 1e-45, 3, 4}
	for _, shape := range [][]int64{{6}, {2, 3}, {1, 6, 1}} {
		p := write(t, x, shape...)
		if i := bytes.IndexByte(p, '\n'); (i+1)%64 != 0 {
			t.Errorf("%v: numbers begin at %d, not a multiple of 64", shape, i+1)
		}
		if n, err := npy.Size(shape...); err != nil || n != int64(len(p)) {
			t.Errorf("%v: Size says %d, %v; the file has %d", shape, n, err, len(p))
		}
		a, err := npy.Parse("x", p)
		if err != nil || !reflect.DeepEqual(a.Shape, shape) || !reflect.DeepEqual(a.Data, x) {
			t.Errorf("%v: %v, %v", shape, a, err)
		}
	}
}

// The reference logits were written by NumPy itself.
func TestReadsNumPysFiles(t *testing.T) {
	p, err := os.ReadFile("../../testdata/micro/llama-headdim/logits.npy")
	if err != nil {
		t.Fatal(err)
	}
	a, err := npy.Parse("logits.npy", p)
	if err != nil {
		t.Fatal(err)
	}
	if got := write(t, a.Data, a.Shape...); !bytes.Equal(got, p) {
		t.Errorf("written again it differs from NumPy's: headers %q and %q", got[:128], p[:128])
	}
}

func TestMissingNumbers(t *testing.T) {
	w, err := npy.NewWriter(&bytes.Buffer{}, 3)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write([]float32{1, 2}); err != nil {
		t.Fatal(err)
	}
	if w.Close() == nil {
		t.Error("Close accepted 2 numbers of 3")
	}
}

func TestMalformed(t *testing.T) {
	good := string(write(t, []float32{1, 2}, 2))
	for name, c := range map[string]struct {
		file        string
		unsupported bool
	}{
		"empty":        {"", false},
		"magic":        {"PK\x03\x04" + good[4:], false},
		"version 2":    {good[:6] + "\x02" + good[7:], true},
		"cut":          {good[:9], false},
		"header":       {good[:20], false},
		"short":        {good[:len(good)-1], false},
		"long":         {good + "x", false},
		"other type":   {strings.Replace(good, "<f4", "<f8", 1), true},
		"fortran":      {strings.Replace(good, "False", "True ", 1), true},
		"no descr":     {strings.Replace(good, "descr", "decsr", 1), false},
		"no shape":     {strings.Replace(good, "shape", "shpae", 1), false},
		"negative":     {strings.Replace(good, "(2,)", "(-2)", 1), false},
		"overflow":     {strings.Replace(good, "(2,), }                              ", "(4611686018427387904, 4611686018427387904), }", 1), false},
		"no number":    {strings.Replace(good, "(2,)", "(2a)", 1), false},
		"open tuple":   {strings.Replace(good, "(2,)", "(2, ", 1), false},
		"no dict":      {strings.Replace(good, "{", " ", 1), false},
		"no order":     {strings.Replace(good, "False", "false", 1), false},
		"other number": {strings.Replace(good, "(2,)", "(3,)", 1), false},
	} {
		_, err := npy.Parse("f.npy", []byte(c.file))
		var f *formats.FormatError
		var u *formats.UnsupportedError
		if errors.As(err, &u) != c.unsupported || errors.As(err, &f) == c.unsupported {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(write(f, []float32{1, 2, 3, 4, 5, 6}, 2, 3))
	f.Add(write(f, nil, 0))
	f.Fuzz(func(t *testing.T, p []byte) {
		a, err := npy.Parse("f", p)
		if err != nil {
			return
		}
		if b, err := npy.Parse("f", write(t, a.Data, a.Shape...)); err != nil || !reflect.DeepEqual(a.Shape, b.Shape) {
			t.Errorf("%v written again: %v, %v", a.Shape, b, err)
		}
	})
}
