package cpu_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/kernels/kerneltest"
)

func TestTilesFor(t *testing.T) {
	for l2, want := range map[int64]int{0: 512, 1: 64, 256 << 10: 128, 512 << 10: 256, 1 << 20: 512, 2 << 20: 1024, 1 << 30: 2048} {
		if x := cpu.TilesFor(l2); x.BlockTokens != want || !x.Sound() {
			t.Errorf("%d bytes: %+v, want blocks of %d tokens", l2, x, want)
		}
	}
	if x := (cpu.Tiles{PartRows: 128}).Or(cpu.TilesFor(0)); x != (cpu.Tiles{BlockTokens: 512, PartRows: 128, PartBytes: 128 << 10}) {
		t.Errorf("%+v", x)
	}
	for _, x := range []cpu.Tiles{{}, {512, 65, 1 << 17}, {512, 64, 1}, {-1, 64, 1 << 17}, {1 << 20, 64, 1 << 17}, {512, -64, 1 << 17}} {
		if x.Sound() {
			t.Errorf("%+v is sound", x)
		}
	}
}

// The block of tokens changes no bit.
func TestBlockTokens(t *testing.T) {
	const n, k, tokens = 70, 512, 100
	r := rand.New(rand.NewPCG(1, 2))
	for _, l := range cpu.Levels() {
		s, err := cpu.ForLevel(l)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"q4_k", "q8_0"} {
			integer := s.Integer(name)
			sc, _ := scheme.ByName(name)
			w := kerneltest.RandomRows(r, sc, n, k)
			var a cpu.Activations
			s.Quantize(&a, random(r, tokens*k), k, tokens, k, integer.Group())
			var want []float32
			for _, block := range []int{0, 64, 99, 128, 1} {
				y, scratch := make([]float32, tokens*n), cpu.IntegerScratch{BlockTokens: block}
				integer.MatMul(y, n, w, &a, 0, n, &scratch)
				if want == nil {
					want = y
				} else if !slices.Equal(y, want) {
					t.Errorf("%v, %s: blocks of %d tokens give other results", l, name, block)
				}
			}
		}
	}
}
