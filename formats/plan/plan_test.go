package plan_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/atomicfile"
	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/formats/plan"
)

func example() *plan.Plan {
	return &plan.Plan{
		Version: 1, Source: plan.Source{Model: "m", Hash: "00", Stats: "s.nstats"},
		Budget:    plan.Budget{BPW: 3.25, Schemes: []string{"tcq3", "q8_0"}, Keep: []string{`head="x, y: z"`}},
		Seed:      7,
		Predicted: plan.Predicted{KLD: 0.0125, Bytes: 8192, BPW: 3.2},
		Tensors: []plan.Tensor{
			{Name: "embed", Role: "embed", Shape: []int64{64, 32}, Recipe: plan.MustRecipe("tcq3"), Bytes: 800, Error: 0.015625, Loss: 1e-9,
				RunnerUp: &plan.Alternative{Recipe: plan.MustRecipe("tcq4"), Bytes: 1040, Error: 0.004, Loss: 2e-10}},
			{Name: "norm \"quoted\\\"", Role: "norm", Shape: []int64{32}, Recipe: plan.Recipe{}, Bytes: 128},
			{Name: "up", Role: "ffn_up", Shape: []int64{2, 64, 32}, Recipe: plan.MustRecipe("tcq2+lr:16:q8_0"), Bytes: 128},
		},
	}
}

// TestRoundTrip writes a plan, reads it, and writes it again.
func TestRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plan.json")
	if err := example().Write(atomicfile.Scratch(path)); err != nil {
		t.Fatal(err)
	}
	p, err := plan.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(p, example()) {
		t.Errorf("read %+v\nwrote %+v", p, example())
	}
	data, err := os.ReadFile(path)
	if err != nil || string(p.Encode()) != string(data) {
		t.Errorf("written again it is\n%s", p.Encode())
	}
	if n := strings.Count(string(data), "\n"); n != 13 {
		t.Errorf("%d lines:\n%s", n, data)
	}
	if x, ok := p.Tensor("up"); !ok || x.Elements() != 4096 {
		t.Errorf("tensor %v", x)
	}
}

// TestMalformed damages a plan in one place at a time. The error says where.
func TestMalformed(t *testing.T) {
	good := string(example().Encode())
	for _, c := range []struct{ from, to, says string }{
		{`"seed": 7`, `"seed": -7`, `"seed"`},
		{`"seed": 7`, `"seed": 7.5`, `"seed"`},
		{`"seed": 7`, `"sead": 7`, `unknown field "sead"`},
		{`"seed": 7`, `"seed": 7, "seed": 7`, `duplicate field "seed"`},
		{`  "seed": 7,`, ``, `field "seed" is missing`},
		{`"version": 1`, `"version": 2`, `version 2`},
		{`"version": 1`, `"version": 0`, `version`},
		{`"bpw": 3.2}`, `"bpw": NaN}`, `predicted.bpw`},
		{`"bpw": 3.2}`, `"bpw": 1e999}`, `predicted.bpw`},
		{`"error": 0.015625`, `"error": -1`, `"error"`},
		{`"recipe": "tcq3"`, `"recipe": "tcq7"`, `scheme "tcq7"`},
		{`"recipe": "tcq3"`, `"recipe": "tcq"`, `scheme "tcq"`},
		{`"recipe": "tcq3"`, `"recipe": "lowrank:0:q8_0"`, `no rank`},
		{`"recipe": "tcq3"`, `"recipe": "svd:3:q8_0"`, `form "svd"`},
		{`"name": "up"`, `"name": "embed"`, `"embed"`},
		{`"name": "up"`, `"name": ""`, `no name`},
		{`[64, 32]`, `[64, 9223372036854775807]`, `shape`},
		{`[64, 32]`, `[-64, 32]`, `shape`},
		{"\n}\n", "\n}x", `behind`},
	} {
		bad := strings.Replace(good, c.from, c.to, 1)
		if bad == good {
			t.Fatalf("%q is not in the plan", c.from)
		}
		_, err := plan.Parse("p.json", []byte(bad))
		var format *formats.FormatError
		var unsupported *formats.UnsupportedError
		if !errors.As(err, &format) && !errors.As(err, &unsupported) {
			t.Errorf("%s: %v", c.to, err)
			continue
		}
		if s := err.Error(); !strings.Contains(s, c.says) || !strings.HasPrefix(s, "p.json: ") || !strings.Contains(s, "at byte ") {
			t.Errorf("%s: %v", c.to, err)
		}
	}
	for i := range good {
		if _, err := plan.Parse("", []byte(good[:i])); err == nil && strings.TrimSpace(good[i:]) != "" {
			t.Fatalf("cut at %d it is read", i)
		}
	}
}

