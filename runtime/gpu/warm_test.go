package gpu

import (
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/kernels/hip"
)

// What is made ready for servers is what any pass needs: all numbers of rows, wherever
// those begin that are wanted.
func TestEverything(t *testing.T) {
	shape := usualShapes[0]
	for _, target := range []hip.Target{{API: hip.HIP, Arch: "gfx1100", Wave: 32, Units: 48, LDS: 64 << 10}, {API: hip.CUDA, Arch: "sm_90", Wave: 32, Units: 132, LDS: 227 << 10}} {
		g, tensors, err := shape.graph(usualMixes[0])
		if err != nil {
			t.Fatal(err)
		}
		e, l, err := unplaced(g, func(name string) formats.Tensor { return tensors[name] }, target, &Options{Context: 1024})
		if err != nil {
			t.Fatal(err)
		}
		e.plan.Rows = 300
		e.placeScratch(&l.arena, e.plan.Rows)
		ready := map[hip.Unit]bool{}
		for _, u := range e.everything() {
			ready[u] = true
		}
		units, had := &unitSet{seen: map[hip.Unit]bool{}}, len(e.units())
		for rows := 1; rows <= e.plan.Rows; rows++ {
			for from := rows; from >= 0; from -= 1 + rows/9 {
				for _, many := range []bool{false, true} {
					if !many && rows > fewRows {
						continue
					}
					w := &walk{e: e, s: &e.s, t: rows, many: many, from: from, state: &e.s.many}
					w.forward()
					w.flush(from)
					for hi := from + 1; hi <= rows && e.span.Head; hi += 1 + rows/5 {
						w.head(from, min(hi, from+e.s.logitRows))
					}
					for i := range w.calls {
						units.add(w.calls[i].Unit)
					}
				}
			}
		}
		for _, u := range units.list {
			if !ready[u] {
				t.Errorf("%s: %v is not ready", target.Arch, u)
			}
		}
		if len(ready) <= had {
			t.Errorf("%s: %d units are made ready, and %d for single tokens and long prompts alone", target.Arch, len(ready), had)
		}
		t.Logf("%s: %d units, %d of them for single tokens and long prompts", target.Arch, len(ready), had)
	}
}
