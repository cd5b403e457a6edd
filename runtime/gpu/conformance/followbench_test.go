package conformance

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/kernels/hip"
)

// benchFollow is a step of attention by a policy that reads a share of the pages, over as
// many layers that what is read does not stay in a cache of the device; launch names one
// of its launches, -1 all of them. Keys are zeros: all pages weigh the same.
func (m *machine) benchFollow(b *testing.B, format cpu.KVFormat, length int, share float64, launch int, shape *hip.AttendShape) {
	const layers = 8
	kv := poolOf(hip.KV{Format: format, Heads: benchKV, Dim: benchDim, Summarized: true}, length/hip.PagePositions+1)
	base, err := m.Alloc(kv.Bytes() * layers)
	if err != nil {
		b.Fatal(err)
	}
	defer m.Free(base)
	kv.Base = base.Address
	if err := m.stream.Fill(base, 0); err != nil {
		b.Fatal(err)
	}
	pages := make([]int32, kv.Pages)
	for i := range pages {
		pages[i] = int32(i)
	}
	pages = twoHalves(pages, kv.Pages, kv.Pages)
	// Histories of heads that have read all one step ago, and whose means do not stand in.
	floats := hip.HistoryFloats(len(pages))
	// Pages weigh what histories say, otherwise alike.
	r := rand.New(rand.NewPCG(18, 65))
	history := make([]float32, benchKV*floats)
	for i := range history {
		history[i] = float32(6 * r.NormFloat64())
	}
	shares := make([]float64, benchKV)
	for h := range shares {
		shares[h] = share
		copy(history[h*floats:], []float32{1, 0, 1, 1})
	}
	const n = benchHeads * benchDim
	op := hip.Follow{Attend: hip.Attend{Rows: hip.Rows{T: 1, Position: m.put(b, []int32{int32(length - 1)}).address(), Owner: m.put(b, []int32{0}).address(), Pages: m.put(b, pages).address(), MaxPages: len(pages)},
		Heads: benchHeads, Scale: 0.088, Capacity: length, Q: m.put(b, make([]float32, n)).address(), Out: m.put(b, make([]float32, n)).address(), KV: kv, Shape: shape},
		Histories: m.put(b, history).address(), HistoryHeads: benchKV, Shares: m.put(b, shares).address(), Mass: 1, Least: 64, Refresh: 1 << 23, Rank: -1, Counts: m.put(b, make([]uint64, 2)).address()}
	// What one learns of, while the next chooses.
	var works [2]hip.Address
	for i := range works {
		work, err := m.Alloc(op.FollowBytes(m.target))
		if err != nil {
			b.Fatal(err)
		}
		defer m.Free(work)
		works[i] = work.Address
	}
	other := m.put(b, history).address()
	op.Work = works[0]
	m.run(b, op.Calls(m.target)) // what single launches read
	before := op
	before.Work, before.Histories = works[1], other
	m.run(b, before.Calls(m.target))
	var calls []hip.Call
	for i := range 4 * layers {
		op.Before = &before
		op.KV.Base = base.Address + hip.Address(int64(i%layers)*kv.Bytes())
		c := append(op.Calls(m.target), (&hip.Learn{Of: &op}).Calls(m.target)...)
		if launch >= 0 {
			c = c[launch : launch+1]
		} else {
			c = c[:len(c)-1]
		}
		calls = append(calls, c...)
		if launch < 0 {
			last := op
			op.Work, op.Histories = before.Work, before.Histories
			before = last
			before.Before = nil
		}
	}
	summaries := float64(kv.PageBytes())
	kv.Summarized = false
	summaries = (summaries - float64(kv.PageBytes())) * float64(kv.Pages) * 2 / 3 // of keys
	read := share * float64(kv.PageBytes()*int64(kv.Pages))
	bytes := []float64{summaries + read, summaries, 0, read, 0}[launch+1]
	m.report(b, calls, 4*layers, bytes, 0)
}

// BenchmarkFollow times a block's attention behind long contexts that reads all pages, and a
// tenth of them.
func BenchmarkFollow(b *testing.B) {
	m := open(b)
	for _, f := range []cpu.KVFormat{cpu.KVF16, cpu.KVQ8, cpu.KVQ4} {
		for _, length := range []int{4096, 16384, 65536, 131072} {
			name := fmt.Sprintf("%v/positions=%d/", f, length)
			b.Run(name+"dense", func(b *testing.B) { m.benchAttend(b, f, 1, length, nil, false) })
			b.Run(name+"policy=10%", func(b *testing.B) { m.benchFollow(b, f, length, 0.1, -1, nil) })
			for i, what := range []string{"foretell", "choose", "attend", "learn"} {
				if slices.Contains([]int{65536, 131072}, length) {
					b.Run(name+"policy=10%/"+what, func(b *testing.B) { m.benchFollow(b, f, length, 0.1, i, nil) })
				}
			}
		}
	}
}

// BenchmarkFollowShapes times attention to chosen pages, and to all, in other divisions.
func BenchmarkFollowShapes(b *testing.B) {
	m := open(b)
	for _, f := range []cpu.KVFormat{cpu.KVF16, cpu.KVQ8, cpu.KVQ4} {
		for _, length := range []int{65536, 131072} {
			for _, waves := range []int{4, 8} {
				for _, fill := range []int{1, 2, 3} {
					s := &hip.AttendShape{Waves: waves, Queries: 4, Fill: fill, Least: 128}
					name := fmt.Sprintf("%v/positions=%d/w%d_f%d/", f, length, waves, fill)
					b.Run(name+"attend", func(b *testing.B) { m.benchFollow(b, f, length, 0.1, 2, s) })
					if length == 65536 {
						b.Run(name+"dense", func(b *testing.B) { m.benchAttend(b, f, 1, length, s, false) })
					}
				}
			}
		}
	}
}
