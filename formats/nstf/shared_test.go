package nstf

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/atomicfile"
	"github.com/nstf/nstf/formats/tensor"
)

// TestOverhead packs a trained model of 54.5 M weights with all its files and
// bounds what the package adds to its tensors: 400 KiB. The graph is stood in
// for by as many bytes as twelve layers take.
func TestOverhead(t *testing.T) {
	shared := os.Getenv("NSTF_SHARED")
	if shared == "" {
		t.Skip("NSTF_SHARED does not name the folder of trained models")
	}
	dir := filepath.Join(shared, "models", "base-llama")
	m := meta()
	graph, err := json.Marshal(map[string]string{"graph": string(bytes.Repeat([]byte("g"), 48<<10))})
	if err != nil {
		t.Fatal(err)
	}
	m.Model = graph
	files := map[string][]byte{}
	for _, name := range []string{"chat_template.jinja", "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"} {
		if files[name], err = os.ReadFile(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		m.Files = append(m.Files, File{name, files[name]})
	}
	src, err := tensor.OpenFile(filepath.Join(dir, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	items := bf16Tensors(t, src)
	path := filepath.Join(t.TempDir(), "base.nstf")
	if err := Write(atomicfile.Scratch(path), m, items, WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	p, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	overhead := p.Size()
	for _, it := range p.Tensors() {
		overhead -= it.Size()
	}
	t.Logf("%d tensors, %d bytes; header %d, overhead %d", len(items), p.Size(), p.headerEnd, overhead)
	if overhead > 400<<10 {
		t.Errorf("overhead of %d bytes", overhead)
	}
	for name, want := range files {
		if got, err := p.File(name); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes instead of %d, %v", name, len(got), len(want), err)
		}
	}
	if err := p.Verify(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

// bf16Tensors lists the tensors of a trusted safetensors file of bf16 only.
func bf16Tensors(t *testing.T, src *tensor.File) []Item {
	var size [8]byte
	if _, err := src.ReadAt(size[:], 0); err != nil {
		t.Fatal(err)
	}
	head := make([]byte, binary.LittleEndian.Uint64(size[:]))
	if _, err := src.ReadAt(head, 8); err != nil {
		t.Fatal(err)
	}
	var entries map[string]struct {
		Shape   []int64  `json:"shape"`
		Offsets [2]int64 `json:"data_offsets"`
	}
	if err := json.Unmarshal(head, &entries); err != nil {
		t.Fatal(err)
	}
	delete(entries, "__metadata__")
	var items []Item
	for name, e := range entries {
		items = append(items, Item{Tensor: formats.Tensor{Name: name, Shape: e.Shape, Scheme: "bf16",
			Parts: []formats.Part{{Name: "data", DType: tensor.BF16, Shape: e.Shape,
				Data: src.Blob(8+int64(len(head))+e.Offsets[0], e.Offsets[1]-e.Offsets[0])}}}})
	}
	slices.SortFunc(items, func(a, b Item) int { return bytes.Compare([]byte(a.Name), []byte(b.Name)) })
	return items
}
