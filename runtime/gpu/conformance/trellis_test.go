package conformance

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/kernels/hip"
)

// TestTrellisSearch wants the processor's codes, bit for bit, and to be told of a tile
// so far from all codewords that it is the processor's. A wide seam costs an emulator
// minutes; a narrow one goes the same way.
func TestTrellisSearch(t *testing.T) {
	m := open(t)
	const deviation, seam = 147.7, 4
	for bits := scheme.TCQMinBits; bits <= scheme.TCQMaxBits; bits++ {
		if testing.Short() && bits != 6 {
			continue
		}
		tiles, far := 4, 1
		if testing.Short() {
			tiles = 2
		}
		r := rand.New(rand.NewPCG(41, uint64(bits)))
		z := ordinary(r, tiles*256)
		for i := range z {
			if z[i] *= 130; i/256 == far {
				z[i] = 500
			}
		}
		book := scheme.TCQCodebookFor(bits)
		op := hip.TrellisSearch{Bits: bits, Codebook: book, Deviation: deviation, Seam: seam, Tiles: tiles, Blocks: 1}
		in, codes, failed := m.put(t, z), m.put(t, make([]byte, tiles*32*bits)), m.put(t, make([]int32, tiles))
		scratch, err := m.alloc(op.ScratchBytes())
		if err != nil {
			t.Fatal(err)
		}
		op.Z, op.Codes, op.Failed, op.Scratch = in.address(), codes.address(), failed.address(), scratch.Address
		m.run(t, op.Calls(m.target))
		got, flags := make([]byte, tiles*32*bits), make([]int32, tiles)
		codes.get(t, got)
		failed.get(t, flags)
		search, want := cpu.Best().NewTrellis(bits, book.Table(), deviation, seam), make([]byte, 32*bits)
		for i := range tiles {
			if i == far {
				if flags[i] != 1 {
					t.Errorf("%d bits: a tile that is too far from all codewords was searched", bits)
				}
				continue
			}
			search.Encode(want, (*[256]float32)(z[i*256:]))
			if flags[i] != 0 || !bytes.Equal(got[i*32*bits:(i+1)*32*bits], want) {
				t.Errorf("%d bits: tile %d differs from the processor's (failed: %d)", bits, i, flags[i])
			}
		}
		if err := m.Free(scratch); err != nil {
			t.Fatal(err)
		}
	}
}
