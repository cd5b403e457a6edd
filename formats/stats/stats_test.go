package stats_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/atomicfile"
	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/safetensors"
	"github.com/nstf/nstf/formats/stats"
	"github.com/nstf/nstf/formats/tensor"
)

// sample is statistics of two inputs, one of them of two experts.
func sample(scale float32, tokens int64) *stats.File {
	return &stats.File{
		Source: stats.Source{Model: "m", ModelHash: "ab", Text: "t", TextHash: "cd", Context: 8, Windows: 2, Seed: 1<<64 - 1, Tokens: tokens, Level: "generic", Tool: "x"},
		Inputs: map[string]*stats.Input{
			"a":    stats.NewInput(2, tokens, []float32{1 * scale, 2 * scale, 5 * scale}, []float32{3 * scale, 4}),
			"b":    stats.NewDiagonal(3, tokens, []float32{scale, 0, 2}),
			"none": {K: 4},
		},
		Experts:     map[string][]*stats.Input{"a": {stats.NewInput(2, 1, []float32{4, 0, 4}, nil), {K: 2}}},
		Sensitivity: map[string]float64{"w": float64(scale)},
	}
}

func ExampleFile_Moments() {
	f := sample(1, 100)
	all, _ := f.Moments("a", -1)
	few, _ := f.Moments("a", 0) // one token came to this expert
	none, _ := f.Moments("a", 1)
	fmt.Printf("%v\n%.3f\n%v\n", all, few, none)
	// Output:
	// [1 2 2 5]
	// [1.006 1.996 1.996 4.998]
	// [1 2 2 5]
}

func TestRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.nstats")
	f := sample(2, 100)
	if err := f.Write(atomicfile.Scratch(path)); err != nil {
		t.Fatal(err)
	}
	g, err := stats.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if g.Source != f.Source || g.Sensitivity["w"] != 2 || len(g.Inputs) != 3 || g.Inputs["none"].Tokens != 0 || len(g.Experts["a"]) != 2 {
		t.Errorf("%+v", g)
	}
	h, err := g.Inputs["a"].Moments()
	if err != nil || fmt.Sprint(h) != "[2 4 4 10]" || g.Inputs["a"].AbsMax[1] != 4 || g.Inputs["a"].Tokens != 100 {
		t.Errorf("%v %v %v", h, g.Inputs["a"], err)
	}
	d, err := g.Inputs["a"].Diagonal()
	if err != nil || fmt.Sprint(d) != "[2 10]" {
		t.Errorf("%v %v", d, err)
	}
	if h, err := g.Inputs["b"].Moments(); err != nil || fmt.Sprint(h) != "[2 0 0 0 0 0 0 0 2]" || g.Inputs["b"].Full() {
		t.Errorf("%v %v", h, err)
	}
	if _, err := g.Moments("c", -1); err == nil {
		t.Error("an input that is not here was found")
	}
	one, _ := f.Bytes()
	two, err := g.Bytes()
	if err != nil || string(one) != string(two) {
		t.Error("what was read is written otherwise")
	}
	c := g.Coverage()
	if len(c) != 1 || len(c[0].Shrunk) != 1 || len(c[0].Block) != 1 {
		t.Errorf("%+v", c)
	}
}

func TestMerge(t *testing.T) {
	m, err := stats.Merge(sample(1, 100), sample(4, 300))
	if err != nil {
		t.Fatal(err)
	}
	h, err := m.Inputs["a"].Moments()
	if err != nil || math.Abs(h[0]-3.25) > 1e-6 || math.Abs(h[3]-16.25) > 1e-5 || m.Inputs["a"].Tokens != 400 || m.Inputs["a"].AbsMax[0] != 12 {
		t.Errorf("%v %v", h, err)
	}
	if d, _ := m.Inputs["b"].Diagonal(); math.Abs(d[0]-3.25) > 1e-6 {
		t.Errorf("%v", d)
	}
	if m.Experts["a"][0].Tokens != 2 || m.Experts["a"][1].Tokens != 0 || math.Abs(m.Sensitivity["w"]-3.25) > 1e-12 || m.Source.Tokens != 400 {
		t.Errorf("%+v", m)
	}
	p, err := m.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stats.Parse("m", p); err != nil {
		t.Error(err)
	}
	other := sample(1, 1)
	other.Source.ModelHash = "other"
	fewer := sample(1, 1)
	delete(fewer.Inputs, "b")
	diagonal := sample(1, 1)
	diagonal.Inputs["a"] = stats.NewDiagonal(2, 1, []float32{1, 1})
	for i, bad := range []*stats.File{other, fewer, diagonal} {
		var f *formats.FormatError
		if _, err := stats.Merge(sample(1, 1), bad); !errors.As(err, &f) {
			t.Errorf("%d: %v", i, err)
		}
	}
}

