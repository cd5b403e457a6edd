package cpu_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/formats/form"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
	kernels "github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/quantize/fit"
	"github.com/nstf/nstf/runtime/cpu"
	"github.com/nstf/nstf/runtime/device"
	"github.com/nstf/nstf/runtime/device/devicetest"
)

// A factory makes factors of random numbers.
type factory struct {
	t   *testing.T
	rng *rand.Rand
}

// factor makes one of the given size of its numbers in a scheme.
func (f *factory) factor(name, to string, size float64, shape ...int64) formats.Tensor {
	f.t.Helper()
	n, _ := tensor.Elements(shape)
	w := make([]float32, n)
	for i := range w {
		w[i] = float32(f.rng.NormFloat64() * size)
	}
	k := int(shape[len(shape)-1])
	s, _ := scheme.ByName(to)
	bytes, err := s.Size(shape, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	dst := make([]byte, bytes)
	fitter, _ := fit.For(s)
	if err := fitter(dst, w, nil, k); err != nil {
		f.t.Fatal(err)
	}
	x, err := scheme.New(name, s, shape, nil, tensor.BytesBlob(dst))
	if err != nil {
		f.t.Fatal(err)
	}
	return x
}

// formed makes a tensor of a form for a place in a graph, schemes varying with
// count.
func (f *factory) formed(w graph.Weight, count int) formats.Tensor {
	f.t.Helper()
	last := len(w.Shape) - 1
	n, k, r := w.Shape[last-1], w.Shape[last], int64(32)
	lead := w.Shape[:last-1]
	shape := func(a, b int64) []int64 { return append(append([]int64{}, lead...), a, b) }
	size := 1 / math.Sqrt(float64(k))
	a := f.factor("a", []string{"q8_0", "f16", "f32", "bf16"}[count%4], 1/math.Sqrt(float64(r)), shape(n, r)...)
	b := f.factor("b", []string{"f16", "q8_0", "q4_0"}[count%3], size, shape(r, k)...)
	q := f.factor("q", []string{"q4_0", "q8_0", "bf16"}[count%3], size, shape(n, k)...)
	id, params, factors := form.Corrected, map[string]int64(nil), []formats.Tensor{q, a, b}
	switch {
	case w.Role == graph.RoleEmbed || w.Role == graph.RoleHead && count%2 == 0:
		cores := []form.TrainCore{{Rows: 6, RankIn: 1, Columns: 4, RankOut: 5}, {Rows: 5, RankIn: 5, Columns: 4, RankOut: 7}, {Rows: (n + 29) / 30, RankIn: 7, Columns: k / 16, RankOut: 1}}
		id, params, factors = form.Train, form.TrainParams(cores), nil
		for i, c := range cores {
			factors = append(factors, f.factor(fmt.Sprintf("g%d", i+1), "f16", 0.3, c.Rows, c.RankIn*c.Columns*c.RankOut))
		}
	case len(lead) > 0 && count%3 != 0:
		e := lead[0]
		id, factors = form.Shared, []formats.Tensor{f.factor("c", "f32", 1, e, 2), f.factor("u", "q8_0", size, 2, n, k), q}
		if count%3 == 2 {
			factors = factors[:2]
		}
	case count%2 == 0:
		id, factors = form.LowRank, factors[1:]
	}
	x, err := form.New(w.Name, id, w.Shape, params, factors...)
	if err != nil {
		f.t.Fatal(err)
	}
	return x
}

// expanded returns a tensor as one matrix in float32.
func expanded(t *testing.T, x formats.Tensor) formats.Tensor {
	t.Helper()
	w, err := form.Decode(&x)
	if err != nil {
		t.Fatal(err)
	}
	data := make([]byte, 4*len(w))
	for i, v := range w {
		binary.LittleEndian.PutUint32(data[4*i:], math.Float32bits(v))
	}
	s, _ := scheme.ByName("f32")
	d, err := scheme.New(x.Name, s, x.Shape, nil, tensor.BytesBlob(data))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// testWidth wants a row's bits not to depend on its company, at every level, or where time is short at the best:
// the kernels of each are held to it by their own tests.
func testWidth(t *testing.T, m *model.Model, tensors func(string) formats.Tensor) {
	t.Helper()
	levels := kernels.Levels()
	if testing.Short() {
		levels = levels[len(levels)-1:]
	}
	for _, level := range levels {
		for _, exact := range []bool{false, true} {
			e, err := cpu.New(m.Graph, device.Whole(m.Graph), tensors, cpu.Options{Level: level.String(), Exact: exact, Threads: 2, Positions: 1 << 16})
			if err != nil {
				t.Fatal(err)
			}
			devicetest.TestWidth(t, e, devicetest.Widths{Vocab: m.Graph.Vocab, Few: []int{2, 3, 5, 8, 16}, Prompts: []int{5, 1, 20}, Prompt: 40})
			e.Close()
		}
	}
}

// withShared gives the mixture of the first block a shared layer.
func withShared(m *graph.MoE, inner int64) {
	linear := func(name string, role graph.Role, in, out int64) *graph.Linear {
		return &graph.Linear{Role: role, Weight: "blocks.0.moe." + name, In: in, Out: out, Input: "blocks.0.moe." + name}
	}
	d := m.Router.In
	m.Shared = &graph.FFN{Act: graph.SiLU, Gate: linear("shared.gate", graph.RoleGate, d, inner), Up: *linear("shared.up", graph.RoleUp, d, inner),
		Down: *linear("shared.down", graph.RoleDown, inner, d)}
	m.SharedGate = linear("shared_gate", graph.RoleRouter, d, 1)
}

// TestFormed holds models of every form to the same weights expanded to
// float32: lookups, prompts and steps, matrices, experts and tables.
func TestFormed(t *testing.T) {
	for _, name := range []string{"llama-31", "mixtral", "gptj", "llama-tied"} {
		t.Run(name, func(t *testing.T) {
			m, err := checkpoint.Open("../../testdata/micro/" + name)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			f := &factory{t, rand.New(rand.NewPCG(5, 5))}
			if x := m.Graph.Blocks[0].MoE; x != nil {
				withShared(x, 64)
			}
			coded, plain := map[string]formats.Tensor{}, map[string]formats.Tensor{}
			seen := map[string]int{}
			for i, w := range m.Graph.Weights() {
				var x formats.Tensor
				if strings.Contains(w.Name, "shared") {
					x = f.factor(w.Name, "f32", 1/math.Sqrt(float64(w.Shape[1])), w.Shape...)
				} else {
					x = m.Tensor(w.Name)
				}
				coded[w.Name], plain[w.Name] = x, x
				if w.Role == graph.RoleNorm || len(w.Shape) < 2 || w.Role == graph.RoleRouter || i%7 == 3 {
					continue
				}
				x = f.formed(w, i)
				seen[x.Form]++
				coded[w.Name], plain[w.Name] = x, expanded(t, x)
			}
			if len(seen) < 3 || name == "mixtral" && len(seen) < 4 {
				t.Fatalf("only %v seen", seen)
			}
			for _, c := range []struct {
				o      cpu.Options
				prompt int
				limit  float64
			}{
				{cpu.Options{Exact: true}, 12, 2e-5},
				{cpu.Options{Exact: true}, 1, 2e-5},
				{cpu.Options{Exact: true, Level: "generic"}, 12, 2e-5},
				{cpu.Options{}, 12, 0.05},
				{cpu.Options{}, 2, 0.05},
			} {
				got := logitsOf(t, m, func(n string) formats.Tensor { return coded[n] }, c.o, c.prompt)
				want := logitsOf(t, m, func(n string) formats.Tensor { return plain[n] }, cpu.Options{Exact: true}, c.prompt)
				var num, den float64
				for i := range got {
					num += math.Pow(float64(got[i]-want[i]), 2)
					den += math.Pow(float64(want[i]), 2)
				}
				if r := math.Sqrt(num / den); !(r <= c.limit) {
					t.Errorf("%+v, prompt %d: off by %.2g of the logits' size", c.o, c.prompt, r)
				}
			}
			testWidth(t, m, func(n string) formats.Tensor { return coded[n] })
		})
	}
}
