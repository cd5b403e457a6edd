package bench

import (
	"fmt"
	"math/rand/v2"

	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/kernels/kerneltest"
)

// coding times one scheme of several parts, whose matrix is as large as its shape
// says: few tokens may find it in a cache.
func (k *kernels) coding(c kerneltest.Coding) error {
	if err := kerneltest.ValidateCoded(kerneltest.CodedProcessor(k.set), c); err != nil {
		return fmt.Errorf("not timed, it is wrong: %w", err)
	}
	for _, s := range k.o.Shapes {
		m, err := kerneltest.RandomMatrix(rand.New(rand.NewPCG(1, 2)), c, s.N, s.K)
		if err != nil { // a shape that the scheme does not take
			continue
		}
		size, err := m.Scheme.Size(m.Shape, m.Params)
		if err != nil {
			return err
		}
		p := newCodedProduct(k, m, s)
		if err := k.time(c.Name, s, p.peak, int(size), m.Data(0), p.run); err != nil {
			return err
		}
	}
	return nil
}

// codedProduct is one shape of a coding, multiplied as executors do.
type codedProduct struct {
	peak string
	run  func()
}

func newCodedProduct(k *kernels, m *scheme.Matrix, s Shape) *codedProduct {
	const part = 64 // rows of a part
	parts := (s.N + part - 1) / part
	x, y := make([]float32, s.T*s.K), make([]float32, s.T*s.N)
	for i := range x {
		x[i] = float32(i%7) - 3
	}
	var each func(worker, i int)
	p := &codedProduct{peak: cpu.PeakF32}
	if coded := k.set.Coded(m); coded != nil {
		p.peak = cpu.PeakInt8
		var a cpu.Activations
		scratch := make([]cpu.IntegerScratch, k.all.Threads())
		k.set.Quantize(&a, x, s.K, s.T, s.K, coded.Group())
		each = func(worker, i int) { coded.MatMul(y, s.N, &a, i*part, min(i*part+part, s.N), &scratch[worker]) }
	} else if dots := k.set.Dots(m); dots != nil && s.T <= cpu.FewTokens {
		scratch := make([]cpu.GemmScratch, k.all.Threads())
		each = func(worker, i int) {
			dots(y[i*part:], s.N, x, s.K, s.T, i*part, min(i*part+part, s.N), &scratch[worker])
		}
	} else {
		scratch, rows := make([]cpu.GemmScratch, k.all.Threads()), k.set.Rows(m)
		each = func(worker, i int) {
			k.set.Gemm(y, s.N, x, s.K, s.T, i*part, min(i*part+part, s.N), s.K, rows, &scratch[worker])
		}
	}
	p.run = func() { k.all.RunApart(parts, each) }
	return p
}
