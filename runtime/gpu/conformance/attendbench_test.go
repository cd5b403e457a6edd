package conformance

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/runtime/sample"
)

// The shape that attention is measured at: a llama of 8 B.
const (
	benchHeads = 32
	benchKV    = 8
	benchDim   = 128
	benchWidth = 4096
	benchInner = 14336
	benchVocab = 128256
)

// report logs a benchmark's time by the graph, and its rate.
func (m *machine) report(b *testing.B, calls []hip.Call, per int, bytes, flops float64) {
	b.Helper()
	us := m.measure(b, calls) * float64(len(calls)) / float64(per)
	f, err := m.function(&calls[0])
	if err != nil {
		b.Fatal(err)
	}
	a := f.Attributes()
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(us, "us")
	if bytes > 0 {
		b.ReportMetric(bytes/us/1e3, "GB/s")
	}
	if flops > 0 {
		b.ReportMetric(flops/us/1e6, "TFLOP/s")
	}
	b.ReportMetric(float64(a.Registers), "regs")
	b.ReportMetric(float64(a.Spill), "spill")
}

// benchAttend is attention of some rows that end at a position, over as many
// layers' caches as no cache of the device holds.
func (m *machine) benchAttend(b *testing.B, format cpu.KVFormat, rows, length int, shape *hip.AttendShape, exact bool) {
	kv := poolOf(hip.KV{Format: format, Heads: benchKV, Dim: benchDim}, length/hip.PagePositions+1)
	layers := min(max(int((256<<20)/kv.Bytes()), 1), 32)
	if rows > 8 {
		layers = 2
	}
	var position, owner, pages []int32
	for i := range rows {
		position, owner = append(position, int32(length-rows+i)), append(owner, 0)
	}
	for i := range kv.Pages {
		pages = append(pages, int32((i*7)%kv.Pages))
	}
	if kv.Pages%7 == 0 {
		for i := range pages {
			pages[i] = int32(i)
		}
	}
	n := rows * benchHeads * benchDim
	op := hip.Attend{Rows: hip.Rows{T: rows, Position: m.put(b, position).address(), Owner: m.put(b, owner).address(), Pages: m.put(b, twoHalves(pages, len(pages), kv.Pages)).address(), MaxPages: 2 * len(pages)},
		Heads: benchHeads, Scale: 0.088, Capacity: length, Q: m.put(b, make([]float32, n)).address(), Out: m.put(b, make([]float32, n)).address(), Shape: shape, Exact: exact, KV: kv}
	if rows == 1 { // as a model's pass does
		zeros := func(n int) hip.Address { return m.put(b, make([]float32, n)).address() }
		op.Settled, op.Turn = true, &hip.Rope{K: zeros(benchKV * benchDim), V: zeros(benchKV * benchDim),
			Turn: hip.Rotation{Pairs: benchDim / 2, Cosine: zeros(benchDim / 2), Sine: zeros(benchDim / 2)}}
	}
	op.Prompt, op.Reaches = rows > 8, []hip.Reach{{First: length - rows, Last: length - 1}}
	bytes, flops := float64(kv.PageBytes())*float64(length)/hip.PagePositions, 0.0
	if rows > 8 {
		bytes = 0
		for _, p := range position {
			flops += 4 * benchHeads * benchDim * float64(p+1)
		}
	}
	m.reportLayers(b, &op, layers, 4, bytes, flops)
}

// reportLayers reports what attention takes that goes so many times through the caches of layers, which are zeros.
func (m *machine) reportLayers(b *testing.B, op *hip.Attend, layers, times int, bytes, flops float64) {
	each := op.KV.Bytes()
	base, err := m.Alloc(each * int64(layers))
	if err != nil {
		b.Fatal(err)
	}
	defer m.Free(base)
	if err := m.stream.Fill(base, 0); err != nil {
		b.Fatal(err)
	}
	op.Scratch = m.put(b, make([]byte, op.ScratchBytes(m.target))).address()
	var calls []hip.Call
	for i := range times * layers {
		op.KV.Base = base.Address + hip.Address(int64(i%layers)*each)
		calls = append(calls, op.Calls(m.target)...)
	}
	m.report(b, calls, times*layers, bytes, flops)
}

