package inspect_test

import (
	"fmt"
	"log"

	"github.com/nstf/nstf/formats/inspect"
)

func Example() {
	r, err := inspect.Open("../../testdata/micro/qwen3_moe")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r.Kind, r.Architecture, r.Shape.Experts, r.Shape.Used)
	for _, g := range r.Schemes {
		fmt.Println(g.Name, g.Tensors, g.Params, g.Bytes)
	}
	// Output:
	// safetensors qwen3_moe 4 2
	// bf16 38 57360 114720
}
