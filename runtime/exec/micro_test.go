package exec

import (
	"path/filepath"
	"testing"

	"github.com/nstf/nstf/formats/graph"
)

// microReference is a micro checkpoint's reference.json.
type microReference struct {
	Prompts []greedyCase `json:"prompts"`
	Logits  []struct {
		File string  `json:"file"`
		IDs  []int32 `json:"ids"`
	} `json:"logits"`
}

// Every architecture and variant against transformers' float32 logits.
func TestMicroCheckpoints(t *testing.T) {
	for _, dir := range byTurns(microCheckpoints(t)) {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			var ref microReference
			readJSON(t, filepath.Join(dir, "reference.json"), &ref)
			if len(ref.Logits) == 0 || len(ref.Prompts) == 0 {
				t.Fatal("the reference has no logits or no prompts")
			}
			e := open(t, dir, Options{Exact: true, Threads: 1, Context: ref.longest()})
			s := sequence(t, e)
			byLength := dependsOnLength(e.Graph())
			for _, l := range ref.Logits {
				want := readNPY(t, filepath.Join(dir, l.File))
				s.Reset()
				checkLogits(t, l.File+" by prefill", allLogits(t, s, l.IDs), want, logitTolerance)
				if byLength {
					continue // other lengths, other angles: see TestLengthDependentRope
				}
				s.Reset()
				checkLogits(t, l.File+" by steps", stepLogits(t, s, l.IDs), want, logitTolerance)
				s.Reset()
				half := len(l.IDs) / 2
				got := append(allLogits(t, s, l.IDs[:half]), allLogits(t, s, l.IDs[half:])...)
				checkLogits(t, l.File+" in two parts", got, want, logitTolerance)
			}
			for _, c := range ref.Prompts {
				c.check(t, s, dynamic(e.Graph()))
			}
		})
	}
}

// longest returns the positions that the reference asks for: more than the
// model was made for where its rotary embedding stretches.
func (r *microReference) longest() int64 {
	n := 0
	for _, l := range r.Logits {
		n = max(n, len(l.IDs))
	}
	for _, p := range r.Prompts {
		n = max(n, len(p.Prompt)+len(p.Greedy))
	}
	return int64(n)
}

// dynamic reports whether keys keep the rotation of the length at which they
// were computed, so that steps differ from one pass over everything.
func dynamic(g *graph.Graph) bool {
	for i := range g.Ropes {
		if g.Ropes[i].Scaling.Kind == graph.ScaleDynamic {
			return true
		}
	}
	return false
}

// dependsOnLength reports whether a rotary embedding looks at the length.
func dependsOnLength(g *graph.Graph) bool {
	for i := range g.Ropes {
		if k := g.Ropes[i].Scaling.Kind; k == graph.ScaleDynamic || k == graph.ScaleLongRope {
			return true
		}
	}
	return false
}
