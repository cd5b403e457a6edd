package cpu_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
	"github.com/nstf/nstf/runtime/cpu"
	"github.com/nstf/nstf/runtime/device"
	"github.com/nstf/nstf/runtime/device/devicetest"
)

// trellisCoded returns what a model stores, matrices that fit it replaced by
// random trellis codes of about their size, and the same decoded to float32.
func trellisCoded(t *testing.T, m *model.Model) (coded, plain func(string) formats.Tensor) {
	t.Helper()
	s, _ := scheme.ByName("tcq")
	f32, _ := scheme.ByName("f32")
	rng := rand.New(rand.NewPCG(4, 4))
	a, b := map[string]formats.Tensor{}, map[string]formats.Tensor{}
	count := 0
	for _, w := range m.Graph.Weights() {
		x := m.Tensor(w.Name)
		p := scheme.TCQ{Bits: 2 + count%5, Codebook: scheme.TCQCodebook(1 + count%7/6), RotateIn: 16, RotateOut: 16, Seed: int64(count),
			InScales: count%3 == 1, OutScales: count%2 == 1}
		specs, err := s.Parts(x.Shape, p.Params())
		if err != nil || len(x.Shape) != 2 {
			a[w.Name], b[w.Name] = x, x
			continue
		}
		count++
		var parts []tensor.Blob
		for _, spec := range specs {
			raw := make([]byte, spec.Bytes)
			for i := range raw {
				raw[i] = byte(rng.Uint32())
			}
			for i := 1; spec.DType == tensor.F16 && i < len(raw); i += 2 {
				raw[i] = 0x30 | raw[i]&0x03 // about 0.2
				if spec.Name != "scales" {
					raw[i] += 0x0c // about 2
				}
			}
			parts = append(parts, tensor.BytesBlob(raw))
		}
		c, err := scheme.New(w.Name, s, x.Shape, p.Params(), parts...)
		if err != nil {
			t.Fatal(err)
		}
		d, err := scheme.Cast(c, f32)
		if err != nil {
			t.Fatal(err)
		}
		a[w.Name], b[w.Name] = c, d
	}
	if count < 5 {
		t.Fatalf("only %d matrices could be coded", count)
	}
	return func(name string) formats.Tensor { return a[name] }, func(name string) formats.Tensor { return b[name] }
}

// logitsOf runs a prompt, its tail row by row, and returns the last logits.
func logitsOf(t *testing.T, m *model.Model, tensors func(string) formats.Tensor, o cpu.Options, prompt int) []float32 {
	t.Helper()
	e, err := cpu.New(m.Graph, device.Whole(m.Graph), tensors, o)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	c := devicetest.State(t, e, 32)
	defer c.Release()
	tokens := []int32{3, 141, 59, 26, 53, 58, 97, 93, 23, 84, 62, 64, 33, 83, 27}
	var logits []float32
	for at := 0; at < len(tokens); {
		n := 1
		if at == 0 {
			n = prompt
		}
		logits = devicetest.Run(t, e, c, tokens[at:at+n], int64(len(tokens)), 1, m.Graph.Vocab)
		at += n
	}
	return logits
}

// TestRotated holds models of trellis codes to the same weights in float32:
// prompts by the matrix product, steps by the product with codes.
func TestRotated(t *testing.T) {
	for _, name := range []string{"llama-31", "gemma3", "gptj", "llama-tied"} {
		t.Run(name, func(t *testing.T) {
			m, err := checkpoint.Open("../../testdata/micro/" + name)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			coded, plain := trellisCoded(t, m)
			for _, c := range []struct {
				o      cpu.Options
				prompt int
				limit  float64
			}{
				{cpu.Options{Exact: true}, 12, 2e-5},
				{cpu.Options{Exact: true}, 1, 2e-5},
				{cpu.Options{Exact: true, Level: "generic"}, 12, 2e-5},
				{cpu.Options{}, 12, 0.1},
				{cpu.Options{}, 2, 0.1},
			} {
				got := logitsOf(t, m, coded, c.o, c.prompt)
				want := logitsOf(t, m, plain, cpu.Options{Exact: true}, c.prompt)
				var num, den float64
				for i := range got {
					num += math.Pow(float64(got[i]-want[i]), 2)
					den += math.Pow(float64(want[i]), 2)
				}
				if r := math.Sqrt(num / den); !(r <= c.limit) {
					t.Errorf("%+v, prompt %d: off by %.2g of the logits' size", c.o, c.prompt, r)
				}
			}
			testWidth(t, m, coded)
		})
	}
}
