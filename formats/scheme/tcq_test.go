package scheme_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/scheme"
)

func tcqParams(more ...any) map[string]int64 {
	p := scheme.TCQ{Bits: 3, Codebook: scheme.TCQBytes4, RotateIn: 64, RotateOut: 32, Seed: 5}.Params()
	for i := 0; i < len(more); i += 2 {
		p[more[i].(string)] = int64(more[i+1].(int))
	}
	return p
}

// TestTCQRows cuts at tiles and blocks, joins again, and stacks experts.
func TestTCQRows(t *testing.T) {
	s, _ := scheme.ByName("tcq")
	const n, k = 96, 128
	for _, params := range []map[string]int64{tcqParams(), tcqParams("out_scales", 1), tcqParams("rotate_out", 1, "bits", 5)} {
		x := random(t, rand.New(rand.NewPCG(3, 3)), s, n, k, params)
		all := decodeAll(t, &x)
		head, tail := mustSlice(t, x, 0, 32), mustSlice(t, x, 32, 64)
		sameBits(t, decodeAll(t, &tail), all[32*k:])
		whole, err := scheme.Concat("whole", []int64{n, k}, head, tail)
		if err != nil {
			t.Fatal(err)
		}
		sameBits(t, decodeAll(t, &whole), all)
		stack, err := scheme.Concat("stack", []int64{2, n, k}, x, whole)
		if err != nil {
			t.Fatal(err)
		}
		sameBits(t, decodeAll(t, &stack), append(append([]float32(nil), all...), all...))
		picked, err := scheme.PickRows(x, []int64{32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47})
		if params["rotate_out"] == 1 {
			if err != nil {
				t.Fatal(err)
			}
			sameBits(t, decodeAll(t, &picked), all[32*k:48*k])
		} else if err == nil {
			t.Error("half a rotated block was cut out")
		}
	}
}

// TestTCQCannotCut wants an UnsupportedError that names the tensor.
func TestTCQCannotCut(t *testing.T) {
	s, _ := scheme.ByName("tcq")
	x := random(t, rand.New(rand.NewPCG(3, 3)), s, 64, 64, tcqParams())
	in := random(t, rand.New(rand.NewPCG(3, 3)), s, 64, 64, tcqParams("in_scales", 1))
	var unsupported *formats.UnsupportedError
	if _, err := scheme.Slice(x, 16, 32); !errors.As(err, &unsupported) || unsupported.Tensor != "w" {
		t.Errorf("slice inside a block: %v", err)
	}
	if _, err := scheme.PickRows(x, []int64{1, 0}); !errors.As(err, &unsupported) {
		t.Errorf("reordered rows: %v", err)
	}
	if _, err := scheme.Concat("y", []int64{128, 64}, in, in); !errors.As(err, &unsupported) {
		t.Errorf("joined columns' scales: %v", err)
	}
}

// TestTCQParams refuses each parameter that the page does not allow.
func TestTCQParams(t *testing.T) {
	s, _ := scheme.ByName("tcq")
	for name, bad := range map[string]map[string]int64{
		"bits":       tcqParams("bits", 7),
		"codebook":   tcqParams("codebook", 4),
		"rotate_in":  tcqParams("rotate_in", 48),
		"rotate_out": tcqParams("rotate_out", 256),
		"columns":    tcqParams("rotate_in", 128),
		"rows":       tcqParams("rotate_out", 64),
		"seed":       tcqParams("seed", -1),
		"out_scales": tcqParams("out_scales", 2),
		"scale":      tcqParams("scale", 1),
	} {
		if _, err := s.Parts([]int64{96, 192}, bad); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, shape := range [][]int64{{192}, {8, 192}, {24, 192}, {2, 48, 192}, {96, 200}} {
		if _, err := s.Parts(shape, tcqParams()); err == nil {
			t.Errorf("shape %v was accepted", shape)
		}
	}
	if _, err := s.Parts([]int64{2, 96, 192}, tcqParams()); err != nil {
		t.Error(err)
	}
	if _, err := s.Parts([]int64{math.MaxInt64 / 4096 * 16, 192}, tcqParams()); err == nil {
		t.Error("an overflowing size was accepted")
	}
}

// TestTCQConcurrent decodes rows of several blocks at once.
func TestTCQConcurrent(t *testing.T) {
	s, _ := scheme.ByName("tcq")
	const n, k = 128, 64
	x := random(t, rand.New(rand.NewPCG(9, 9)), s, n, k, tcqParams())
	want := decodeAll(t, &x)
	m, err := scheme.Open(&x)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			row := make([]float32, k)
			for i := range n {
				r := (i*37 + w*31) % n
				m.DecodeRow(row, int64(r))
				for j := range row {
					if math.Float32bits(row[j]) != math.Float32bits(want[r*k+j]) {
						t.Errorf("row %d differs", r)
						return
					}
				}
			}
		})
	}
	wg.Wait()
}

// TestHadamard holds the transform to its definition, and to being its own
// inverse.
func TestHadamard(t *testing.T) {
	for h := 1; h <= scheme.TCQMaxRotate; h *= 2 {
		for i := range h {
			x := make([]float32, h)
			x[i] = 1
			scheme.Hadamard(x)
			for j := range x {
				want := 1 / math.Sqrt(float64(h))
				for b := i & j; b != 0; b &= b - 1 {
					want = -want
				}
				if x[j] != float32(want) {
					t.Fatalf("H[%d][%d] of %d is %g, want %g", i, j, h, x[j], want)
				}
			}
			scheme.Hadamard(x)
			for j := range x {
				want := float64(0)
				if i == j {
					want = 1
				}
				if math.Abs(float64(x[j])-want) > 1e-6 {
					t.Fatalf("transformed twice, %d of %d is %g", j, h, x[j])
				}
			}
		}
	}
}

// TestTCQCodebooks states the moments that the page gives.
func TestTCQCodebooks(t *testing.T) {
	for c, want := range map[scheme.TCQCodebook][2]float64{scheme.TCQBytes4: {-2, 147.7}, scheme.TCQBytes2: {-1, 104.5}} {
		var sum, squares float64
		for _, v := range c.Table() {
			sum += float64(v)
			squares += float64(v) * float64(v)
		}
		mean := sum / 65536
		deviation := math.Sqrt(squares/65536 - mean*mean)
		if math.Abs(mean-want[0]) > 0.5 || math.Abs(deviation-want[1]) > 0.5 {
			t.Errorf("codebook %d: mean %.2f, deviation %.2f", c, mean, deviation)
		}
	}
}
