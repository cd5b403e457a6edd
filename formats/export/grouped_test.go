package export_test

import (
	"errors"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/arch"
	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/formats/export"
	"github.com/nstf/nstf/formats/gguf"
	"github.com/nstf/nstf/formats/hf"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
)

// A projection in codes whose columns cannot move keeps the heads of its delta net in
// the checkpoint's order, one block alone; written to GGUF from there, everything lies
// as it does in other models, and the codes are refused.
func TestGroupedHeads(t *testing.T) {
	const micro, out = "../../testdata/micro/qwen3_5_moe", "blocks.0.delta.out.weight"
	d, err := hf.Open(micro)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	g, a, err := arch.OfConfig(micro, d.Config())
	if err != nil {
		t.Fatal(err)
	}
	tensors := d.Tensors()
	for i := range tensors {
		if tensors[i].Name == "model.layers.0.linear_attn.out_proj.weight" {
			tensors[i] = coded(t, tensors[i].Name, tensors[i].Shape)
		}
	}
	bound, rest, err := checkpoint.Bind(micro, g, a.HF(), tensors)
	if err != nil {
		t.Fatal(err)
	}
	if g.Blocks[0].Delta.Tiled || !g.Blocks[2].Delta.Tiled {
		t.Fatalf("heads are tiled: %v and %v", g.Blocks[0].Delta.Tiled, g.Blocks[2].Delta.Tiled)
	}
	m := model.New(g, bound, d)
	m.Path, m.Kind, m.Passthrough = micro, model.KindHF, rest
	for _, name := range d.Files() {
		data, _ := d.File(name)
		m.Files = append(m.Files, model.File{Name: name, Data: data})
	}
	f32 := named(t, "f32")
	if _, err = export.GGUF(m, f32); err == nil {
		t.Error("codes of a split block are written")
	} else if e, ok := errors.AsType[*formats.UnsupportedError](err); !ok || !strings.Contains(e.Error(), "blocks of 32") {
		t.Errorf("error %v does not say why", err)
	}
	dense, err := scheme.Cast(bound[out], f32)
	if err != nil {
		t.Fatal(err)
	}
	grouped := values(t, dense)
	bound[out] = dense
	x, err := export.GGUF(m, f32)
	if err != nil {
		t.Fatal(err)
	}
	back := open(t, writeGGUF(t, x))
	moved := values(t, back.Tensor(out))
	n := back.Graph.Blocks[0].Delta
	if !n.Tiled {
		t.Fatal("heads of the file are not tiled")
	}
	k := n.Values()
	for i, x := range grouped {
		row, head, j := int64(i)/k, int64(i)%k/n.ValueDim, int64(i)%n.ValueDim
		group := n.Heads / n.KeyHeads
		if y := moved[row*k+(head%group*n.KeyHeads+head/group)*n.ValueDim+j]; x != y {
			t.Fatalf("row %d, head %d, %d: %v became %v", row, head, j, x, y)
		}
	}
	usual := open(t, micro)
	delete(bound, out)
	for name := range bound {
		if decay(usual, name, 1) != 0 || strings.HasSuffix(name, "norm.weight") { // of other numbers in GGUF
			continue
		}
		x, y := values(t, usual.Tensor(name)), values(t, back.Tensor(name))
		for i := range x {
			if x[i] != y[i] {
				t.Fatalf("%s[%d] of %s is %v, not %v", name, i, filepath.Base(micro), y[i], x[i])
			}
		}
	}
}

// coded returns a tensor of random q8_0 blocks.
func coded(t *testing.T, name string, shape []int64) formats.Tensor {
	t.Helper()
	s := named(t, "q8_0")
	specs, err := s.Parts(shape, nil)
	if err != nil {
		t.Fatal(err)
	}
	rng, p := rand.New(rand.NewPCG(3, 4)), make([]byte, specs[0].Bytes)
	for i := range p {
		p[i] = byte(rng.Uint32() & 0x3f)
	}
	x, err := scheme.New(name, s, shape, nil, tensor.BytesBlob(p))
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// The GGUF of a multimodal model's text is read as the text model that it is.
func TestTextOfMultimodalGGUF(t *testing.T) {
	for _, c := range []struct{ micro, own, name string }{
		{"qwen2_5_vl", "qwen2", "qwen2vl"}, {"qwen3_vl", "qwen3", "qwen3vl"},
	} {
		m := open(t, "../../testdata/micro/"+c.micro)
		x, err := export.GGUF(m, named(t, "f32"))
		if err != nil {
			t.Fatal(err)
		}
		for i := range x.Keys {
			k := &x.Keys[i]
			if k.Key == "general.architecture" {
				k.Value = c.name
			}
			if rest, ok := strings.CutPrefix(k.Key, c.own+"."); ok {
				k.Key = c.name + "." + rest
			}
		}
		x.Keys = append(x.Keys, gguf.KV{Key: c.name + ".rope.dimension_sections", Value: []int32{1, 2, 1, 0}})
		back := open(t, writeGGUF(t, x))
		if back.Graph.Arch != c.own {
			t.Errorf("%s is read as %q", c.name, back.Graph.Arch)
		}
		sameWeights(t, m, back)
	}
}

// Parts of one foreign tensor in several schemes are expanded where that is asked for,
// and else refused by their names.
func TestPartsInSeveralSchemes(t *testing.T) {
	const part = "blocks.1.attn.gate.weight"
	m := open(t, "../../testdata/micro/qwen3_5_moe")
	mixed := m.With(map[string]formats.Tensor{part: coded(t, part, m.Tensor(part).Shape)})
	_, err := export.GGUF(mixed, nil)
	if e, ok := errors.AsType[*formats.UnsupportedError](err); !ok || !strings.Contains(e.Error(), part) || !strings.Contains(e.Error(), "attn.q.weight") {
		t.Errorf("error %v", err)
	}
	x, err := export.GGUF(mixed, named(t, "f32"))
	if err != nil {
		t.Fatal(err)
	}
	sameWeights(t, mixed, open(t, writeGGUF(t, x)))
}
