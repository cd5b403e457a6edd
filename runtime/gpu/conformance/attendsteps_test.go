package conformance

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/kernels/hip"
)

// TestAttendSteps compares steps of several rows with those of each row alone, in every bit: blocks that go
// through the shares of a row's positions, few and many, and a block for each share. A NaN among the keys
// stays with the rows that see it.
func TestAttendSteps(t *testing.T) {
	m := open(t)
	r := rand.New(rand.NewPCG(11, 12))
	for _, c := range []struct {
		d, heads, kvs int
		softcap       float32
		sinks         bool
		window        int
		chunked       bool
		waves, least  int // 0: as chosen
		position      []int32
	}{
		{d: 128, heads: 8, kvs: 2, waves: 4, least: 64, position: []int32{544, 63, -1, 1300, 64, 0, 127, 128}},
		{d: 64, heads: 7, kvs: 1, sinks: true, softcap: 30, waves: 4, least: 128, position: []int32{300, 2100}},
		{d: 96, heads: 3, kvs: 3, window: 200, waves: 4, least: 64, position: []int32{600, 15, 1200}},
		{d: 256, heads: 4, kvs: 2, window: 130, chunked: true, waves: 2, least: 64, position: []int32{450, 129, 130}},
		{d: 80, heads: 6, kvs: 2, waves: 4, least: 64, position: []int32{129, 700}},
		{d: 128, heads: 32, kvs: 8, position: []int32{544, 1000, 31}},
		{d: 64, heads: 16, kvs: 2, position: []int32{2047, 512, 511, -1}},
	} {
		if !sampled(t) {
			continue
		}
		t.Run(fmt.Sprintf("D=%d heads=%d/%d cap=%g sinks=%v window=%d chunked=%v least=%d rows=%d", c.d, c.heads, c.kvs, c.softcap, c.sinks, c.window, c.chunked, c.least, len(c.position)), func(t *testing.T) {
			b := newBatch(r, c.position...)
			p := newHostPool(poolOf(hip.KV{Format: cpu.KVF16, Heads: c.kvs, Dim: c.d}, b.pool))
			for v := range b.pool * c.kvs * hip.PagePositions {
				p.store(v, ordinary(r, c.d), true)
				p.store(v, ordinary(r, c.d), false)
			}
			bad := ordinary(r, c.d)
			bad[c.d-1] = float32(math.NaN())
			p.store(b.at(&p.kv, 1, 14, c.kvs-1), bad, true)
			pool := m.put(t, p.raw)
			p.kv.Base = pool.address()
			width := c.heads * c.d
			q := m.put(t, ordinary(r, len(c.position)*width)).address()
			op := hip.Attend{Rows: b.put(t, m), KV: p.kv, Heads: c.heads, Scale: 0.1, Softcap: c.softcap, Window: c.window, Chunked: c.chunked, Capacity: 4096, Q: q}
			if c.sinks {
				op.Sinks = m.put(t, ordinary(r, c.heads)).address()
			}
			run := func(op hip.Attend, steps int) ([]float32, string) {
				got := make([]float32, op.T*width)
				dst := m.put(t, got)
				op.Out, op.Shape = dst.address(), &hip.AttendShape{Steps: steps}
				if c.waves != 0 {
					op.Shape = &hip.AttendShape{Waves: c.waves, Queries: 2, Fill: 2, Least: c.least, Steps: steps}
				}
				op.Scratch = m.put(t, make([]byte, op.ScratchBytes(m.target))).address()
				calls := op.Calls(m.target)
				for range 1 + repeats()/4 { // counters are left as they were
					m.run(t, calls)
				}
				dst.get(t, got)
				return got, calls[0].Unit.File
			}
			var want []float32
			for i := range c.position {
				one := op
				one.Rows = hip.Rows{T: 1, Position: op.Position + hip.Address(4*i), Owner: op.Owner + hip.Address(4*i), Pages: op.Pages, MaxPages: op.MaxPages}
				one.Q += hip.Address(4 * i * width)
				alone, file := run(one, -1)
				if file != "attend.hip" {
					t.Fatalf("a row alone goes by %s", file)
				}
				want = append(want, alone...)
			}
			if !slices.ContainsFunc(want, func(v float32) bool { return v != 0 }) {
				t.Fatal("nothing was attended to")
			}
			hosted := op
			hosted.KV = m.hosted(t, p.kv)
			got, _ := run(hosted, 3)
			sameBits(t, "with pages in the host's memory", got, want)
			for _, steps := range []int{-1, 0, 1, 3, 100} {
				got, file := run(op, steps)
				if c.waves != 0 && (steps > 0) != (file == "attendsteps.hip") && steps != 0 {
					t.Fatalf("%d blocks: %s", steps, file)
				}
				sameBits(t, fmt.Sprintf("%d blocks, %s", steps, file), got, want)
			}
		})
	}
}
