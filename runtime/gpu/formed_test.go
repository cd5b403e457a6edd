package gpu_test

import (
	"errors"
	"flag"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/formats/form"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/runtime/cpu"
	"github.com/nstf/nstf/runtime/device"
	"github.com/nstf/nstf/runtime/device/devicetest"
	"github.com/nstf/nstf/runtime/gpu"
)

var (
	deviceFlag  = flag.String("device", "", "hip or cuda: where the tests of whole models run; default: nowhere")
	kernelsFlag = flag.String("kernels", "", "folder that keeps compiled kernels; default: each test compiles its own")
	partsFlag   = flag.Int("parts", 1, "of so many parts of the models, ...")
	partFlag    = flag.Int("part", 0, "... run this one, from 0 on")
)

// logits runs a prompt, the rest of a text by steps, and returns the last of the
// prompt's and of the text's logits.
func logits(t *testing.T, e device.Stage, vocab int64, prompt int) []float32 {
	t.Helper()
	tokens := []int32{3, 141, 59, 26, 53, 58, 97, 93, 23, 84, 62, 64, 33, 83, 27, 5, 14, 31, 92, 65, 35, 89, 79}
	c := devicetest.State(t, e, 32)
	defer c.Release()
	var all []float32
	for at := 0; at < prompt+2; {
		n := 1
		if at == 0 {
			n = prompt
		}
		all = append(all, devicetest.Run(t, e, c, tokens[at:at+n], int64(len(tokens)), 1, vocab)...)
		at += n
	}
	return all
}

