package pipeline_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/nstf/nstf/decompose"
	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/formats/form"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/plan"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/stats"
	"github.com/nstf/nstf/formats/tensor"
	"github.com/nstf/nstf/quantize/factored"
	"github.com/nstf/nstf/quantize/fit"
	qplan "github.com/nstf/nstf/quantize/plan"
	"github.com/nstf/nstf/quantize/plan/candidates"
	"github.com/nstf/nstf/runtime/eval"
)

var (
	baseModel = flag.String("baseline.model", "", "model that is factored")
	baseStats = flag.String("baseline.stats", "", "its statistics, by nstf calibrate")
	baseText  = flag.String("baseline.text", "", "text to measure on")
	baseParts = flag.String("baseline.removed", "0.2,0.4,0.6", "parts of the parameters that are removed")
	baseMost  = flag.Int("baseline.tokens", 0, "tokens of it; 0: all")
	baseCodes = flag.String("baseline.codes", "", "scheme of the baselines' factors, which are then held to packages of equal bytes; \"\": factors stay in bf16")
)

// BenchmarkBaselines prints the perplexity of a model whose blocks' matrices are
// products of factors in bf16, with 20, 40 and 60 % of their parameters removed:
// by plain truncated singular value decompositions of one ratio for all, by
// truncated decompositions whitened by the second moments of one ratio for all
// (SVD-LLM: Wang et al., 2024, arXiv 2403.07378, without its later updates), and
// by the latter with ranks that a plan chooses per tensor under the same number
// of parameters. Nothing of the baselines is in the program.
//
// With a scheme, the factors of both baselines are coded by it, and beside them is
// what the planner makes of the same matrices in no more bytes, of all schemes and
// forms. Statistics are those of the original model throughout.
func BenchmarkBaselines(b *testing.B) {
	if *baseModel == "" {
		b.Skip("needs -baseline.model, -baseline.stats and -baseline.text")
	}
	m, err := checkpoint.Open(*baseModel)
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	s, err := stats.Open(*baseStats)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	h := &harness{b: b, m: m, s: s, measured: fit.NewMeasured(s)}
	if *baseCodes != "" {
		h.compareCoded(strings.Split(*baseParts, ","))
		return
	}
	h.factor()
	fmt.Fprintf(os.Stderr, "| removed | plain SVD | SVD-LLM's whitening | planned ranks | its predicted KL |\n|---|---:|---:|---:|---:|\n| 0 %% | %.2f | | | |\n", h.perplexity(nil))
	for _, part := range strings.Split(*baseParts, ",") {
		removed, err := strconv.ParseFloat(part, 64)
		if err != nil {
			b.Fatal(err)
		}
		plain, white := h.uniform(removed, false), h.uniform(removed, true)
		planned, predicted := h.planned(removed)
		fmt.Fprintf(os.Stderr, "| %.0f %% | %.2f | %.2f | %.2f | %.3f |\n", 100*removed, h.perplexity(plain), h.perplexity(white), h.perplexity(planned), predicted)
	}
}

// A harness holds the factorizations of a model's linears.
type harness struct {
	b           *testing.B
	m           *model.Model
	s           *stats.File
	measured    *fit.Measured
	linears     []*graph.Linear
	plain       map[string]*decompose.Factors
	white       map[string]*decompose.Factors
	denseParams int64
}

func (h *harness) factor() {
	h.plain, h.white = map[string]*decompose.Factors{}, map[string]*decompose.Factors{}
	h.each(func(l *graph.Linear, w []float32, in *fit.Input) {
		n, k := int(l.Out), int(l.In)
		for _, x := range []struct {
			to map[string]*decompose.Factors
			h  *decompose.Moments
		}{{h.plain, nil}, {h.white, decompose.NewMoments(in.Moments())}} {
			var err error
			if x.to[l.Weight], err = decompose.Factor(context.Background(), w, n, k, x.h, decompose.Options{}); err != nil {
				h.b.Fatal(err)
			}
		}
		h.linears, h.denseParams = append(h.linears, l), h.denseParams+int64(n*k)
	})
}

// each visits the matrices of all blocks.
func (h *harness) each(do func(l *graph.Linear, w []float32, in *fit.Input)) {
	for i := range h.m.Graph.Blocks {
		for _, l := range h.m.Graph.Blocks[i].Linears() {
			t := h.m.Tensor(l.Weight)
			if l.Role == graph.RoleRouter || len(t.Shape) != 2 {
				continue
			}
			w := make([]float32, l.Out*l.In)
			if err := scheme.DecodeRows(w, &t, 0, l.Out); err != nil {
				h.b.Fatal(err)
			}
			in, err := h.measured.Input(l.Input, -1)
			if err != nil {
				h.b.Fatal(err)
			}
			do(l, w, in)
		}
	}
}

