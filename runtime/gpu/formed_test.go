package gpu_test

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/form"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/quantize/fit"
	"github.com/nstf/nstf/runtime/cpu"
	"github.com/nstf/nstf/runtime/device"
	"github.com/nstf/nstf/runtime/gpu"
)

var (
	deviceFlag  = flag.String("device", "", "hip or cuda: where the tests of whole models run; default: nowhere")
	kernelsFlag = flag.String("kernels", "", "folder that keeps compiled kernels; default: each test compiles its own")
	partsFlag   = flag.Int("parts", 1, "of so many parts of the models, ...")
	partFlag    = flag.Int("part", 0, "... run this one, from 0 on")
)

// A factory makes tensors of random numbers.
type factory struct {
	t   *testing.T
	rng *rand.Rand
}

// factor makes one in a scheme, with numbers of the given size: "tcq3" is random
// codes of about it.
func (f *factory) factor(name, to string, size float64, shape ...int64) formats.Tensor {
	f.t.Helper()
	if bits, ok := strings.CutPrefix(to, "tcq"); ok {
		return f.trellis(name, int(bits[0]-'0'), size, shape)
	}
	n, _ := tensor.Elements(shape)
	w := make([]float32, n)
	for i := range w {
		w[i] = float32(f.rng.NormFloat64() * size)
	}
	s, _ := scheme.ByName(to)
	bytes, err := s.Size(shape, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	dst := make([]byte, bytes)
	fitter, _ := fit.For(s)
	if err := fitter(dst, w, nil, int(shape[len(shape)-1])); err != nil {
		f.t.Fatal(err)
	}
	x, err := scheme.New(name, s, shape, nil, tensor.BytesBlob(dst))
	if err != nil {
		f.t.Fatal(err)
	}
	return x
}

// trellis makes random codes, all rotated alike.
func (f *factory) trellis(name string, bits int, size float64, shape []int64) formats.Tensor {
	f.t.Helper()
	s, _ := scheme.ByName("tcq")
	p := scheme.TCQ{Bits: bits, Codebook: scheme.TCQCodebookFor(bits), RotateIn: 16, RotateOut: 16, Seed: 9}
	specs, err := s.Parts(shape, p.Params())
	if err != nil {
		f.t.Fatal(err)
	}
	var parts []tensor.Blob
	for _, spec := range specs {
		raw := make([]byte, spec.Bytes)
		for i := range raw {
			raw[i] = byte(f.rng.Uint32())
		}
		for i := 0; spec.DType == tensor.F16 && i < len(raw); i += 2 {
			h := tensor.F32ToF16(float32(size))
			raw[i], raw[i+1] = byte(h), byte(h>>8)
		}
		parts = append(parts, tensor.BytesBlob(raw))
	}
	x, err := scheme.New(name, s, shape, p.Params(), parts...)
	if err != nil {
		f.t.Fatal(err)
	}
	return x
}

// A kind is what the matrices of a model are made of.
type kind struct {
	model   string
	form    form.ID
	q, a, b []string // schemes of the factors, by turns; q "" is none
	rank    int64
	tables  bool // embedding and head too
}

func (k *kind) String() string {
	f, _ := form.ByID(k.form)
	return k.model + "/" + f.Name + strings.Join(append(slices.Clone(k.q), k.b...), "-")
}

// kinds are models of which every form is run: on every path of products, tables
// and experts.
func kinds() []kind {
	return []kind{
		{"llama-31", form.Corrected, []string{"q4_0", "tcq3", "tcq3"}, []string{"q8_0", "tcq2", "tcq2"}, []string{"q8_0", "tcq2", "tcq2"}, 32, false},
		{"gpt2", form.Train, nil, nil, []string{"q8_0", "f32"}, 0, true},
		{"llama-tied", form.Corrected, []string{"q8_0"}, []string{"bf16"}, []string{"q8_0"}, 16, true},
		{"mixtral", form.Corrected, []string{"q4_0", "tcq2"}, []string{"q8_0", "tcq2"}, []string{"f16", "tcq2"}, 32, false},
		{"mixtral", form.Shared, []string{"q8_0", "", "tcq2"}, nil, []string{"q8_0", "f16", "tcq3"}, 2, false},
		{"gptj", form.LowRank, nil, []string{"q8_0", "f16"}, []string{"f16"}, 32, true},
		{"llama-tied", form.Train, nil, nil, []string{"f16"}, 0, true},
		{"llama-31", form.Corrected, []string{"q4_0"}, []string{"q8_0"}, []string{"q8_0"}, 32, true},
	}
}

// tensor makes a tensor for a place in a graph, the count-th of its model.
func (f *factory) tensor(w model.Weight, k *kind, count int) formats.Tensor {
	f.t.Helper()
	last := len(w.Shape) - 1
	n, columns, r := w.Shape[last-1], w.Shape[last], k.rank
	lead := w.Shape[:last-1]
	shape := func(a, b int64) []int64 { return append(append([]int64{}, lead...), a, b) }
	turn := func(list []string) string { return list[count%len(list)] }
	size := 1 / math.Sqrt(float64(columns))
	var params map[string]int64
	var factors []formats.Tensor
	if len(k.q) > 0 && turn(k.q) != "" {
		factors = append(factors, f.factor("q", turn(k.q), size, shape(n, columns)...))
	}
	switch k.form {
	case form.LowRank, form.Corrected:
		factors = append(factors, f.factor("a", turn(k.a), 1/math.Sqrt(float64(r)), shape(n, r)...), f.factor("b", turn(k.b), size, shape(r, columns)...))
	case form.Shared:
		factors = append([]formats.Tensor{f.factor("c", "f32", 1, lead[0], r), f.factor("u", turn(k.b), size, r, n, columns)}, factors...)
	case form.Train:
		cores := []form.TrainCore{{Rows: 6, RankIn: 1, Columns: 4, RankOut: 8}, {Rows: 5, RankIn: 8, Columns: 4, RankOut: 6}, {Rows: (n + 29) / 30, RankIn: 6, Columns: columns / 16, RankOut: 1}}
		if k.b[0] == "q8_0" { // rows of whole blocks
			cores = []form.TrainCore{{Rows: (n + 16) / 17, RankIn: 1, Columns: columns / 4, RankOut: 8}, {Rows: 17, RankIn: 8, Columns: 4, RankOut: 1}}
		}
		params = form.TrainParams(cores)
		for i, c := range cores {
			factors = append(factors, f.factor(fmt.Sprintf("g%d", i+1), k.b[i%len(k.b)], 0.3, c.Rows, c.RankIn*c.Columns*c.RankOut))
		}
	}
	x, err := form.New(w.Name, k.form, w.Shape, params, factors...)
	if err != nil {
		f.t.Fatal(err)
	}
	return x
}

// takes reports whether a kind is for a place in a graph.
func (k *kind) takes(w model.Weight) bool {
	table := w.Role == model.RoleEmbed || w.Role == model.RoleHead
	if len(w.Shape) < 2 || w.Role == model.RoleNorm || w.Role == model.RoleRouter || strings.Contains(w.Name, "position") {
		return false
	}
	switch k.form {
	case form.Shared:
		return len(w.Shape) == 3
	case form.Train:
		return table
	}
	return k.tables || !table
}

// tensors makes a model's.
func (k *kind) tensors(t *testing.T, m *model.Model) func(string) formats.Tensor {
	t.Helper()
	f := &factory{t, rand.New(rand.NewPCG(5, 6))}
	all, count := map[string]formats.Tensor{}, 0
	for _, w := range m.Graph.Weights() {
		all[w.Name] = m.Tensor(w.Name)
		if k.takes(w) {
			all[w.Name] = f.tensor(w, k, count)
			count++
		}
	}
	if count == 0 {
		t.Fatal("no tensor has the form")
	}
	return func(name string) formats.Tensor { return all[name] }
}

// logits runs a prompt, the rest of a text by steps, and returns the last of the
// prompt's and of the text's logits.
func logits(t *testing.T, e device.Backend, vocab int64, prompt int) []float32 {
	t.Helper()
	tokens := []int32{3, 141, 59, 26, 53, 58, 97, 93, 23, 84, 62, 64, 33, 83, 27}
	c, err := e.NewCache(32)
	if err != nil {
		t.Fatal(err)
	}
	var all []float32
	for at := 0; at < prompt+2; {
		n := 1
		if at == 0 {
			n = prompt
		}
		row := make([]float32, vocab)
		err := e.Forward(&device.Batch{Segments: []device.Segment{{Cache: c, Tokens: tokens[at : at+n], Length: int64(len(tokens))}}, From: n - 1})
		if err == nil {
			err = e.Logits(n-1, n, row)
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, row...)
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
			m, err := model.Open("../../testdata/micro/" + k.model)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			tensors := k.tensors(t, m)
			reference, err := cpu.New(m.Graph, tensors, cpu.Options{Exact: true})
			if err != nil {
				t.Fatal(err)
			}
			defer reference.Close()
			modes := []bool{true, false}
			if testing.Short() { // kernels are compiled for each
				modes = modes[i%2 : i%2+1]
			}
			for _, exact := range modes {
				e, err := gpu.New(m.Graph, tensors, gpu.Options{API: hip.API(*deviceFlag), Exact: exact, Context: 64, Kernels: folder})
				if err != nil {
					t.Fatal(err)
				}
				checkPlan(t, e.Plan(), m, tensors)
				for _, prompt := range []int{13, 1, 3} {
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
func greedy(t *testing.T, e device.Backend, vocab int64) (ids []int32) {
	t.Helper()
	c, err := e.NewCache(32)
	if err != nil {
		t.Fatal(err)
	}
	row, tokens := make([]float32, vocab), []int32{3, 141, 59, 26, 53}
	for range 10 {
		err := e.Forward(&device.Batch{Segments: []device.Segment{{Cache: c, Tokens: tokens, Length: 32}}, From: len(tokens) - 1})
		if err == nil {
			err = e.Logits(len(tokens)-1, len(tokens), row)
		}
		if err != nil {
			t.Fatal(err)
		}
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
		m, err := model.Open("../../testdata/micro/" + k.model)
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
				if !slices.Contains(files, file) {
					t.Errorf("%v, %s: no unit of %s", &k, arch, file)
				}
			}
		}
	}
}

// TestFormsRefused names the tensor and what is not run.
func TestFormsRefused(t *testing.T) {
	m, err := model.Open("../../testdata/micro/llama-31")
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
