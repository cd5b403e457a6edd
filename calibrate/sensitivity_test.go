package calibrate_test

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"math"
	"os"
	"slices"
	"testing"

	"github.com/nstf/nstf/calibrate"
	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/safetensors"
	"github.com/nstf/nstf/formats/tensor"
)

func someWindows(vocab int64) (out [][]int32) {
	for w := range 4 {
		ids := make([]int32, 40)
		for i := range ids {
			ids[i] = int32((i*i*7 + w*131 + i*17) % int(vocab))
		}
		out = append(out, ids)
	}
	return out
}

// TestSensitivities measures every matrix but routers, in proportion to the
// error at any size, the same at any number of threads and wherever hidden
// states lie.
func TestSensitivities(t *testing.T) {
	for _, name := range []string{"llama-31", "llama-tied", "mixtral", "gpt2", "gemma4-e"} {
		m := openMicro(t, name)
		windows := someWindows(m.Graph.Vocab)
		measure := func(o calibrate.Options, relative float64) map[string]float64 {
			s, err := calibrate.Measure(context.Background(), m, windows, o)
			if err != nil {
				t.Fatal(name, err)
			}
			defer s.Close()
			if err := calibrate.Sensitivities(context.Background(), m, s, windows, calibrate.SensitivityOptions{Options: o, Relative: relative}); err != nil {
				t.Fatal(name, err)
			}
			return s.Sensitivity
		}
		got := measure(calibrate.Options{Threads: 2}, 1e-3)
		for _, w := range m.Graph.Weights() {
			v, ok := got[w.Name]
			matrix := len(w.Shape) > 1 && w.Role != graph.RoleRouter && w.Role != graph.RoleNorm && w.Name != m.Graph.Embed.Positions
			if ok != matrix || ok && !(v > 0 && v < 1e6) {
				t.Errorf("%s: %s has sensitivity %g", name, w.Name, v)
			}
		}
		dir := t.TempDir()
		if again := measure(calibrate.Options{Threads: 1, Memory: 1, Dir: dir}, 1e-3); !maps.Equal(got, again) {
			t.Errorf("%s: one thread and little memory give other sensitivities", name)
		}
		if left, _ := os.ReadDir(dir); len(left) > 0 {
			t.Errorf("%s: %v is left", name, left)
		}
		if m.Graph.Blocks[0].MoE != nil || name == "gemma4-e" {
			continue // other experts are chosen, in a step; scores that nothing scales down are steep
		}
		for tensor, v := range measure(calibrate.Options{}, 1e-4) {
			if r := v / got[tensor]; !(r > 0.7 && r < 1.4) {
				t.Errorf("%s: %s is %g at a tenth of the error, %g", name, tensor, v, got[tensor])
			}
		}
	}
}

// TestMemory wants the same statistics wherever hidden states and moments lie.
func TestMemory(t *testing.T) {
	for _, name := range []string{"mixtral", "gemma4-e"} { // the latter's blocks read keys and values of others
		testMemory(t, openMicro(t, name))
	}
}

