package pipeline

import (
	"fmt"

	"github.com/nstf/nstf/calibrate"
	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/plan"
)

// Needs is what executing a plan takes.
type Needs struct {
	Memory int64 // anonymous memory at its peak; files are mapped or read in passing
	Disk   int64 // work folder and package, while both are there
}

// What does not depend on the model: the program, work space of kernels, rows
// of logits. Measured on models from 1 M to 1 B weights.
const baseMemory = 192 << 20

// Need returns what executing a plan takes, before anything is read.
func Need(m *model.Model, p *plan.Plan, o Options) Needs {
	g := m.Graph
	var tokens int64
	for _, w := range o.Windows {
		tokens += int64(len(w))
	}
	n := Needs{Memory: baseMemory}
	walk := len(o.Windows) > 0 && !o.Parallel
	if walk {
		n.Memory += calibrate.Bytes(tokens, g.Width)
		n.Disk += 2 * calibrate.Bytes(tokens, g.Width) // the old states are there until the new ones are
	}
	r := run{m: m, p: p, o: o}
	gathered := map[int]int64{}
	if walk {
		for i := range g.Blocks {
			gathered[i] = gatherBytes(&g.Blocks[i])
		}
		gathered[-1] = triangle(g.Head.In)
	}
	var peak int64
	for _, w := range g.Weights() {
		t := m.Tensor(w.Name)
		if r.recipe(w.Name) == plan.Keep {
			n.Disk += t.Size()
			continue
		}
		row, _ := p.Tensor(w.Name)
		n.Disk += 2 * row.Bytes
		peak = max(peak, gathered[w.Block]+fitBytes(&t, row.Bytes))
	}
	n.Memory += peak
	n.Memory += n.Memory / 8 // what was dropped and not collected yet
	return n
}

// triangle returns the bytes of the sums of k features.
func triangle(k int64) int64 { return 8 * (k * (k + 1) / 2) }

// gatherBytes returns what the moments of a block take.
func gatherBytes(b *model.Block) (sum int64) {
	seen := map[string]bool{}
	for _, l := range b.Linears() {
		if seen[l.Input] {
			continue
		}
		seen[l.Input] = true
		sum += triangle(l.In)
		if b.MoE != nil && (l == &b.MoE.Gate || l == &b.MoE.Down) {
			sum += b.MoE.Experts * triangle(l.In)
		}
	}
	return sum
}

// fitBytes returns what fitting a tensor takes: its result, the moments of its
// input (a matrix in float64, beside it first the sums that it is made of, then
// two halves of one in float32: factors, and what of them answers errors; less the
// sums, which are counted as gathered), and the matrix, its rotation and its errors
// in float32 with two codings.
func fitBytes(t *formats.Tensor, result int64) int64 {
	_, k := t.Rows()
	n := t.Shape[len(t.Shape)-1]
	if len(t.Shape) > 1 {
		n = t.Shape[len(t.Shape)-2]
	}
	weights := min(n*k, max(maxChunk, chunkTile*k))
	return result + 12*k*k - triangle(k) + 14*weights
}

// check refuses a limit of memory that a plan does not keep.
func (n Needs) check(limit int64) error {
	if limit <= 0 || n.Memory <= limit {
		return nil
	}
	e := formats.Unsupportedf("", "", "quantizing in %.2f GiB of memory: about %.2f GiB are needed", gib(limit), gib(n.Memory))
	e.Hint = "give fewer or shorter windows (--samples, --ctx), or more memory (--memory)"
	return fmt.Errorf("before anything is read: %w", e)
}

func gib(n int64) float64 { return float64(n) / (1 << 30) }