// compareCoded prints the perplexities of coded factors and of what is planned for
// their bytes.
func (h *harness) compareCoded(parts []string) {
	items, err := candidates.Build(context.Background(), h.m, candidates.Options{Forms: true, Stats: h.s})
	if err != nil {
		h.b.Fatal(err)
	}
	fmt.Fprintf(os.Stderr, "| removed, factors in %s | bytes | plain SVD | SVD-LLM's whitening | planned | its bytes | its predicted KL |\n|---|---:|---:|---:|---:|---:|---:|\n| 0 %% | | %.2f | | | | |\n", *baseCodes, h.perplexity(nil))
	for _, part := range parts {
		removed, err := strconv.ParseFloat(part, 64)
		if err != nil {
			h.b.Fatal(err)
		}
		plain, white := map[string]formats.Tensor{}, map[string]formats.Tensor{}
		var budget int64
		h.each(func(l *graph.Linear, w []float32, in *fit.Input) {
			rank := int((1-removed)*float64(l.Out*l.In)/float64(l.Out+l.In)) &^ 15
			recipe := plan.MustRecipe(fmt.Sprintf("lowrank:%d:%s", rank, *baseCodes))
			plain[l.Weight], white[l.Weight] = h.coded(l, w, nil, recipe), h.coded(l, w, in, recipe)
			t := white[l.Weight]
			budget += t.Size()
		})
		ours, used, predicted := h.plannedFor(items, white, budget)
		fmt.Fprintf(os.Stderr, "| %.0f %% | %d | %.2f | %.2f | %.2f | %d | %.3f |\n", 100*removed, budget, h.perplexity(plain), h.perplexity(white), h.perplexity(ours), used, predicted)
	}
}

// coded fits a matrix by a recipe.
func (h *harness) coded(l *graph.Linear, w []float32, in *fit.Input, recipe plan.Recipe) formats.Tensor {
	r, err := factored.Matrix(context.Background(), l.Weight, w, int(l.Out), int(l.In), recipe, in, fit.Options{})
	if err != nil {
		h.b.Fatal(err)
	}
	return r.Tensor
}

// plannedFor chooses recipes for some tensors within a number of bytes, and fits them.
func (h *harness) plannedFor(items []qplan.Item, tensors map[string]formats.Tensor, bytes int64) (out map[string]formats.Tensor, used int64, predicted float64) {
	var some []qplan.Item
	for _, it := range items {
		if _, ok := tensors[it.Name]; ok {
			some = append(some, it)
		}
	}
	p, err := qplan.Solve(some, qplan.Budget{Bytes: bytes})
	if err != nil {
		h.b.Fatal(err)
	}
	out = map[string]formats.Tensor{}
	h.each(func(l *graph.Linear, w []float32, in *fit.Input) {
		if row, ok := p.Tensor(l.Weight); ok && !row.Recipe.Kept() {
			t := h.coded(l, w, in, row.Recipe)
			out[l.Weight], used = t, used+t.Size()
		}
	})
	return out, used, p.Predicted.KLD
}

// product makes a tensor of a rank's factors.
func (h *harness) product(l *graph.Linear, f *decompose.Factors, rank int) formats.Tensor {
	a, b := f.Take(rank)
	t, err := form.New(l.Weight, form.LowRank, []int64{l.Out, l.In}, nil, h.half("a", a, l.Out, int64(rank)), h.half("b", b, int64(rank), l.In))
	if err != nil {
		h.b.Fatal(err)
	}
	return t
}

func (h *harness) half(name string, w []float32, n, k int64) formats.Tensor {
	data := make([]byte, 2*len(w))
	if err := tensor.FromFloat32(data, w, tensor.BF16); err != nil {
		h.b.Fatal(err)
	}
	s, _ := scheme.ByName("bf16")
	t, err := scheme.New(name, s, []int64{n, k}, nil, tensor.BytesBlob(data))
	if err != nil {
		h.b.Fatal(err)
	}
	return t
}

// uniform gives all matrices the rank that leaves one part of their parameters.
func (h *harness) uniform(removed float64, whitened bool) map[string]formats.Tensor {
	out := map[string]formats.Tensor{}
	for _, l := range h.linears {
		f := h.plain[l.Weight]
		if whitened {
			f = h.white[l.Weight]
		}
		rank := int((1 - removed) * float64(l.Out*l.In) / float64(l.Out+l.In))
		out[l.Weight] = h.product(l, f, rank)
	}
	return out
}

// planned chooses ranks by predicted loss, as plans do, a matrix as it is
// included; a parameter counts as a byte.
func (h *harness) planned(removed float64) (map[string]formats.Tensor, float64) {
	var items []qplan.Item
	for _, l := range h.linears {
		f, sensitivity := h.white[l.Weight], h.s.Sensitivity[l.Weight]
		it := qplan.Item{Name: l.Weight, Shape: []int64{l.Out, l.In}, Candidates: []qplan.Candidate{{Recipe: plan.Recipe{}, Bytes: l.Out * l.In}}}
		for rank := 4; int64(rank)*(l.Out+l.In) < l.Out*l.In; rank += 4 {
			e := f.Loss(rank) / f.Total
			it.Candidates = append(it.Candidates, qplan.Candidate{Recipe: plan.MustRecipe(fmt.Sprintf("lowrank:%d:bf16", rank)), Bytes: int64(rank) * (l.Out + l.In), Error: e, Loss: e * sensitivity})
		}
		items = append(items, it)
	}
	p, err := qplan.Solve(items, qplan.Budget{Bytes: int64((1 - removed) * float64(h.denseParams))})
	if err != nil {
		h.b.Fatal(err)
	}
	out := map[string]formats.Tensor{}
	for _, l := range h.linears {
		row, _ := p.Tensor(l.Weight)
		var rank int
		if n, _ := fmt.Sscanf(row.Recipe.String(), "lowrank:%d:", &rank); n == 1 {
			out[l.Weight] = h.product(l, h.white[l.Weight], rank)
		}
	}
	return out, p.Predicted.KLD
}

func (h *harness) perplexity(tensors map[string]formats.Tensor) float64 {
	r, err := eval.Run(context.Background(), h.m.With(tensors), eval.Options{Text: *baseText, MaxTokens: *baseMost, Context: 512, Protocol: eval.ProtocolLlamaCPP})
	if err != nil {
		h.b.Fatal(err)
	}
	return r.Perplexity.Value
}
