package conformance

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/kernels/hip"
)

// searchDeviation and searchSeam are those of the tests. A wide seam costs an emulator
// minutes; a narrow one goes the same way.
const searchDeviation, searchSeam = 147.7, 4

// searchTiles are deviations of a tile's weights: near to codewords, so far that the search
// counts in larger units once, twice and more, or, from 4 bits on, so that a distance may be
// cut off.
var searchTiles = []float32{130, 240, 6000, 200, 320}

// searchEdges are tiles of 6 bits with one weight where a distance is just cut off or just
// not: their codes would be others if one below were not told from one above, in a search
// with each candidate cut off by itself (values halved once) and in one by signs (twice).
// By a search in plain Go.
var searchEdges = []struct {
	seed         uint64
	least, width float64 // of the other weights, in deviations
	weight       float32
}{
	{24, 2.6, 1, -774.90393},
	{2, 3, 1.2, -1035.7462},
	{5, 3, 1.2, -1051.3168},
}

// TestTrellisSearch wants the processor's codes, bit for bit, of one block's tiles.
func TestTrellisSearch(t *testing.T) {
	m := open(t)
	for bits := scheme.TCQMinBits; bits <= scheme.TCQMaxBits; bits++ {
		deviations, edges := searchTiles, searchEdges
		if testing.Short() {
			deviations, edges = searchTiles[:2], searchEdges[:2]
		}
		if testing.Short() && bits == 6 {
			deviations = nil
		} else if testing.Short() && bits != 2 {
			continue
		}
		r := rand.New(rand.NewPCG(41, uint64(bits)))
		var z []float32
		for _, d := range deviations {
			for _, x := range ordinary(r, 256) {
				z = append(z, x*d)
			}
		}
		for _, e := range edges {
			if bits != 6 {
				break
			}
			r := rand.New(rand.NewPCG(e.seed, 78))
			far := e.least + e.width*r.Float64()
			for range 256 {
				z = append(z, float32((r.Float64()*2-1)*far*searchDeviation))
			}
			z[len(z)-256+100] = e.weight
		}
		m.sameCodes(t, bits, z)
	}
}

// sameCodes has tiles searched by a block and by the processor.
func (m *machine) sameCodes(t *testing.T, bits int, z []float32) {
	t.Helper()
	tiles, book := len(z)/256, scheme.TCQCodebookFor(bits)
	op := hip.TrellisSearch{Bits: bits, Codebook: book, Deviation: searchDeviation, Seam: searchSeam, Tiles: tiles, Blocks: 1}
	in, codes := m.put(t, z), m.put(t, make([]byte, tiles*32*bits))
	scratch, err := m.alloc(op.ScratchBytes())
	if err != nil {
		t.Fatal(err)
	}
	op.Z, op.Codes, op.Scratch = in.address(), codes.address(), scratch.Address
	m.run(t, op.Calls(m.target))
	got := make([]byte, tiles*32*bits)
	codes.get(t, got)
	search, want := cpu.Best().NewTrellis(bits, book.Table(), searchDeviation, searchSeam), make([]byte, 32*bits)
	for i := range tiles {
		search.Encode(want, (*[256]float32)(z[i*256:]))
		if !bytes.Equal(got[i*32*bits:(i+1)*32*bits], want) {
			t.Errorf("%d bits: tile %d differs from the processor's", bits, i)
		}
	}
	if err := m.Free(scratch); err != nil {
		t.Fatal(err)
	}
}
