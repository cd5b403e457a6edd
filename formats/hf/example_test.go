package hf_test

import (
	"fmt"
	"log"

	"github.com/nstf/nstf/formats/hf"
)

func Example() {
	d, err := hf.Open("../../testdata/micro/quant-gptq-int4")
	if err != nil {
		log.Fatal(err)
	}
	defer d.Close()
	layers, err := d.Config().Int("num_hidden_layers")
	if err != nil {
		log.Fatal(err)
	}
	cap, err := d.Config().FloatOr("final_logit_softcapping", 0)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(d.Method(), layers, cap)
	for _, t := range d.Tensors() {
		if t.Name == "model.layers.0.mlp.down_proj.weight" {
			fmt.Println(&t)
		}
	}
	// Output:
	// gptq 1 0
	// model.layers.0.mlp.down_proj.weight (affine [32 96])
}
