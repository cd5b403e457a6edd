package candidates

import (
	"context"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/plan"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
	"github.com/nstf/nstf/quantize/factored"
	"github.com/nstf/nstf/quantize/fit"
	qplan "github.com/nstf/nstf/quantize/plan"
)

func stored(t *testing.T, w []float32, shape ...int64) formats.Tensor {
	t.Helper()
	data := make([]byte, 4*len(w))
	for i, v := range w {
		binary.LittleEndian.PutUint32(data[4*i:], math.Float32bits(v))
	}
	s, _ := scheme.ByName("f32")
	x, err := scheme.New("w", s, shape, nil, tensor.BytesBlob(data))
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// product returns a random matrix of a rank.
func product(rng *rand.Rand, n, k, rank int) []float32 {
	w := make([]float32, n*k)
	for range rank {
		a, b := noise(rng, n), noise(rng, k)
		for i := range n {
			for j := range k {
				w[i*k+j] += a[i] * b[j]
			}
		}
	}
	return w
}

func noise(rng *rand.Rand, n int) []float32 {
	w := make([]float32, n)
	for i := range w {
		w[i] = float32(rng.NormFloat64())
	}
	return w
}

// experts mixes two matrices.
func experts(rng *rand.Rand, e, n, k int) []float32 {
	base := noise(rng, 2*n*k)
	var w []float32
	for range e {
		a, b := float32(rng.NormFloat64()), float32(rng.NormFloat64())
		for i := range n * k {
			w = append(w, a*base[i]+b*base[n*k+i]+0.01*float32(rng.NormFloat64()))
		}
	}
	return w
}

// TestForms looks at tensors of a known structure: of one of rank 32 a product
// is found, of experts with two matrices in common these are, and of random
// weights nothing.
func TestForms(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	const n, k = 256, 320
	for _, c := range []struct {
		what  string
		x     formats.Tensor
		want  string // start of the recipe at two bits a weight; "": codes alone
		scale float64
	}{
		{"rank 32", stored(t, product(rng, n, k, 32), n, k), "lowrank:32:", 1},
		{"random", stored(t, noise(rng, n*k), n, k), "", 1},
		{"shared experts", stored(t, experts(rng, 8, 64, 128), 8, 64, 128), "shared:2:", 1},
		{"random experts", stored(t, noise(rng, 8*64*128), 8, 64, 128), "", 1},
	} {
		t.Run(c.what, func(t *testing.T) {
			b := &builder{o: Options{Threads: 2}, measured: fit.NewMeasured(nil), readers: map[string]*graph.Linear{}, progress: &progress{working: make(chan struct{}, 2)}}
			var recipes []plan.Recipe
			for _, c := range factorCodes() {
				recipes = append(recipes, plan.Dense(c))
			}
			errs, err := b.errors(context.Background(), &c.x, recipes)
			if err != nil {
				t.Fatal(err)
			}
			dense := map[plan.Code]float64{}
			var codes []qplan.Candidate
			for i, r := range recipes {
				dense[r.Code] = errs[i]
				d, err := factored.Describe("w", c.x.Shape, r, fit.Options{})
				if err != nil {
					t.Fatal(err)
				}
				codes = append(codes, qplan.Candidate{Recipe: r, Bytes: d.Size(), Error: errs[i], Loss: errs[i]})
			}
			forms, err := b.forms(context.Background(), &qplan.Item{Name: "w"}, &c.x, dense, 1)
			if err != nil {
				t.Fatal(err)
			}
			got := paying(codes, forms, 1)
			if c.want == "" {
				for _, x := range got {
					if x.Loss < 0.5 {
						t.Errorf("%+v pays", x)
					}
				}
				return
			}
			best := qplan.Candidate{Loss: 2}
			for _, x := range append(codes, got...) {
				if x.Bytes <= codes[0].Bytes && x.Loss < best.Loss {
					best = x
				}
			}
			if !strings.HasPrefix(best.Recipe.String(), c.want) || best.Loss > 0.5*codes[0].Loss {
				t.Errorf("the best at two bits is %+v, codes leave %g", best, codes[0].Loss)
			}
		})
	}
}

// TestLowerHull leaves out what lies above a line between two others.
func TestLowerHull(t *testing.T) {
	q := plan.MustRecipe
	list := []qplan.Candidate{{Recipe: q("q4_0"), Bytes: 10, Loss: 8}, {Recipe: q("q4_1"), Bytes: 20, Loss: 7}, {Recipe: q("q5_0"), Bytes: 30, Loss: 2}, {Recipe: q("q5_1"), Bytes: 40, Loss: 1}, {Recipe: q("q8_0"), Bytes: 35, Loss: 3}}
	var got string
	for _, c := range lowerHull(list) {
		got += c.Recipe.String() + " "
	}
	if got != "q4_0 q5_0 q5_1 " {
		t.Errorf("got %s", got)
	}
	if v := at(lowerHull(list), 20); math.Abs(v-4) > 1e-9 {
		t.Errorf("half way from 8 to 2 is %g", v)
	}
}
