package gguf_test

import (
	"bytes"
	"fmt"
	"log"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/gguf"
	"github.com/nstf/nstf/formats/tensor"
)

func Example() {
	f, err := gguf.Open("../../testdata/gguf/split-00002-of-00003.gguf")
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	name, err := f.String("general.name")
	if err != nil {
		log.Fatal(err)
	}
	t := f.Tensors()[0]
	fmt.Println(name, len(f.Parts()), &t)
	// Output: split in three 3 blk.0.weight (f32 [2 4])
}

func ExampleNewWriter() {
	w, err := gguf.NewWriter(
		[]gguf.KV{{Key: "general.architecture", Value: "llama"}},
		[]formats.Tensor{{
			Name: "output_norm.weight", Shape: []int64{1}, Scheme: "f32",
			Parts: []formats.Part{{Name: "data", DType: tensor.F32, Shape: []int64{1}, Data: tensor.BytesBlob([]byte{0, 0, 128, 63})}},
		}})
	if err != nil {
		log.Fatal(err)
	}
	var file bytes.Buffer
	n, err := w.WriteTo(&file)
	fmt.Println(n == w.Size(), n, err)
	// Output: true 160 <nil>
}
