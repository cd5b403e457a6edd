package safetensors_test

import (
	"fmt"
	"log"

	"github.com/nstf/nstf/formats/safetensors"
)

func Example() {
	f, err := safetensors.Open("../../testdata/safetensors/types.safetensors")
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	t := f.Tensors()[0]
	fmt.Println(&t, f.Metadata()["format"])
	// Output: t.uint64 (u64 [2 3 4]) pt
}
