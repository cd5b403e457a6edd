package model

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats"
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

// Rows of one head of four, worked by hand: llama.cpp stores rows 0 2 1 3.
func TestRotaryOrderByHand(t *testing.T) {
	g := &Graph{Blocks: []Block{{Attn: Attention{Heads: 2, KVHeads: 1, HeadDim: 4}}}}
	if got := rotaryOrder(queryHeads)(g, 0); !slices.Equal(got, []int64{0, 2, 1, 3, 4, 6, 5, 7}) {
		t.Errorf("query rows %v", got)
	}
	if got := rotaryOrder(keyHeads)(g, 0); !slices.Equal(got, []int64{0, 2, 1, 3}) {
		t.Errorf("key rows %v", got)
	}
	// Two heads of two: q0 k0 v0 q1 k1 v1, from q (rows 0-3), k (4-7), v (8-11).
	g.Blocks[0].Attn = Attention{Heads: 2, KVHeads: 2, HeadDim: 2}
	if got := perHeadOrder(g, 0); !slices.Equal(got, []int64{0, 1, 4, 5, 8, 9, 2, 3, 6, 7, 10, 11}) {
		t.Errorf("fused rows %v", got)
	}
}

// binding reads a graph's weight out of foreign tensors by links.
func binding(t *testing.T, g *Graph, links []link, want string, foreign ...formats.Tensor) (formats.Tensor, error) {
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
	fused := []link{{foreign: "l.#.qkv", parts: []string{"blocks.#.attn.q", "blocks.#.attn.k", "blocks.#.attn.v"}}}
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

func TestExpertsAreStacked(t *testing.T) {
	g := small(t)
	apart := []link{one("l.#.e.@.w1", "blocks.#.moe.gate")}
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
	stacked := []link{{foreign: "l.#.gate_up", parts: []string{"blocks.#.moe.gate", "blocks.#.moe.up"}, order: perExpertOrder, bare: true}}
	x, err := binding(t, g, stacked, "blocks.1.moe.up.weight", numbered(t, "l.1.gate_up", 4, 16, 16))
	if err != nil {
		t.Fatal(err)
	}
	got := ints(t, x)
	if got[0] != 8*16 || got[8*16] != (16+8)*16 { // the second half of each expert's sixteen rows
		t.Errorf("up rows start at %d and %d", got[0], got[8*16])
	}
}

func TestMissingTensorNamesWhatWasSought(t *testing.T) {
	_, err := binding(t, small(t), hfDecoderLinks(), "blocks.0.attn.q.weight")
	var f *formats.FormatError
	if !errors.As(err, &f) || f.Tensor != "model.layers.0.self_attn.q_proj.weight" || f.File != "file" {
		t.Errorf("%v", err)
	}
}

func TestTransposedWeightsTurn(t *testing.T) {
	x, err := transpose(numbered(t, "w", 2, 3))
	if err != nil {
		t.Fatal(err)
	}
	if got := ints(t, x); !slices.Equal(got, []int{0, 3, 1, 4, 2, 5}) || !slices.Equal(x.Shape, []int64{3, 2}) {
		t.Errorf("%v of shape %v", got, x.Shape)
	}
}
