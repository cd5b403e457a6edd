package gpu

import (
	"testing"

	"github.com/nstf/nstf/kernels/hip"
)

// TestFitHosted: pages have room as long as their summaries do, and some of them, on the card, and the others in
// the host's memory.
func TestFitHosted(t *testing.T) {
	layers := []hip.KV{{Format: 1, Heads: 8, Dim: 128, Summarized: true}, {Format: 1, Heads: 8, Dim: 128}}
	planes, all := planeBytes(layers), pageBytes(layers)
	for _, c := range []struct{ room, host, fit int64 }{
		{100 * all, 0, 100},
		{100*all - 1, 0, 99},
		{100 * all, planes - 1, 100},
		{100*all + 50*(all-planes), 50 * planes, 150},
		{leastCard*planes + 1000*(all-planes), 1 << 60, 1000},
		{2 * all, 1 << 60, 2}, // too little for any summaries beside
	} {
		if got := fitHosted(layers, c.room, c.host); got != c.fit {
			t.Errorf("%d bytes and %d of the host's hold %d pages, want %d", c.room, c.host, got, c.fit)
		}
	}
}
