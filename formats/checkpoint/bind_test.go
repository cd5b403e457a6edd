package checkpoint

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/arch"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/hf"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
)

// numbered returns an i32 tensor that holds 0, 1, 2 ...
func numbered(t *testing.T, name string, shape ...int64) formats.Tensor {
	t.Helper()
	n, err := tensor.Elements(shape)
	if err != nil {
		t.Fatal(err)
	}
	p := make([]byte, 4*n)
	for i := range n {
		binary.LittleEndian.PutUint32(p[4*i:], uint32(i))
	}
	s, _ := scheme.ByName("i32")
	x, err := scheme.New(name, s, shape, nil, tensor.BytesBlob(p))
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func ints(t *testing.T, x formats.Tensor) []int {
	t.Helper()
	p, err := x.Parts[0].Data.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	var out []int
	for ; len(p) > 0; p = p[4:] {
		out = append(out, int(binary.LittleEndian.Uint32(p)))
	}
	return out
}

// binding reads a graph's weight out of foreign tensors by links.
func binding(t *testing.T, g *graph.Graph, links []arch.Link, want string, foreign ...formats.Tensor) (formats.Tensor, error) {
	t.Helper()
	b := newBinder("file", g, links, nil, foreign)
	for _, w := range g.Weights() {
		if w.Name == want {
			return b.resolve(w)
		}
	}
	t.Fatalf("the graph has no %s", want)
	return formats.Tensor{}, nil
}

func TestFusedRowsComeApart(t *testing.T) {
	g := small(t)
	fused := []arch.Link{{Foreign: "l.#.qkv", Parts: []string{"blocks.#.attn.q", "blocks.#.attn.k", "blocks.#.attn.v"}}}
	x, err := binding(t, g, fused, "blocks.1.attn.k.weight", numbered(t, "l.1.qkv.weight", 32, 16))
	if err != nil {
		t.Fatal(err)
	}
	if got := ints(t, x); len(got) != 8*16 || got[0] != 16*16 {
		t.Errorf("key rows start at %d and have %d numbers", got[0], len(got))
	}
	_, err = binding(t, g, fused, "blocks.1.attn.k.weight", numbered(t, "l.1.qkv.weight", 31, 16))
	if err == nil || !strings.Contains(err.Error(), "[31 16]") || !strings.Contains(err.Error(), "[32 16]") {
		t.Errorf("a shape that does not fit: %v", err)
	}
}

func TestRowsAmongSeveralTensors(t *testing.T) {
	g := small(t)
	among := []arch.Link{{Foreign: "l.#.@_proj", Parts: []string{"blocks.#.attn.q"}, Among: []string{"a", "b"}}}
	first, second := numbered(t, "l.1.a_proj.weight", 8, 16), numbered(t, "l.1.b_proj.weight", 8, 16)
	x, err := binding(t, g, among, "blocks.1.attn.q.weight", first, second)
	if err != nil {
		t.Fatal(err)
	}
	if got := ints(t, x); len(got) != 16*16 || got[0] != 0 || got[8*16] != 0 || got[16*16-1] != 8*16-1 {
		t.Errorf("rows are %v", got)
	}
	if _, err = binding(t, g, among, "blocks.1.attn.q.weight", first); err == nil || !strings.Contains(err.Error(), "l.1.b_proj.weight") || !strings.Contains(err.Error(), "2 of 2") {
		t.Errorf("a tensor that is missing: %v", err)
	}
	if _, err = binding(t, g, among, "blocks.1.attn.q.weight", first, numbered(t, "l.1.b_proj.weight", 7, 16)); err == nil || !strings.Contains(err.Error(), "[7 16]") {
		t.Errorf("a shape that does not fit: %v", err)
	}
	f32, _ := scheme.ByName("f32")
	f16, _ := scheme.ByName("f16")
	halves := make([]byte, 2*8*16)
	for i := range 8 * 16 {
		binary.LittleEndian.PutUint16(halves[2*i:], 0x3c00) // 1
	}
	ones, err := scheme.New("l.1.b_proj.weight", f16, []int64{8, 16}, nil, tensor.BytesBlob(halves))
	if err != nil {
		t.Fatal(err)
	}
	zeros, err := scheme.New("l.1.a_proj.weight", f32, []int64{8, 16}, nil, tensor.BytesBlob(make([]byte, 4*8*16)))
	if err != nil {
		t.Fatal(err)
	}
	if x, err = binding(t, g, among, "blocks.1.attn.q.weight", zeros, ones); err != nil {
		t.Fatal(err)
	}
	if got := numbers(t, x); x.Scheme != "f32" || len(got) != 16*16 || got[8*16-1] != 0 || got[8*16] != 1 || got[16*16-1] != 1 {
		t.Errorf("two schemes are %s %v", x.Scheme, got)
	}
}

func TestExpertsAreStacked(t *testing.T) {
	g := small(t)
	apart := []arch.Link{{Foreign: "l.#.e.@.w1", Parts: []string{"blocks.#.moe.gate"}}}
	var experts []formats.Tensor
	for _, n := range []string{"0", "1", "2", "3"} {
		experts = append(experts, numbered(t, "l.1.e."+n+".w1.weight", 8, 16))
	}
	x, err := binding(t, g, apart, "blocks.1.moe.gate.weight", experts...)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(x.Shape, []int64{4, 8, 16}) {
		t.Errorf("shape %v", x.Shape)
	}
	_, err = binding(t, g, apart, "blocks.1.moe.gate.weight", experts[:3]...)
	var f *formats.FormatError
	if !errors.As(err, &f) || f.Tensor != "l.1.e.3.w1.weight" {
		t.Errorf("a missing expert: %v", err)
	}
}

func TestStackedGateAndUpComeApart(t *testing.T) {
	g := small(t)
	x, err := binding(t, g, links(t), "blocks.1.moe.up.weight", numbered(t, "model.layers.1.mlp.experts.gate_up_proj", 4, 16, 16))
	if err != nil {
		t.Fatal(err)
	}
	got := ints(t, x)
	if got[0] != 8*16 || got[8*16] != (16+8)*16 { // the second half of each expert's sixteen rows
		t.Errorf("up rows start at %d and %d", got[0], got[8*16])
	}
}

func TestMissingTensorNamesWhatWasSought(t *testing.T) {
	_, err := binding(t, small(t), links(t), "blocks.0.attn.q.weight")
	var f *formats.FormatError
	if !errors.As(err, &f) || f.Tensor != "model.layers.0.self_attn.q_proj.weight" || f.File != "file" {
		t.Errorf("%v", err)
	}
}

func TestTransposedWeightsTurn(t *testing.T) {
	x, err := Transpose(numbered(t, "w", 2, 3))
	if err != nil {
		t.Fatal(err)
	}
	if got := ints(t, x); !slices.Equal(got, []int{0, 3, 1, 4, 2, 5}) || !slices.Equal(x.Shape, []int64{3, 2}) {
		t.Errorf("%v of shape %v", got, x.Shape)
	}
}

// small returns a graph with fused, stacked and plain parts: a Qwen3 whose first
// layer is dense.
func small(t *testing.T) *graph.Graph {
	t.Helper()
	c, err := hf.ParseConfig("config.json", []byte(`{"model_type":"qwen3_moe","vocab_size":32,"hidden_size":16,"max_position_embeddings":64,
		"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,"head_dim":4,"intermediate_size":24,
		"num_experts":4,"num_experts_per_tok":2,"moe_intermediate_size":8,"mlp_only_layers":[0]}`))
	if err != nil {
		t.Fatal(err)
	}
	g, _, err := arch.OfConfig("small", c)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// links returns where its tensors lie.
func links(t *testing.T) []arch.Link {
	t.Helper()
	a, ok := arch.ByName("qwen3_moe")
	if !ok {
		t.Fatal("no such architecture")
	}
	return a.HF()
}