// TestForms holds models of every form to the processor: lookups, prompts and
// steps, matrices, experts and tables.
func TestForms(t *testing.T) {
	if *deviceFlag == "" {
		t.Skip("no -device")
	}
	folder := *kernelsFlag
	if folder == "" {
		folder = t.TempDir()
	}
	for i, k := range kinds() {
		if i%*partsFlag != *partFlag%*partsFlag {
			continue
		}
		t.Run(k.String(), func(t *testing.T) {
			m, err := checkpoint.Open("../../testdata/micro/" + k.model)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			tensors := k.tensors(t, m)
			reference, err := cpu.New(m.Graph, device.Whole(m.Graph), tensors, cpu.Options{Exact: true, Positions: 1 << 16})
			if err != nil {
				t.Fatal(err)
			}
			defer reference.Close()
			modes := []bool{true, false}
			if testing.Short() { // kernels are compiled for each
				modes = modes[i%2 : i%2+1]
			}
			for _, exact := range modes {
				e, err := gpu.New(m.Graph, device.Whole(m.Graph), tensors, gpu.Options{API: hip.API(*deviceFlag), Exact: exact, Context: 64, Sequences: 40, Kernels: folder})
				if err != nil {
					t.Fatal(err)
				}
				checkPlan(t, e.Plan(), m, tensors)
				for _, prompt := range []int{19, 1, 3} {
					got, want := logits(t, e, m.Graph.Vocab, prompt), logits(t, reference, m.Graph.Vocab, prompt)
					limit := 2e-5
					if !exact { // bytes, in models of 32 columns
						limit = 0.05
					}
					if off := difference(got, want); !(off <= limit) {
						t.Errorf("exact %v, prompt of %d: off by %.2g of the logits' size", exact, prompt, off)
					} else {
						t.Logf("exact %v, prompt of %d: off by %.2g", exact, prompt, off)
					}
				}
				devicetest.TestWidth(t, e, devicetest.Widths{Vocab: m.Graph.Vocab, Few: []int{3, 16}, Prompts: []int{5, 1}})
				if got, want := greedy(t, e, m.Graph.Vocab), greedy(t, reference, m.Graph.Vocab); exact && !slices.Equal(got, want) {
					t.Errorf("goes on with %d, the processor with %d", got, want)
				}
				if err := e.Close(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// checkPlan holds what is planned for weights to what is stored: nothing is expanded
// but vectors, to float32, and each part begins at a multiple of 256 bytes.
func checkPlan(t *testing.T, p gpu.Plan, m *model.Model, tensors func(string) formats.Tensor) {
	t.Helper()
	var least, most int64
	for _, w := range m.Graph.Weights() {
		x := tensors(w.Name)
		for _, part := range x.Parts {
			least += part.Data.Len()
			most += part.Data.Len() + 256
		}
		if n, k := x.Rows(); len(x.Shape) < 2 {
			most += 4 * n * k
		}
		if c, ok := form.Factor(&x, "c"); ok {
			most += 4 * c.Shape[0] * c.Shape[1]
		}
	}
	if p.Weights < least || p.Weights > most {
		t.Errorf("%d bytes of weights are planned, %d to %d are needed", p.Weights, least, most)
	}
}

// greedy goes on with a text by the likeliest tokens.
func greedy(t *testing.T, e device.Stage, vocab int64) (ids []int32) {
	t.Helper()
	c := devicetest.State(t, e, 32)
	defer c.Release()
	tokens := []int32{3, 141, 59, 26, 53}
	for range 10 {
		row := devicetest.Run(t, e, c, tokens, 32, 1, vocab)
		best := 0
		for i, v := range row {
			if v > row[best] {
				best = i
			}
		}
		tokens = []int32{int32(best)}
		ids = append(ids, tokens[0])
	}
	return ids
}

// difference is the root mean square of a difference in parts of what is wanted.
func difference(got, want []float32) float64 {
	var num, den float64
	for i := range got {
		num += math.Pow(float64(got[i]-want[i]), 2)
		den += math.Pow(float64(want[i]), 2)
	}
	return math.Sqrt(num / den)
}

// TestFormsUnits lists the kernels of every form for targets that are not here.
func TestFormsUnits(t *testing.T) {
	for _, k := range kinds() {
		m, err := checkpoint.Open("../../testdata/micro/" + k.model)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		want := map[form.ID][]string{
			form.Corrected: {"matvec.hip", "matmul.hip"}, form.LowRank: {"thin.hip", "contract.hip"},
			form.Shared: {"mix.hip"}, form.Train: {"digits.hip", "contract.hip"},
		}[k.form]
		for _, arch := range []string{"gfx90a", "sm_90"} {
			target, err := hip.ParseTarget(arch)
			if err != nil {
				t.Fatal(err)
			}
			units, err := gpu.Units(m.Graph, k.tensors(t, m), target, gpu.Options{})
			if err != nil {
				t.Fatalf("%s: %v", arch, err)
			}
			var files []string
			for _, u := range units {
				files = append(files, u.File)
			}
			for _, file := range want {
				if !slices.Contains(files, file) && !(file == "digits.hip" && !k.tables) {
					t.Errorf("%v, %s: no unit of %s", &k, arch, file)
				}
			}
		}
	}
}

// TestFormsRefused names the tensor and what is not run.
func TestFormsRefused(t *testing.T) {
	m, err := checkpoint.Open("../../testdata/micro/llama-31")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	f := &factory{t, rand.New(rand.NewPCG(1, 1))}
	name := m.Graph.Blocks[0].Attn.Q.Weight
	unknown := m.Tensor(name)
	unknown.Form = "woven"
	wrong := m.Tensor(name)
	wrong.Form, wrong.Scheme, wrong.Parts = "lowrank", form.SchemeName, nil
	wrong.Factors = []formats.Tensor{f.factor("a", "f32", 1, 64, 4), f.factor("b", "f32", 1, 5, 32)}
	target, _ := hip.ParseTarget("sm_90")
	units := func(x formats.Tensor) error {
		_, err := gpu.Units(m.Graph, func(n string) formats.Tensor {
			if n == name {
				return x
			}
			return m.Tensor(n)
		}, target, gpu.Options{})
		return err
	}
	var unsupported *formats.UnsupportedError
	if err := units(unknown); !errors.As(err, &unsupported) || unsupported.Tensor != name || !strings.Contains(err.Error(), `form "woven"`) {
		t.Errorf("an unknown form gives %v", err)
	}
	var malformed *formats.FormatError
	if err := units(wrong); !errors.As(err, &malformed) || malformed.Tensor != name {
		t.Errorf("factors that do not fit give %v", err)
	}
}