func BenchmarkAttend(b *testing.B) {
	m := open(b)
	shapes := []*hip.AttendShape{nil}
	if *variantsFlag {
		for _, queries := range []int{1, 2, 4} {
			for _, least := range []int{64, 128, 256} {
				shapes = append(shapes, &hip.AttendShape{Waves: 8, Queries: queries, Fill: 1, Least: least})
			}
			shapes = append(shapes, &hip.AttendShape{Waves: 8, Queries: queries, Fill: 2, Least: 256})
		}
		shapes = append(shapes, &hip.AttendShape{Waves: 16, Queries: 1, Fill: 1, Least: 256}, &hip.AttendShape{Waves: 4, Queries: 1, Fill: 2, Least: 64})
	}
	for _, length := range []int{64, 128, 256, 512, 2048, 8192, 32768} {
		for _, s := range shapes {
			name := "chosen"
			if s != nil {
				name = fmt.Sprintf("w%d_q%d_f%d_l%d", s.Waves, s.Queries, s.Fill, s.Least)
			}
			b.Run(fmt.Sprintf("f16/positions=%d/%s", length, name), func(b *testing.B) { m.benchAttend(b, cpu.KVF16, 1, length, s, false) })
		}
	}
	for _, f := range []cpu.KVFormat{cpu.KVF16, cpu.KVQ8, cpu.KVQ5, cpu.KVQ4, cpu.KVQ3, cpu.KVF32} {
		for _, length := range []int{512, 8192, 65536} {
			b.Run(fmt.Sprintf("%v/positions=%d", f, length), func(b *testing.B) { m.benchAttend(b, f, 1, length, nil, false) })
			for _, queries := range []int{1, 4} {
				if *variantsFlag && f.Coded() {
					b.Run(fmt.Sprintf("%v/positions=%d/q%d", f, length, queries), func(b *testing.B) {
						m.benchAttend(b, f, 1, length, &hip.AttendShape{Waves: 8, Queries: queries, Fill: 1, Least: 128}, false)
					})
				}
			}
		}
	}
	b.Run("f16/rows=8/positions=2048", func(b *testing.B) { m.benchAttend(b, cpu.KVF16, 8, 2048, nil, false) })
}

// BenchmarkAttendSteps is attention of steps of several sequences, each with keys and values of its own, as
// behind the launch that turns their rows.
func BenchmarkAttendSteps(b *testing.B) {
	m := open(b)
	for _, rows := range []int{2, 4, 8, 16, 32, 64} {
		for _, length := range []int{544, 2048} {
			shapes := []*hip.AttendShape{nil}
			if *variantsFlag {
				for _, steps := range []int{-1, 1, 2, 4, 8} {
					shapes = append(shapes, &hip.AttendShape{Steps: steps})
				}
			}
			for _, s := range shapes {
				name := "chosen"
				if s != nil {
					name = fmt.Sprintf("blocks=%d", s.Steps)
				}
				b.Run(fmt.Sprintf("rows=%d/positions=%d/%s", rows, length, name), func(b *testing.B) { m.benchAttendSteps(b, rows, length, s) })
			}
		}
	}
}

func (m *machine) benchAttendSteps(b *testing.B, rows, length int, shape *hip.AttendShape) {
	each := length/hip.PagePositions + 1
	kv := poolOf(hip.KV{Format: cpu.KVF16, Heads: benchKV, Dim: benchDim}, rows*each)
	var position, owner, pages []int32
	for i := range rows {
		position, owner = append(position, int32(length-1)), append(owner, int32(i))
		for j := range each {
			pages = append(pages, int32(j*rows+i))
		}
	}
	zeros := func() hip.Address { return m.put(b, make([]float32, rows*benchHeads*benchDim)).address() }
	op := hip.Attend{Rows: hip.Rows{T: rows, Position: m.put(b, position).address(), Owner: m.put(b, owner).address(), Pages: m.put(b, twoHalves(pages, each, kv.Pages)).address(), MaxPages: 2 * each},
		Heads: benchHeads, Scale: 0.088, Capacity: length, Q: zeros(), Out: zeros(), Shape: shape, KV: kv}
	m.reportLayers(b, &op, max(int((256<<20)/kv.Bytes()), 2), 2, float64(kv.PageBytes())*float64(rows*length)/hip.PagePositions, 0)
}

func BenchmarkAttendPrompt(b *testing.B) {
	m := open(b)
	for _, n := range []int{512, 2048, 8192} {
		for _, rows := range []int{64, 128} {
			b.Run(fmt.Sprintf("f16/rows=%d/block=%d", n, rows), func(b *testing.B) { m.benchAttend(b, cpu.KVF16, n, n, &hip.AttendShape{Rows: rows}, false) })
		}
	}
	for _, f := range []cpu.KVFormat{cpu.KVQ8, cpu.KVQ5, cpu.KVQ4, cpu.KVQ3} {
		b.Run(fmt.Sprintf("%v/rows=2048", f), func(b *testing.B) { m.benchAttend(b, f, 2048, 2048, nil, false) })
	}
	for _, f := range []cpu.KVFormat{cpu.KVF16, cpu.KVQ8, cpu.KVQ5, cpu.KVQ4, cpu.KVQ3} { // the last rows of a long one
		b.Run(fmt.Sprintf("%v/rows=2048/positions=65536", f), func(b *testing.B) { m.benchAttend(b, f, 2048, 65536, nil, false) })
	}
	b.Run("f16/rows=2048/exact", func(b *testing.B) { m.benchAttend(b, cpu.KVF16, 2048, 2048, nil, true) })
}

