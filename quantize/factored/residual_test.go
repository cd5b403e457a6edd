package factored_test

import (
	"context"
	"flag"
	"fmt"
	"math"
	"os"
	"testing"

	"github.com/nstf/nstf/decompose"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/stats"
	"github.com/nstf/nstf/quantize/fit"
)

var (
	residualModel = flag.String("residual.model", "", "model whose residuals are looked at")
	residualStats = flag.String("residual.stats", "", "its statistics, by nstf calibrate")
	residualCode  = flag.String("residual.code", "tcq2", "codes")
	residualEach  = flag.Int("residual.each", 1, "look at one block of so many")
)

// BenchmarkResidual prints, for each matrix of a model, what its codes get
// wrong, the part of that which products of some ranks would take if they took
// no bytes, and beside it the part that the bytes of a product with factors of
// 4 bits would take if they were spent on finer codes. Where the first is less
// than the second no correction can pay, however its factors are stored.
func BenchmarkResidual(b *testing.B) {
	if *residualModel == "" {
		b.Skip("needs -residual.model and -residual.stats")
	}
	m, err := model.Open(*residualModel)
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	s, err := stats.Open(*residualStats)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	fmt.Fprintln(os.Stderr, "| tensor | N x K | error | whitened W: 16 | 64 | residual: 16 | bytes' worth | 32 | bytes' worth | 64 | bytes' worth |")
	fmt.Fprintln(os.Stderr, "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
	last, in := "", (*fit.Input)(nil)
	for i := 0; i < len(m.Graph.Blocks); i += *residualEach {
		for _, l := range m.Graph.Blocks[i].Linears() {
			if l.Role == model.RoleRouter {
				continue
			}
			if l.Input != last {
				h, err := s.Moments(l.Input, -1)
				if err != nil || h == nil {
					continue
				}
				last, in = l.Input, fit.NewInput(h, int(l.In))
			}
			residualRow(b, m, l, in)
		}
	}
}

func residualRow(b *testing.B, m *model.Model, l *model.Linear, in *fit.Input) {
	ctx := context.Background()
	n, k := int(l.Out), int(l.In)
	t := m.Tensor(l.Weight)
	w := make([]float32, n*k)
	if err := scheme.DecodeRows(w, &t, 0, int64(n)); err != nil {
		b.Fatal(err)
	}
	r, err := fit.Matrix(ctx, l.Weight, w, n, k, *residualCode, in, fit.Options{})
	if err != nil {
		b.Fatal(err)
	}
	left := make([]float32, n*k)
	if err := scheme.DecodeRows(left, &r.Tensor, 0, int64(n)); err != nil {
		b.Fatal(err)
	}
	for i, v := range w {
		left[i] = v - left[i]
	}
	h := decompose.NewMoments(in.Moments())
	whole, err := decompose.Factor(ctx, w, n, k, h, decompose.Options{})
	if err != nil {
		b.Fatal(err)
	}
	f, err := decompose.Factor(ctx, left, n, k, h, decompose.Options{})
	if err != nil {
		b.Fatal(err)
	}
	part := func(f *decompose.Factors, rank int) float64 { return 1 - f.Loss(rank)/f.Total }
	fmt.Fprintf(os.Stderr, "| %s | %d x %d | %.4f | %.2f | %.2f |", l.Weight, n, k, r.Error/r.Reference, part(whole, 16), part(whole, 64))
	for _, rank := range []int{16, 32, 64} {
		bits := 4 * float64(rank) * float64(n+k) / float64(n*k)
		fmt.Fprintf(os.Stderr, " %.2f | %.2f |", part(f, rank), 1-math.Pow(4, -bits))
	}
	fmt.Fprintln(os.Stderr)
}
