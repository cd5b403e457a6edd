package cpu_test

import (
	"fmt"

	"github.com/nstf/nstf/kernels/cpu"
)

// Two tokens through a weight matrix of three outputs and four inputs.
func Example() {
	s := cpu.Best()
	w := []float32{
		1, 0, 0, 0,
		0, 2, 0, 0,
		1, 1, 1, 1,
	}
	a := []float32{
		1, 2, 3, 4,
		5, 6, 7, 8,
	}
	c := make([]float32, 2*3)
	rows := func(dst []float32, row int) { copy(dst, w[4*row:]) }

	pool := cpu.NewPool(2)
	defer pool.Close()
	scratch := make([]cpu.GemmScratch, pool.Threads())
	pool.RunWorkers(2, func(worker, part int) {
		n0, n1 := cpu.Span(3, 1, 2, part)
		s.Gemm(c, 3, a, 4, 2, n0, n1, 4, rows, &scratch[worker])
	})
	fmt.Println(c)
	// Output: [1 4 10 5 12 26]
}
