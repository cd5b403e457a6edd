package conformance

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/kernels/hip"
)

// BenchmarkTCQMatvec times products of trellis codes with one row and more, on weights
// that are no longer in any cache when they are read again.
func BenchmarkTCQMatvec(b *testing.B) {
	m := open(b)
	r := rand.New(rand.NewPCG(43, 1))
	rate := m.copyRate(b)
	pool := m.pool(b, r, 1<<30)
	defer m.Free(pool)
	s, _ := scheme.ByName("tcq")
	for bits := scheme.TCQMinBits; bits <= scheme.TCQMaxBits; bits++ {
		p := params(bits)
		for _, size := range [][3]int{{8192, 28672, 1}, {4096, 14336, 1}, {4096, 4096, 1}, {14336, 4096, 1}, {14336, 4096, 2}, {14336, 4096, 4}, {14336, 4096, 8}} {
			n, k, rows := size[0], size[1], size[2]
			f, err := hip.FormatOf(s, p.Params(), int64(k))
			if err != nil {
				b.Fatal(err)
			}
			_, bytes, err := f.Parts([]int64{int64(n), int64(k)}, p.Params())
			if err != nil {
				b.Fatal(err)
			}
			b.Run(fmt.Sprintf("bits=%d/%dx%d/T=%d", bits, n, k, rows), func(b *testing.B) {
				acts := m.put(b, make([]byte, hip.ActsSize(rows, k)))
				y := m.put(b, make([]float32, rows*n))
				var calls []hip.Call
				copies := min(int(pool.Size/bytes), 64)
				for i := range copies {
					op := &hip.Matvec{T: rows, Acts: hip.Acts{Data: acts.address(), T: rows, K: k}, Products: []hip.Product{
						{W: hip.Weight{Format: f, N: n, K: k, Data: pool.Address + hip.Address(int64(i)*(bytes/256*256))}, Y: y.address()}}}
					calls = append(calls, op.Calls(m.target)...)
				}
				m.report(b, calls, copies, float64(bytes), 0)
				b.ReportMetric(float64(bytes)/(m.measure(b, calls)*float64(len(calls))/float64(copies))/1e3/rate*100, "%copy")
			})
		}
	}
}

// BenchmarkTrellisSearch times the search for codes: of as many tiles as blocks of
// the device search at once, four times over; all ordinary, or every 64th so far from
// codewords that it is searched again with values halved.
func BenchmarkTrellisSearch(b *testing.B) {
	m := open(b)
	r := rand.New(rand.NewPCG(43, 2))
	for _, bits := range []int{2, 3, 4} {
		for _, name := range []string{"ordinary", "far"} {
			b.Run(fmt.Sprintf("bits=%d/%s", bits, name), func(b *testing.B) {
				blocks := m.target.Units
				tiles := 4 * blocks
				z := ordinary(r, tiles*256)
				for i := range z {
					if z[i] *= 130; name == "far" && i/256%64 == 0 {
						z[i] *= 2.5
					}
				}
				op := hip.TrellisSearch{Bits: bits, Codebook: scheme.TCQCodebookFor(bits), Deviation: 147.7, Seam: 128, Tiles: tiles, Blocks: blocks}
				scratch, err := m.alloc(op.ScratchBytes())
				if err != nil {
					b.Fatal(err)
				}
				defer m.Free(scratch)
				op.Z, op.Codes = m.put(b, z).address(), m.put(b, make([]byte, tiles*32*bits)).address()
				op.Scratch = scratch.Address
				calls := slices.Repeat(op.Calls(m.target), 2)
				m.report(b, calls, len(calls), 0, 0)
				b.ReportMetric(m.measure(b, calls)/1e6/(float64(tiles)*256/1e6), "s/Mweights")
			})
		}
	}
}
