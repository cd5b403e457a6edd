package factored_test

import (
	"context"
	"flag"
	"fmt"
	"math"
	"os"
	"regexp"
	"testing"

	"github.com/nstf/nstf/decompose"
	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/formats/form"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/plan"
	"github.com/nstf/nstf/formats/stats"
	"github.com/nstf/nstf/quantize/factored"
	"github.com/nstf/nstf/quantize/fit"
)

var (
	residualModel = flag.String("residual.model", "", "model whose residuals are looked at")
	residualStats = flag.String("residual.stats", "", "its statistics, by nstf calibrate")
	residualCode  = flag.String("residual.code", "tcq2", "codes")
	residualEach  = flag.Int("residual.each", 1, "look at one block of so many")
	residualOnly  = flag.String("residual.only", "", "look at tensors whose name matches this alone")
	residualForm  = flag.String("residual.form", "", "also fit this recipe, such as tcq2+lr:16:tcq2")
)

// BenchmarkResidual prints, for each matrix of a model, what its codes get
// wrong, and three parts: that of W itself which products of some ranks take
// where all errors count alike, that of W under the moments, and that of what the
// codes got wrong under the moments, if the product took no bytes. Beside them is
// the part that the bytes of a product with factors of 2 bits would take if they
// were spent on finer codes. Where the first and the third are less than this no
// correction can pay, however its factors are stored. With a form, what it comes
// to is printed beside what is predicted of it.
func BenchmarkResidual(b *testing.B) {
	if *residualModel == "" {
		b.Skip("needs -residual.model and -residual.stats")
	}
	only := regexp.MustCompile(*residualOnly)
	m, err := checkpoint.Open(*residualModel)
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	s, err := stats.Open(*residualStats)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	fmt.Fprintln(os.Stderr, "| tensor | N x K | error | rank | of W alike | of W under H | of the residual | bytes' worth | form's error: predicted | came to | of codes of its bytes |")
	fmt.Fprintln(os.Stderr, "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
	var list []*graph.Linear
	for i := 0; i < len(m.Graph.Blocks); i += *residualEach {
		list = append(list, m.Graph.Blocks[i].Linears()...)
	}
	last, in := "", (*fit.Input)(nil)
	for _, l := range append(list, &m.Graph.Head.Linear) {
		if l.Role == graph.RoleRouter || !only.MatchString(l.Weight) || len(m.Tensor(l.Weight).Shape) != 2 {
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

func residualRow(b *testing.B, m *model.Model, l *graph.Linear, in *fit.Input) {
	ctx := context.Background()
	n, k := int(l.Out), int(l.In)
	t := m.Tensor(l.Weight)
	w, err := form.Decode(&t)
	if err != nil {
		b.Fatal(err)
	}
	r, err := fit.Matrix(ctx, l.Weight, w, n, k, plan.MustCode(*residualCode), in, fit.Options{})
	if err != nil {
		b.Fatal(err)
	}
	left, err := form.Decode(&r.Tensor)
	if err != nil {
		b.Fatal(err)
	}
	for i, v := range w {
		left[i] = v - left[i]
	}
	h := decompose.NewMoments(in.Moments())
	var parts [3]*decompose.Factors
	for i, x := range []struct {
		w []float32
		h *decompose.Moments
	}{{w, nil}, {w, h}, {left, h}} {
		if parts[i], err = decompose.Factor(ctx, x.w, n, k, x.h, decompose.Options{Rank: 64, Fast: n*k > 1<<20}); err != nil {
			b.Fatal(err)
		}
	}
	part := func(i, rank int) float64 { return 1 - parts[i].Loss(rank)/parts[i].Total }
	worth := func(bits float64) float64 { return math.Pow(4, -bits) }
	codes := r.Error / r.Reference
	for _, rank := range []int{16, 32, 64} {
		bits := 2 * float64(rank) * float64(n+k) / float64(n*k)
		fmt.Fprintf(os.Stderr, "| %s | %d x %d | %.4f | %d | %.2f | %.2f | %.2f | %.2f |", l.Weight, n, k, codes, rank, part(0, rank), part(1, rank), part(2, rank), 1-worth(bits))
		if f, err := plan.ParseRecipe(*residualForm); *residualForm != "" && err == nil && f.Rank == rank {
			x, err := factored.Matrix(ctx, l.Weight, w, n, k, f, in, fit.Options{})
			if err != nil {
				b.Fatal(err)
			}
			more := 8 * float64(x.Tensor.Size()-r.Tensor.Size()) / float64(n*k)
			lost := 2 * 1.2 / 16 // of factors of two bits
			fmt.Fprintf(os.Stderr, " %.4f | %.4f | %.2f |", codes*(1-part(0, rank)*(1-lost)), x.Error/x.Reference, x.Error/x.Reference/codes/worth(more))
		} else {
			fmt.Fprint(os.Stderr, " | | |")
		}
		fmt.Fprintln(os.Stderr)
	}
}
