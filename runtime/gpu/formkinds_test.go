package gpu_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/form"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
	"github.com/nstf/nstf/quantize/fit"
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
	tables  bool // embedding and head too; of trains they alone
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
		{"qwen2", form.Train, nil, nil, []string{"q8_0", "f32"}, 0, false},
	}
}

// tensor makes a tensor for a place in a graph, the count-th of its model.
func (f *factory) tensor(w graph.Weight, k *kind, count int) formats.Tensor {
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
func (k *kind) takes(w graph.Weight) bool {
	table := w.Role == graph.RoleEmbed || w.Role == graph.RoleHead
	if len(w.Shape) < 2 || w.Role == graph.RoleNorm || w.Role == graph.RoleRouter || strings.Contains(w.Name, "position") {
		return false
	}
	switch k.form {
	case form.Shared:
		return len(w.Shape) == 3
	case form.Train:
		return table == k.tables // all other matrices in their stead
	}
	return k.tables || !table
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

// tensors makes a model's, mixtures with a shared layer.
func (k *kind) tensors(t *testing.T, m *model.Model) func(string) formats.Tensor {
	t.Helper()
	if x := m.Graph.Blocks[0].MoE; x != nil {
		withShared(x, 64)
	}
	f := &factory{t, rand.New(rand.NewPCG(5, 6))}
	all, count := map[string]formats.Tensor{}, 0
	for _, w := range m.Graph.Weights() {
		if strings.Contains(w.Name, "shared") {
			all[w.Name] = f.factor(w.Name, "bf16", 1/math.Sqrt(float64(w.Shape[1])), w.Shape...)
		} else {
			all[w.Name] = m.Tensor(w.Name)
		}
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
