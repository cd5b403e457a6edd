package cpu_test

import (
	"bytes"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/kernels/cpu"
)

// trellisScales are the deviations of a Gaussian, in units of a codebook's,
// that leave the least error for 2 to 6 bits.
var trellisScales = [...]float32{2: 1.0, 3: 0.95, 4: 0.90, 5: 0.86, 6: 0.82}

func gaussianTile(rng *rand.Rand, scale float32) (z [256]float32) {
	for i := range z {
		z[i] = float32(rng.NormFloat64()) * scale
	}
	return z
}

// distance decodes a tile and returns its squared distance from z.
func distance(tile []byte, bits int, table *[65536]int16, z *[256]float32) float64 {
	var sum float64
	for t, v := range z {
		d := float64(v) - float64(table[scheme.TCQStateAt(tile, bits, t)])
		sum += d * d
	}
	return sum
}

// TestTrellisLevels wants the same bits from every level, for Gaussian tiles
// and for tiles that no codeword reaches.
func TestTrellisLevels(t *testing.T) {
	table := scheme.TCQBytes4.Table()
	for bits := 2; bits <= 6; bits++ {
		if testing.Short() && bits != 3 {
			continue
		}
		for name, scale := range map[string]float32{"gaussian": 148 * trellisScales[bits], "far": 1500} {
			var want []byte
			rng := rand.New(rand.NewPCG(uint64(bits), 1))
			z := gaussianTile(rng, scale)
			for _, l := range cpu.Levels() {
				set, err := cpu.ForLevel(l)
				if err != nil {
					t.Fatal(err)
				}
				tile := make([]byte, 32*bits)
				set.NewTrellis(bits, table, 147.7, 64).Encode(tile, &z)
				if want == nil {
					want = tile
				} else if !bytes.Equal(tile, want) {
					t.Errorf("%d bits, %s: %v differs from the level before", bits, name, l)
				}
			}
		}
	}
}

// TestTrellisFar codes tiles whose costs leave their range, as error feedback makes
// them, no worse than a search that counts in units four times as large.
func TestTrellisFar(t *testing.T) {
	most, tiles, limit := 6, 32, 1.01
	scales := []float32{2, 3, 6}
	if runtime.GOARCH != "amd64" || cpu.Best().Level() == cpu.LevelGeneric { // a hundred times as slow; TestTrellisLevels holds it to the others
		most, tiles, limit, scales = 2, 1, 1.05, scales[:1]
	}
	table := scheme.TCQBytes4.Table()
	for bits := 2; bits <= most; bits++ {
		for _, scale := range scales {
			rng := rand.New(rand.NewPCG(uint64(bits), 2))
			near, wide := cpu.Best().NewTrellis(bits, table, 147.7, 64), cpu.Best().NewTrellis(bits, table, 4*147.7, 64)
			tile := make([]byte, 32*bits)
			var errors [2]float64
			for range tiles {
				z := gaussianTile(rng, 148*scale)
				near.Encode(tile, &z)
				errors[0] += distance(tile, bits, table, &z)
				wide.Encode(tile, &z)
				errors[1] += distance(tile, bits, table, &z)
			}
			t.Logf("%d bits, %g deviations: %.4f", bits, scale, errors[0]/errors[1])
			if errors[0] > limit*errors[1] {
				t.Errorf("%d bits, %g deviations: error %.5g, in larger units %.5g", bits, scale, errors[0], errors[1])
			}
		}
	}
}

var (
	tilesFlag  = flag.Int("tiles", 128, "tiles of 256 weights that trellis errors are measured with")
	seamFlag   = flag.Int("seam", 128, "weights on each side that decide what crosses a ring's seam")
	tablesFlag = flag.Bool("codebooks", false, "measure all codebooks at all numbers of bits")
)

// TestTrellisGaussian holds the mean squared error on a Gaussian source to
// multiples of the Shannon limit, 4^-bits. The limits leave 0.01 for the sample of
// 128 tiles; docs/decisions/0009-trellis-codebooks.md has the figures of 512.
func TestTrellisGaussian(t *testing.T) {
	if testing.Short() {
		t.Skip("a statistic of thousands of tiles")
	}
	limits := map[scheme.TCQCodebook][7]float64{
		scheme.TCQBytes4: {2: 1.11, 3: 1.14, 4: 1.17},
		scheme.TCQFine4:  {5: 1.21, 6: 1.30},
		scheme.TCQBytes2: {2: 1.17, 3: 1.27, 4: 1.54},
	}
	deviations := map[scheme.TCQCodebook]float32{scheme.TCQBytes4: 147.7, scheme.TCQBytes2: 104.5, scheme.TCQFine4: 147.8}
	tiles := *tilesFlag
	if cpu.Best().Level() == cpu.LevelGeneric {
		tiles = 2
	}
	for codebook, limit := range limits {
		for bits := 2; bits <= 6; bits++ {
			if limit[bits] == 0 && !*tablesFlag {
				continue // another is better
			}
			rng := rand.New(rand.NewPCG(1, uint64(bits)))
			table, deviation := codebook.Table(), deviations[codebook]
			search := cpu.Best().NewTrellis(bits, table, deviation, *seamFlag)
			tile := make([]byte, 32*bits)
			var sum, power float64
			for range tiles {
				z := gaussianTile(rng, deviation*trellisScales[bits])
				search.Encode(tile, &z)
				sum += distance(tile, bits, table, &z)
				for _, v := range z {
					power += float64(v) * float64(v)
				}
			}
			ratio := sum / power * math.Pow(4, float64(bits))
			t.Logf("codebook %d, %d bits: %.3f of the limit", codebook, bits, ratio)
			if ratio > limit[bits] && limit[bits] > 0 && tiles > 2 {
				t.Errorf("codebook %d, %d bits: %.3f times the limit, more than %.2f", codebook, bits, ratio, limit[bits])
			}
		}
	}
}

func BenchmarkTrellis(b *testing.B) {
	for _, seam := range []int{8, 64, 128} {
		benchmarkTrellis(b, seam)
	}
}

func benchmarkTrellis(b *testing.B, seam int) {
	for bits := 2; bits <= 6; bits++ {
		for name, scale := range map[string]float32{"": 140, "/far": 300} {
			b.Run(fmt.Sprintf("%d/%d%s", seam, bits, name), func(b *testing.B) {
				z := gaussianTile(rand.New(rand.NewPCG(1, 1)), scale)
				search := cpu.Best().NewTrellis(bits, scheme.TCQBytes4.Table(), 147.7, seam)
				tile := make([]byte, 32*bits)
				for b.Loop() {
					search.Encode(tile, &z)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/256, "ns/weight")
			})
		}
	}
}