// TestOfAnotherModel refuses statistics by the model's contents, and by inputs.
func TestOfAnotherModel(t *testing.T) {
	var ms []*model.Model
	for _, name := range []string{"llama-3", "llama-31"} {
		m, err := checkpoint.Open("../../testdata/micro/" + name)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		ms = append(ms, m)
	}
	hash, err := stats.Fingerprint(ms[0])
	if err != nil {
		t.Fatal(err)
	}
	f := &stats.File{Path: "x.nstats", Source: stats.Source{ModelHash: hash}, Inputs: map[string]*stats.Input{}}
	if err := f.Check(ms[0]); err != nil {
		t.Error(err)
	}
	var format *formats.FormatError
	if err := f.Check(ms[1]); !errors.As(err, &format) || !strings.Contains(err.Error(), "another model") {
		t.Error(err)
	}
	f.Source.ModelHash = ""
	if err := f.Check(ms[1]); err != nil {
		t.Error(err)
	}
	f.Inputs["nowhere"] = &stats.Input{K: 3}
	if err := f.Check(ms[1]); !errors.As(err, &format) || format.Tensor != "nowhere" {
		t.Error(err)
	}
}

func pack(head string, tensors ...formats.Tensor) []byte {
	w, err := safetensors.NewWriter(map[string]string{"nstf.stats": head}, tensors)
	if err != nil {
		panic(err)
	}
	var b strings.Builder
	w.WriteTo(&b)
	return []byte(b.String())
}

func floats(name string, v ...float32) formats.Tensor {
	raw := make([]byte, 4*len(v))
	tensor.FromFloat32(raw, v, tensor.F32)
	shape := []int64{int64(len(v))}
	return formats.Tensor{Name: name, Shape: shape, Scheme: "f32", Parts: []formats.Part{{Name: "data", DType: tensor.F32, Shape: shape, Data: tensor.BytesBlob(raw)}}}
}

func TestMalformed(t *testing.T) {
	const source = `"source":{"model":"m"}`
	good := `{"version":1,` + source + `,"inputs":{"a":{"k":2,"tokens":1}}}`
	if _, err := stats.Parse("g", pack(good, floats("diagonal:a", 1, 2))); err != nil {
		t.Fatal(err)
	}
	for name, p := range map[string][]byte{
		"no document":     pack(``),
		"not JSON":        pack(`{`),
		"no inputs":       pack(`{"version":1,` + source + `}`),
		"unknown key":     pack(`{"version":1,"x":1,` + source + `,"inputs":{}}`),
		"twice":           pack(`{"version":1,` + source + `,"inputs":{"a":{"k":2,"tokens":0},"a":{"k":2,"tokens":0}}}`),
		"huge":            pack(`{"version":1,` + source + `,"inputs":{"a":{"k":9999999999,"tokens":0}}}`),
		"zero":            pack(`{"version":1,` + source + `,"inputs":{"a":{"k":0,"tokens":0}}}`),
		"negative":        pack(`{"version":1,` + source + `,"inputs":{"a":{"k":2,"tokens":-1}}}`),
		"nothing there":   pack(good),
		"short":           pack(good, floats("moments:a", 1, 2)),
		"a stranger":      pack(good, floats("diagonal:a", 1, 2), floats("x", 1)),
		"NaN":             pack(good, floats("diagonal:a", 1, float32(math.NaN()))),
		"infinite":        pack(good, floats("diagonal:a", 1, 2), floats("absmax:a", float32(math.Inf(1)), 1)),
		"experts of none": pack(`{"version":1,` + source + `,"inputs":{},"experts":{"b":[0]}}`),
		"sensitivity":     pack(`{"version":1,` + source + `,"inputs":{},"sensitivity":{"w":-1}}`),
		"behind":          pack(`{"version":1,` + source + `,"inputs":{}} x`),
	} {
		_, err := stats.Parse("f", p)
		var f *formats.FormatError
		if !errors.As(err, &f) || f.File != "f" {
			t.Errorf("%s: %v", name, err)
		}
	}
	var u *formats.UnsupportedError
	if _, err := stats.Parse("f", pack(`{"version":3,`+source+`,"inputs":{}}`)); !errors.As(err, &u) {
		t.Errorf("a later version: %v", err)
	}
	whole, _ := sample(1, 2).Bytes()
	for i := range whole { // none but a checksum sees most of these
		bad := bytes.Clone(whole)
		bad[i] ^= 0x04
		if _, err := stats.Parse("f", bad); err == nil {
			t.Errorf("damaged at %d: read", i)
		}
	}
	if _, err := stats.Parse("f", pack(good, floats("diagonal:a", 1, 2))); err != nil {
		t.Errorf("version 1, which has no checksum: %v", err)
	}
	for n := 0; n < len(whole); n += 7 {
		if _, err := stats.Parse("f", whole[:n]); err == nil {
			t.Fatalf("cut at %d: read", n)
		}
	}
	if _, err := stats.Open(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

func FuzzParse(f *testing.F) {
	p, _ := sample(1, 10).Bytes()
	f.Add(p)
	f.Add(pack(`{"version":1,"source":{},"inputs":{"a":{"k":1,"tokens":1}},"experts":{"a":[0,0]}}`, floats("moments:a", 1)))
	f.Fuzz(func(t *testing.T, p []byte) {
		s, err := stats.Parse("f", p)
		if err != nil {
			return
		}
		for name, in := range s.Inputs {
			if in.K > 1000 {
				continue
			}
			if _, err := s.Moments(name, 0); err != nil {
				t.Error(err)
			}
			if in.Tokens > 0 && int64(in.K)*4 > int64(len(p)) {
				t.Errorf("%d features out of %d bytes", in.K, len(p))
			}
		}
		again, err := s.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stats.Parse("again", again); err != nil {
			t.Errorf("what was read is written so that it cannot be: %v", err)
		}
	})
}