func testMemory(t *testing.T, m *model.Model) {
	t.Helper()
	windows := someWindows(m.Graph.Vocab)
	all, err := calibrate.Measure(context.Background(), m, windows, calibrate.Options{})
	if err != nil {
		t.Fatal(err)
	}
	want, err := all.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	little, err := calibrate.Measure(context.Background(), m, windows, calibrate.Options{Memory: 1, Dir: dir, Threads: 3})
	if err != nil {
		t.Fatal(err)
	}
	got, err := little.Bytes()
	if err != nil || string(got) != string(want) {
		t.Errorf("little memory gives other statistics: %v", err)
	}
	if err := little.Close(); err != nil {
		t.Error(err)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
	if _, err := calibrate.Measure(context.Background(), m, windows, calibrate.Options{Memory: 1, Dir: dir + "/none"}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a folder that does not exist: %v", err)
	}
}

// TestExpertsApart adds up experts to what all of them read, and covers those
// that few tokens came to.
func TestExpertsApart(t *testing.T) {
	m := openMicro(t, "mixtral")
	f, err := calibrate.Measure(context.Background(), m, someWindows(m.Graph.Vocab)[:1], calibrate.Options{})
	if err != nil {
		t.Fatal(err)
	}
	moe := m.Graph.Blocks[0].MoE
	for input, tokens := range map[string]int64{moe.Gate.Input: 40, moe.Down.Input: 40 * moe.TopK} {
		list, all := f.Experts[input], f.Inputs[input]
		if int64(len(list)) != moe.Experts || all.Tokens != tokens {
			t.Fatalf("%s: %d experts, %d tokens", input, len(list), all.Tokens)
		}
		sum, routed := make([]float64, all.K*all.K), int64(0)
		for _, e := range list {
			h, err := e.Moments()
			if err != nil {
				t.Fatal(err)
			}
			routed += e.Tokens
			for i, v := range h {
				sum[i] += v * float64(e.Tokens) / float64(40*moe.TopK)
			}
		}
		if routed != 40*moe.TopK {
			t.Errorf("%s: %d tokens came to experts", input, routed)
		}
		if input != moe.Down.Input {
			continue
		}
		want, _ := all.Moments()
		for i, v := range sum {
			if math.Abs(v-want[i]) > 1e-5*math.Sqrt(want[i/all.K*(all.K+1)]*want[i%all.K*(all.K+1)])+1e-12 {
				t.Fatalf("%s: experts add up to %g, all read %g", input, v, want[i])
			}
		}
	}
	c := f.Coverage()
	if len(c) != 2*len(m.Graph.Blocks) || len(c[0].Shrunk)+len(c[0].Block) != int(moe.Experts) {
		t.Errorf("40 tokens cover %+v", c)
	}
}

// TestNotFinite names the weight that is damaged, behind which an input is not finite.
func TestNotFinite(t *testing.T) {
	m := openMicro(t, "llama-f32")
	for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(1))} {
		broken := withValue(t, "model.layers.1.input_layernorm.weight", bad)
		_, err := calibrate.Measure(context.Background(), broken, someWindows(m.Graph.Vocab), calibrate.Options{})
		var f *formats.FormatError
		if !errors.As(err, &f) || f.Tensor != m.Graph.Blocks[1].AttnNorm.Weight || f.File == "" {
			t.Errorf("%v: %v", bad, err)
		}
	}
}

// TestDeadChannel measures a feature that is always zero: no number is lost.
func TestDeadChannel(t *testing.T) {
	m := withValue(t, "model.layers.0.input_layernorm.weight", 0)
	f, err := calibrate.Measure(context.Background(), m, someWindows(m.Graph.Vocab), calibrate.Options{})
	if err != nil {
		t.Fatal(err)
	}
	in := f.Inputs[m.Graph.Blocks[0].Attn.Q.Input]
	h, _ := in.Moments()
	if h[0] != 0 || in.AbsMax[0] != 0 || h[in.K+1] == 0 {
		t.Errorf("the dead feature has moment %g", h[0])
	}
	if err := calibrate.Sensitivities(context.Background(), m, f, someWindows(m.Graph.Vocab), calibrate.SensitivityOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, v := range f.Sensitivity {
		if math.IsNaN(v) || v < 0 {
			t.Errorf("%s: %g", name, v)
		}
	}
}

// withValue opens a micro checkpoint in which the first number of a float32
// tensor is another.
func withValue(t *testing.T, name string, value float32) *model.Model {
	t.Helper()
	const from = "../testdata/micro/llama-f32"
	dir := t.TempDir()
	config, err := os.ReadFile(from + "/config.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/config.json", config, 0o666); err != nil {
		t.Fatal(err)
	}
	f, err := safetensors.Open(from + "/model.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	tensors, changed := f.Tensors(), false
	for i := range tensors {
		if tensors[i].Name == name {
			raw, err := tensors[i].Parts[0].Data.Bytes()
			if err != nil {
				t.Fatal(err)
			}
			raw = slices.Clone(raw)
			tensor.FromFloat32(raw[:4], []float32{value}, tensor.F32)
			tensors[i].Parts[0].Data, changed = tensor.BytesBlob(raw), true
		}
	}
	if !changed {
		t.Fatalf("no tensor %s", name)
	}
	w, err := safetensors.NewWriter(map[string]string{"format": "pt"}, tensors)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if _, err := w.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	f.Close()
	if err := os.WriteFile(dir+"/model.safetensors", b.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
	m, err := checkpoint.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}
