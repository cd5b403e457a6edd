package candidates_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/atomicfile"
	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/formats/form"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/model/random"
	"github.com/nstf/nstf/formats/plan"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/stats"
	"github.com/nstf/nstf/formats/tensor"
	"github.com/nstf/nstf/quantize/factored"
	"github.com/nstf/nstf/quantize/fit"
	qplan "github.com/nstf/nstf/quantize/plan"
	"github.com/nstf/nstf/quantize/plan/candidates"
)

func open(t testing.TB, name string) *model.Model {
	t.Helper()
	m, err := checkpoint.Open("../../../testdata/micro/" + name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// synthetic makes statistics with steep moments, sensitivities by place.
func synthetic(m *model.Model) *stats.File {
	s := &stats.File{Inputs: map[string]*stats.Input{}, Experts: map[string][]*stats.Input{}, Sensitivity: map[string]float64{}}
	add := func(l *graph.Linear) {
		k := int(l.In)
		var triangle []float32
		for i := range k {
			for j := range i + 1 {
				v := float32(math.Pow(0.9, float64(i-j))) / float32(math.Sqrt(float64(1+i)*float64(1+j)))
				triangle = append(triangle, v)
			}
		}
		s.Inputs[l.Input] = stats.NewInput(k, 100, triangle, nil)
	}
	for i := range m.Graph.Blocks {
		for _, l := range m.Graph.Blocks[i].Linears() {
			add(l)
		}
	}
	add(&m.Graph.Head.Linear)
	for i, w := range m.Graph.Weights() {
		if len(w.Shape) > 1 {
			s.Sensitivity[w.Name] = 0.1 * float64(1+i)
		}
	}
	return s
}

// Matrices of multi-token prediction have one recipe and no loss, whatever the codes that
// others may get, so that a budget does not take them; a rule decides otherwise.
func TestFurtherTokens(t *testing.T) {
	m := open(t, "glm4_moe")
	rule, err := candidates.ParseRule("mtp.*.project.*=q8_0")
	if err != nil {
		t.Fatal(err)
	}
	items, err := candidates.Build(context.Background(), m, candidates.Options{Stats: synthetic(m), Seed: 1, Effort: 1, Codes: codes(t, "tcq2,q8_0"), Keep: []candidates.Rule{rule}})
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, it := range items {
		if !graph.Role(it.Role).IsMTP() {
			continue
		}
		if len(it.Candidates) != 1 || it.Candidates[0].Loss != 0 {
			t.Errorf("%s has candidates %v", it.Name, it.Candidates)
		}
		found[it.Role] = it.Candidates[0].Recipe.String()
	}
	for role, want := range map[string]string{"mtp_attn_q": "q4_0", "mtp_head": "q4_0", "mtp_embed": "q4_0", "mtp_project": "q8_0", "mtp_moe_router": "keep", "mtp_moe_down": "f16"} {
		if found[role] != want {
			t.Errorf("%s becomes %s, not %s", role, found[role], want)
		}
	}
}

// TestBuild lists candidates of dense and of mixed models: norms and routers
// stay, more bytes lose less, losses follow sensitivities, and the threads do
// not matter.
func TestBuild(t *testing.T) {
	for _, name := range []string{"llama-tied", "mixtral"} {
		m := open(t, name)
		s := synthetic(m)
		var first []qplan.Item
		for _, threads := range []int{1, 3} {
			items, err := candidates.Build(context.Background(), m, candidates.Options{Stats: s, Seed: 1, Effort: 1, Threads: threads, Codes: codes(t, "tcq2,q4_0,q8_0")})
			if err != nil {
				t.Fatal(err)
			}
			if first != nil && !reflect.DeepEqual(first, items) {
				t.Errorf("%s: %d threads make other candidates", name, threads)
			}
			first = items
		}
		for i, w := range m.Graph.Weights() {
			it := first[i]
			if it.Name != w.Name {
				t.Fatalf("%s stands where %s belongs", it.Name, w.Name)
			}
			if quantized := candidates.Quantized(m.Graph, &w); quantized != (len(it.Candidates) > 1) {
				t.Errorf("%s (%s) has candidates %v", w.Name, w.Role, it.Candidates)
			}
			for j, c := range it.Candidates {
				rounded := map[string]float64{"q4_0": 3e-5, "q8_0": 1.5e-5, "tcq2": 1.2e-5}[c.Recipe.String()]
				if m.Graph.Readers()[w.Name] == nil {
					rounded = 0 // rows are looked up
				}
				if math.Abs(c.Loss-(c.Error+rounded)*s.Sensitivity[w.Name]) > 1e-12 {
					t.Errorf("%s as %s: loss %g of error %g", w.Name, c.Recipe, c.Loss, c.Error)
				}
				if j > 0 && (c.Bytes <= it.Candidates[j-1].Bytes || c.Loss >= it.Candidates[j-1].Loss) {
					t.Errorf("%s: %+v after %+v", w.Name, c, it.Candidates[j-1])
				}
			}
			if last := it.Candidates[len(it.Candidates)-1]; !last.Recipe.Kept() || last.Loss != 0 {
				t.Errorf("%s: the source is not its best candidate: %+v", w.Name, last)
			}
		}
	}
}

func TestRules(t *testing.T) {
	m := open(t, "llama-tied")
	rule := func(s string) candidates.Rule {
		r, err := candidates.ParseRule(s)
		if err != nil {
			t.Fatal(err)
		}
		if r.String() != s {
			t.Errorf("%q is written %q", s, r)
		}
		return r
	}
	build := func(rules ...string) ([]qplan.Item, error) {
		o := candidates.Options{Effort: 1, Codes: codes(t, "q4_0")}
		for _, s := range rules {
			o.Keep = append(o.Keep, rule(s))
		}
		return candidates.Build(context.Background(), m, o)
	}
	items, err := build(`blocks\.0\.attn\.[qk]=q8_0`, `attn\.q\.=keep`, `attn_norm=f32`)
	if err != nil {
		t.Fatal(err)
	}
	for _, it := range items {
		want := ""
		switch {
		case strings.HasPrefix(it.Name, "blocks.0.attn.q"), strings.HasPrefix(it.Name, "blocks.0.attn.k"):
			want = "q8_0"
		case strings.Contains(it.Name, "attn.q"):
			want = "keep"
		case strings.Contains(it.Name, "attn_norm"):
			want = "f32"
		}
		if want != "" && (len(it.Candidates) != 1 || it.Candidates[0].Recipe.String() != want) {
			t.Errorf("%s: %+v, want %s", it.Name, it.Candidates, want)
		}
	}
	var unmatched *candidates.RuleError
	if _, err := build(`nosuch=q8_0`); !errors.As(err, &unmatched) {
		t.Errorf("%v", err)
	}
	if _, err := build(`attn_norm=tcq2`); !errors.As(err, &unmatched) || !strings.Contains(err.Error(), "attn_norm") {
		t.Errorf("%v", err)
	}
	formed, err := build(`attn\.o=lowrank:8:bf16`, `blocks\.1\.=q8_0`)
	if err != nil {
		t.Fatal(err)
	}
	for _, it := range formed {
		c := it.Candidates[0]
		switch {
		case strings.Contains(it.Name, "attn.o"):
			if n, k := it.Shape[0], it.Shape[1]; c.Recipe.String() != "lowrank:8:bf16" || c.Bytes != 2*8*(n+k) || !(c.Error > 0 && c.Error < 1) {
				t.Errorf("%s: %+v", it.Name, c)
			}
		case strings.HasPrefix(it.Name, "blocks.1.") && (c.Recipe.String() == "q8_0") != (len(it.Shape) > 1):
			t.Errorf("%s: %+v", it.Name, c)
		}
	}
	for _, s := range []string{"", "x", "=q8_0", "(=q8_0", "x=", "x=nosuch"} {
		if _, err := candidates.ParseRule(s); err == nil {
			t.Errorf("%q is a rule", s)
		}
	}
}

// codes reads a list.
func codes(t *testing.T, list string) []plan.Code {
	t.Helper()
	out, err := candidates.Codes(list)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestCodes(t *testing.T) {
	all, err := candidates.Codes("all")
	if err != nil || all != nil {
		t.Errorf("%v %v", all, err)
	}
	ggml, err := candidates.Codes("ggml")
	if err != nil || !slices.Contains(ggml, plan.MustCode("q4_k")) || slices.Contains(ggml, plan.MustCode("tcq3")) {
		t.Errorf("%v %v", ggml, err)
	}
	if list, err := candidates.Codes("tcq3, q8_0"); err != nil || !slices.Equal(list, []plan.Code{plan.Trellis(3), plan.MustCode("q8_0")}) {
		t.Errorf("%v %v", list, err)
	}
	for _, s := range []string{"", "tcq3,", "nosuch", "all,ggml", "tcq"} {
		if list, err := candidates.Codes(s); err == nil {
			t.Errorf("%q is %v", s, list)
		}
	}
}

// TestCancelled stops between tensors.
func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := candidates.Build(ctx, open(t, "llama-tied"), candidates.Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

func Example() {
	list := candidates.Undominated([]qplan.Candidate{{Recipe: plan.MustRecipe("q4_0"), Bytes: 450, Loss: 0.02}, {Recipe: plan.MustRecipe("tcq4"), Bytes: 402, Loss: 0.005}, {Recipe: plan.MustRecipe("tcq2"), Bytes: 202, Loss: 0.07}})
	for _, c := range list {
		fmt.Println(c.Recipe)
	}
	// Output:
	// tcq2
	// tcq4
}

// Weights that the scales of one scheme do not hold are left to those that do.
func TestLargeWeights(t *testing.T) {
	m := open(t, "llama-f32")
	name := m.Graph.Blocks[0].FFN.Up.Weight
	x := m.Tensor(name)
	w := make([]float32, x.Elements())
	for i := range w {
		w[i] = 1e5 * float32(1+i%7)
	}
	raw := make([]byte, 4*len(w))
	if err := tensor.FromFloat32(raw, w, tensor.F32); err != nil {
		t.Fatal(err)
	}
	s, _ := scheme.ByName("f32")
	large, err := scheme.New(name, s, x.Shape, nil, tensor.BytesBlob(raw))
	if err != nil {
		t.Fatal(err)
	}
	m = m.With(map[string]formats.Tensor{name: large})
	items, err := candidates.Build(t.Context(), m, candidates.Options{Effort: 1, Codes: codes(t, "tcq2,bf16,f16")})
	if err != nil {
		t.Fatal(err)
	}
	for _, it := range items {
		for _, c := range it.Candidates {
			if it.Name == name && (c.Recipe.String() == "tcq2" || c.Recipe.String() == "f16") || math.IsInf(c.Loss, 0) {
				t.Errorf("%s: %+v", it.Name, c)
			}
		}
		if it.Name == name && len(it.Candidates) != 2 { // bf16 and keep
			t.Errorf("%+v", it.Candidates)
		}
	}
	rule, err := candidates.ParseRule(`blocks\.0\.ffn\.up=f16`)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := candidates.Build(t.Context(), m, candidates.Options{Effort: 1, Keep: []candidates.Rule{rule}}); err == nil || !strings.Contains(err.Error(), name) {
		t.Errorf("%v", err)
	}
}

// A source in trellis codes, and one with factors, is sampled like any other: codes of
// many rows are read with what they are rotated with.
func TestCodedSource(t *testing.T) {
	dir := t.TempDir()
	x, err := random.Checkpoint(random.Shape{Layers: 1, Width: 64, Inner: 576, Heads: 2, KVHeads: 1, Vocab: 264, Context: 64, RopeTheta: 1e4}, tensor.BF16, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := x.WriteDir(t.Context(), atomicfile.Scratch(dir), 1<<30, nil); err != nil {
		t.Fatal(err)
	}
	m, err := checkpoint.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	up := m.Tensor(m.Graph.Blocks[0].FFN.Up.Weight)
	n, k := up.Rows()
	w, err := form.Decode(&up)
	if err != nil {
		t.Fatal(err)
	}
	for _, recipe := range []string{"tcq4", "lowrank:16:f16"} {
		r, err := factored.Matrix(t.Context(), up.Name, w, int(n), int(k), plan.MustRecipe(recipe), nil, fit.Options{Effort: 1})
		if err != nil {
			t.Fatal(err)
		}
		coded := m.With(map[string]formats.Tensor{up.Name: r.Tensor})
		items, err := candidates.Build(t.Context(), coded, candidates.Options{Effort: 1, Codes: codes(t, "tcq2,q4_0")})
		if err != nil {
			t.Fatalf("%s: %v", recipe, err)
		}
		for _, it := range items {
			if it.Name == up.Name && (len(it.Candidates) < 2 || !(it.Candidates[0].Error > 0 && it.Candidates[0].Error < 0.2)) {
				t.Errorf("%s: %+v", recipe, it.Candidates)
			}
		}
	}
}
