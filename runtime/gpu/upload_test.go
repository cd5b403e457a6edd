package gpu

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/atomicfile"
	"github.com/nstf/nstf/formats/nstf"
	"github.com/nstf/nstf/formats/tensor"
)

// What travels to the device unchecked is checked beside that, tensor by tensor.
func TestUploadChecks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.nstf")
	var items []nstf.Item
	for i, name := range []string{"a", "b", "c"} {
		data := bytes.Repeat([]byte{byte(i + 1), 7}, 1<<19)
		items = append(items, nstf.Item{Tensor: formats.Tensor{Name: name, Shape: []int64{512, 1024}, Scheme: "f16",
			Parts: []formats.Part{{Name: "data", DType: tensor.F16, Shape: []int64{512, 1024}, Data: tensor.BytesBlob(data)}}}})
	}
	if err := nstf.Write(atomicfile.Scratch(path), nstf.Meta{Model: []byte("{}")}, items, nstf.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	check := func() error {
		p, err := nstf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		var l layout
		for _, item := range p.Tensors() {
			l.matrices = append(l.matrices, &matrix{tensor: item.Tensor})
			// The chunks themselves are read as they are.
			if err := read(item.Parts[0].Data.Unchecked(), make([]byte, 100), 500000); err != nil {
				t.Error(err)
			}
		}
		return l.check(t.Context())
	}
	if err := check(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	whole[bytes.LastIndex(whole, []byte{2, 7, 2, 7})] ^= 1
	if err := os.WriteFile(path, whole, 0o666); err != nil {
		t.Fatal(err)
	}
	var f *formats.FormatError
	if err := check(); !errors.As(err, &f) || f.Tensor != "b" {
		t.Errorf("damaged: %v", err)
	}
}
