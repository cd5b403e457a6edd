package cpu

import (
	"math/rand/v2"
	"testing"

	"github.com/nstf/nstf/formats/scheme"
)

// TestTrellisJoined holds rings that take up the costs of what found their seam to whole ones, to
// the state, and wants most to be found so.
func TestTrellisJoined(t *testing.T) {
	tiles := 48
	if testing.Short() {
		tiles = 12
	}
	if Best().Level() == LevelGeneric {
		tiles = 1
	}
	for bits := 2; bits <= 6; bits++ {
		for name, scale := range map[string]float32{"gaussian": 140, "wide": 260, "tiny": 1} {
			s := Best().NewTrellis(bits, scheme.TCQBytes4.Table(), 147.7, trellisWeights/2)
			rng := rand.New(rand.NewPCG(uint64(bits), 3))
			told, joined := 0, 0
			for range tiles {
				var z [trellisWeights]float32
				for i := range z {
					z[i] = float32(rng.NormFloat64()) * scale
				}
				c := s.scale(0)
				v := c.values(&z, 0)
				seam, ok := s.crossing(&v, c)
				if !ok {
					continue
				}
				got, ok := s.joined(&v, seam, c)
				want, whole := s.ring(&v, seam, c)
				if whole {
					told++
				}
				if !ok {
					continue
				}
				joined++
				if !whole || got != want {
					t.Fatalf("%d bits, %s: other states than the whole ring's", bits, name)
				}
			}
			if name == "gaussian" && 2*joined < told {
				t.Errorf("%d bits: %d rings of %d are joined", bits, joined, told)
			}
		}
	}
}
