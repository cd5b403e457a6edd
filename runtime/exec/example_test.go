package exec_test

import (
	"context"
	"fmt"

	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/runtime/exec"
	"github.com/nstf/nstf/runtime/sample"
)

// Five greedy tokens from a checkpoint with random weights.
func Example() {
	m, err := checkpoint.Open("../../testdata/micro/llama-31")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer m.Close()
	e, err := exec.New(m, exec.Options{Threads: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer e.Close()
	s, err := e.NewSequence()
	if err != nil {
		fmt.Println(err)
		return
	}
	logits, err := s.PrefillLast(context.Background(), []int32{107, 88, 253, 196, 258})
	for err == nil && s.Len() < 10 {
		logits, err = s.Step(sample.Greedy(logits))
	}
	fmt.Println(s.Tokens()[5:], err)
	// Output: [58 115 112 35 202] <nil>
}