// BenchmarkLayer measures what a layer does beside products and attention.
func BenchmarkLayer(b *testing.B) {
	m := open(b)
	for _, rows := range []int{1, 2048} {
		zero := func(n int) hip.Address { return m.put(b, make([]float32, n)).address() }
		many := func(c []hip.Call) []hip.Call { return slices.Repeat(c, 32) }
		x, a, out, weight := zero(rows*benchWidth), zero(rows*benchWidth), zero(rows*benchWidth), zero(benchWidth)
		next := hip.Normal{Weight: weight, Eps: 1e-5}
		b.Run(fmt.Sprintf("norm/rows=%d", rows), func(b *testing.B) {
			op := hip.Norm{T: rows, D: benchWidth, X: x, Next: next, Out: out}
			m.report(b, many(op.Calls(m.target)), 32, float64(8*rows*benchWidth), 0)
		})
		b.Run(fmt.Sprintf("add+norm/rows=%d", rows), func(b *testing.B) {
			op := hip.Norm{T: rows, D: benchWidth, X: x, A: hip.Branch{Rows: a}, Next: next, Out: out}
			m.report(b, many(op.Calls(m.target)), 32, float64(16*rows*benchWidth), 0)
		})
		gate, up := zero(rows*benchInner), zero(rows*benchInner)
		b.Run(fmt.Sprintf("activate/rows=%d", rows), func(b *testing.B) {
			op := hip.Activate{N: rows * benchInner, Gate: gate, Up: up, Out: gate}
			m.report(b, many(op.Calls(m.target)), 32, float64(12*rows*benchInner), 0)
		})
		for _, f := range []cpu.KVFormat{cpu.KVF16, cpu.KVQ8, cpu.KVQ5, cpu.KVQ4, cpu.KVQ3} {
			b.Run(fmt.Sprintf("rope/%v/rows=%d", f, rows), func(b *testing.B) {
				kv := poolOf(hip.KV{Format: f, Heads: benchKV, Dim: benchDim}, rows/hip.PagePositions+1)
				pool := m.put(b, make([]byte, kv.Bytes()))
				kv.Base = pool.address()
				var position, pages []int32
				for i := range rows {
					position = append(position, int32(i))
				}
				for i := range kv.Pages {
					pages = append(pages, int32(i))
				}
				q, k := x, zero(rows*benchKV*benchDim)
				op := hip.Rope{Rows: hip.Rows{T: rows, Position: m.put(b, position).address(), Owner: m.put(b, make([]int32, rows)).address(),
					Pages: m.put(b, twoHalves(pages, len(pages), kv.Pages)).address(), MaxPages: 2 * len(pages)},
					Heads: benchHeads, Q: q, K: k, V: k, KV: kv, Turn: hip.Rotation{Pairs: benchDim / 2, Cosine: gate, Sine: up}}
				m.report(b, many(op.Calls(m.target)), 32, float64(rows*benchDim*(8*benchHeads+8*benchKV))+float64(kv.PageBytes())*float64(rows)/hip.PagePositions, 0)
				pool.release()
			})
		}
	}
}

func BenchmarkSample(b *testing.B) {
	m := open(b)
	logits := logitsOf(rand.New(rand.NewPCG(3, 4)), benchVocab, 3)
	for _, o := range []sample.Options{{}, {Temperature: 1}, {Temperature: 0.8, TopK: 40, TopP: 0.95}, {Temperature: 0.8, TopP: 0.95}, {Temperature: 3, TopP: 0.95}, {Temperature: 0.8, TopK: 40, RepetitionPenalty: 1.1}} {
		b.Run(fmt.Sprintf("t=%g,k=%d,p=%g,penalty=%g", o.Temperature, o.TopK, o.TopP, o.RepetitionPenalty), func(b *testing.B) {
			options := hip.SampleOptions{Temperature: o.Temperature, TopK: o.TopK, TopP: o.TopP, RepetitionPenalty: o.RepetitionPenalty}.Append(nil)
			op := hip.Sample{Rows: hip.Rows{T: 1, Position: m.put(b, []int32{999}).address(), Owner: m.put(b, []int32{0}).address()},
				Vocab: benchVocab, Logits: m.put(b, logits).address(), Token: m.put(b, []int32{0}).address(), Options: m.put(b, options).address(),
				Seeds: m.put(b, []uint64{1, 0}).address(), History: m.put(b, make([]int32, 1000)).address(), Stride: 1000, Greedy: o.Temperature == 0}
			op.Scratch = m.put(b, make([]byte, op.ScratchBytes())).address()
			c := op.Calls(m.target)
			m.report(b, slices.Repeat(c, 32), 32, 0, 0)
		})
	}
}
