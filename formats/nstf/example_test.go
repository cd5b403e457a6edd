package nstf_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/atomicfile"
	"github.com/nstf/nstf/formats/nstf"
	"github.com/nstf/nstf/formats/tensor"
)

func Example() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "small.nstf")

	w := formats.Tensor{
		Name: "w", Shape: []int64{1, 2}, Scheme: "f32",
		Parts: []formats.Part{{
			Name: "data", DType: tensor.F32, Shape: []int64{1, 2},
			Data: tensor.BytesBlob([]byte{0, 0, 128, 63, 0, 0, 0, 64}),
		}},
	}
	meta := nstf.Meta{
		Model:      json.RawMessage(`{"arch":"none"}`),
		Files:      []nstf.File{{Name: "chat_template.jinja", Data: []byte("{{ messages }}")}},
		Provenance: nstf.Provenance{Tool: "example 1"},
	}
	if err := nstf.Write(atomicfile.Scratch(path), meta, []nstf.Item{{Tensor: w}}, nstf.WriteOptions{}); err != nil {
		panic(err)
	}

	p, err := nstf.Open(path)
	if err != nil {
		panic(err)
	}
	defer p.Close()
	template, err := p.File("chat_template.jinja")
	if err != nil {
		panic(err)
	}
	data, _ := p.Tensors()[0].Parts[0].Data.Bytes()
	fmt.Printf("%s\n%s\n% x\n", p.Model(), template, data)
	fmt.Println(p.Verify(context.Background(), nil))
	// Output:
	// {"arch":"none"}
	// {{ messages }}
	// 00 00 80 3f 00 00 00 40
	// <nil>
}
