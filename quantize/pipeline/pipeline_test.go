package pipeline_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/atomicfile"
	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/plan"
	"github.com/nstf/nstf/quantize/encode"
	"github.com/nstf/nstf/quantize/pipeline"
	"github.com/nstf/nstf/runtime/exec"
)

func windows(vocab int64, n int) (out [][]int32) {
	for w := range n {
		ids := make([]int32, 48)
		for i := range ids {
			ids[i] = int32((i*i*7 + w*131 + i*17) % int(vocab))
		}
		out = append(out, ids)
	}
	return out
}

// planned gives all matrices one scheme.
func planned(t *testing.T, m *model.Model, name string) *plan.Plan {
	t.Helper()
	p, err := pipeline.Chosen{Scheme: name, Embed: name, Head: name}.Plan(m)
	if err != nil {
		t.Fatal(err)
	}
	p.Seed = 1
	return p
}

// logits runs a text through a model.
func logits(t *testing.T, m *model.Model, tensors map[string]formats.Tensor, ids []int32) []float32 {
	t.Helper()
	path := filepath.Join(t.TempDir(), "m.nstf")
	if _, err := encode.Run(context.Background(), m, atomicfile.Scratch(path), encode.Options{Fitted: tensors}); err != nil {
		t.Fatal(err)
	}
	p, err := checkpoint.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	ex, err := exec.New(p, exec.Options{Exact: true, Context: 64})
	if err != nil {
		t.Fatal(err)
	}
	defer ex.Close()
	s, err := ex.NewSequence()
	if err != nil {
		t.Fatal(err)
	}
	out, err := s.PrefillLast(context.Background(), ids)
	if err != nil {
		t.Fatal(err)
	}
	return append([]float32(nil), out...)
}

// TestRun fits micro checkpoints: more bits come nearer to the model, every
// matrix that codes can hold is fitted, and the same run gives the same bytes.
func TestRun(t *testing.T) {
	for _, name := range []string{"llama-31", "llama-tied", "mixtral"} {
		t.Run(name, func(t *testing.T) {
			m, err := checkpoint.Open("../../testdata/micro/" + name)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			ids := windows(m.Graph.Vocab, 1)[0]
			want := logits(t, m, nil, ids)
			last := math.Inf(1)
			for _, bits := range []int{2, 4, 6} {
				o := pipeline.Options{Windows: windows(m.Graph.Vocab, 3)}
				p := planned(t, m, fmt.Sprintf("tcq%d", bits))
				r, err := pipeline.Run(context.Background(), m, p, o)
				if err != nil {
					t.Fatal(err)
				}
				fitted := r.Tensors
				if x, ok := fitted[m.Graph.Blocks[0].Attn.O.Weight]; !ok || x.Scheme != "tcq" || x.Params["bits"] != int64(bits) {
					t.Fatalf("attention's output is %v", x)
				}
				got := logits(t, m, fitted, ids)
				var d float64
				for i := range got {
					d += math.Pow(float64(got[i]-want[i]), 2)
				}
				if d >= last {
					t.Errorf("%d bits are off by %g, fewer by %g", bits, d, last)
				}
				last = d
				if bits != 2 {
					continue
				}
				o.Threads = 1
				again, err := pipeline.Run(context.Background(), m, p, o)
				if err != nil {
					t.Fatal(err)
				}
				for tensor, x := range fitted {
					for i := range x.Parts {
						a, err := x.Parts[i].Data.Bytes()
						b, err2 := again.Tensors[tensor].Parts[i].Data.Bytes()
						if err != nil || err2 != nil || !bytes.Equal(a, b) {
							t.Fatalf("%s: part %d differs between runs", tensor, i)
						}
					}
				}
			}
		})
	}
}

// TestCancelled stops between tensors.
func TestCancelled(t *testing.T) {
	m, err := checkpoint.Open("../../testdata/micro/llama-31")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := pipeline.Run(ctx, m, planned(t, m, "tcq2"), pipeline.Options{Windows: windows(m.Graph.Vocab, 1)}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
