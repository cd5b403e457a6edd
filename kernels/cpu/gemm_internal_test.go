package cpu

import "testing"

// Assembly has no body for tiles lower than least: none may come up.
func TestTileHeights(t *testing.T) {
	for _, l := range Levels() {
		g := newSet(l).gemm
		for tokens := leastTokens; tokens < 1000; tokens++ {
			tiles := (tokens + g.mr - 1) / g.mr
			for i := range tiles {
				if m := (i+1)*tokens/tiles - i*tokens/tiles; m < g.least || m > g.mr {
					t.Fatalf("%v: %d tokens give a tile of %d, want %d to %d", l, tokens, m, g.least, g.mr)
				}
			}
		}
		if g.nr%rowGroup != 0 {
			t.Errorf("%v: panels of %d are not filled by groups of %d", l, g.nr, rowGroup)
		}
	}
}