func TestRecipes(t *testing.T) {
	code := plan.MustCode
	for s, want := range map[string]plan.Recipe{
		"keep":                {},
		"q4_k":                {Form: plan.FormDense, Code: code("q4_k")},
		"tcq2":                {Form: plan.FormDense, Code: plan.Trellis(2)},
		"lowrank:32:bf16":     {Form: plan.FormLowRank, Rank: 32, A: code("bf16"), B: code("bf16")},
		"lowrank:32:f16,tcq3": {Form: plan.FormLowRank, Rank: 32, A: code("f16"), B: code("tcq3")},
		"tcq2+lr:16:q8_0":     {Form: plan.FormCorrected, Code: code("tcq2"), Rank: 16, A: code("q8_0"), B: code("q8_0")},
		"iq4_xs+lr:1024:tcq4": {Form: plan.FormCorrected, Code: code("iq4_xs"), Rank: 1024, A: code("tcq4"), B: code("tcq4")},
		"shared:3:f16":        {Form: plan.FormShared, Rank: 3, A: code("f16"), B: code("f16")},
		"q4_0+shared:3:f16":   {Form: plan.FormShared, Code: code("q4_0"), Rank: 3, A: code("f16"), B: code("f16")},
		"train:8:tcq2":        {Form: plan.FormTrain, Rank: 8, A: code("tcq2"), B: code("tcq2")},
	} {
		r, err := plan.ParseRecipe(s)
		if err != nil || r != want || r.String() != s {
			t.Errorf("%s is %+v, %v, written %s", s, r, err, r)
		}
	}
	for _, s := range []string{"", "tcq1", "tcq", "tcq22", "q4", "lowrank", "lowrank:", "lowrank:4", "lowrank:04:f16", "lowrank:4:keep", "train:4:f16,q8_0", "tcq2+lr:4", "+lr:4:f16", "tcq2+lr:-1:f16", "keep+lr:1:f16"} {
		if r, err := plan.ParseRecipe(s); err == nil {
			t.Errorf("%q is %+v", s, r)
		}
	}
	for name, want := range map[string]int{"tcq2": 2, "tcq6": 6, "tcq7": 0, "tcq": 0, "q4_k": 0, "tcq2x": 0} {
		c, _ := plan.ParseCode(name)
		if got := c.Bits; got != want {
			t.Errorf("%s has %d bits", name, got)
		}
	}
}

// TestCheck holds plans to graphs.
func TestCheck(t *testing.T) {
	m, err := checkpoint.Open("../../testdata/micro/llama-tied")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	p := &plan.Plan{}
	for _, w := range m.Graph.Weights() {
		p.Tensors = append(p.Tensors, plan.Tensor{Name: w.Name, Shape: w.Shape})
	}
	if err := p.Check("", m.Graph); err != nil {
		t.Fatal(err)
	}
	last := len(p.Tensors) - 1
	for what, change := range map[string]func(q *plan.Plan){
		"is not in the plan": func(q *plan.Plan) { q.Tensors = q.Tensors[:last] },
		"shape is":           func(q *plan.Plan) { q.Tensors[last].Shape = []int64{1, 2} },
		"no such tensor":     func(q *plan.Plan) { q.Tensors = append(q.Tensors, plan.Tensor{Name: "x"}) },
	} {
		q := &plan.Plan{Tensors: append([]plan.Tensor(nil), p.Tensors...)}
		change(q)
		if err := q.Check("p.json", m.Graph); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(example().Encode())
	f.Add([]byte(`{"version":1,"source":{"model":"","hash":"","stats":""},"budget":{},"seed":0,"effort":0,"predicted":{"kld":0,"bytes":0,"bpw":0},"tensors":[]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := plan.Parse("f", data)
		if err != nil {
			var format *formats.FormatError
			var unsupported *formats.UnsupportedError
			if !errors.As(err, &format) && !errors.As(err, &unsupported) {
				t.Fatalf("%T %v", err, err)
			}
			return
		}
		once := p.Encode()
		q, err := plan.Parse("f", once)
		if err != nil || string(q.Encode()) != string(once) {
			t.Fatalf("%v: %s", err, once)
		}
	})
}

func Example() {
	r, _ := plan.ParseRecipe("tcq2+lr:16:q8_0")
	fmt.Println(r.Form, r.Code, r.Rank, r.A)
	// Output: corrected tcq2 16 q8_0
}
