package hip

import (
	"fmt"
	"testing"

	"github.com/nstf/nstf/kernels/cpu"
)

// Rounds take every position that a sequence's rows see once, in order, and each page that one of
// them sees as codes has a place of its own within the room.
func TestRounds(t *testing.T) {
	for _, c := range []struct {
		format  cpu.KVFormat
		window  int
		chunked bool
		room    int
		reaches []Reach
		rounds  int
	}{
		{cpu.KVQ8, 0, false, 4, []Reach{{0, 0, 63}}, 1},
		{cpu.KVQ8, 0, false, 4, []Reach{{3, 100, 256}}, 2},
		{cpu.KVQ8, 100, false, 4, []Reach{{3, 1000, 1100}}, 1},
		{cpu.KVQ4, 0, false, 4, []Reach{{1, 0, 319}}, 1}, // all are near
		{cpu.KVQ4, 0, false, 4, []Reach{{1, 0, 640}, {0, 300, 320}, {5, 0, 5000}}, 21},
		{cpu.KVQ3, 500, true, 2, []Reach{{1, 1900, 2100}}, 4},
		{cpu.KVQ5, 0, false, 1000, []Reach{{0, 0, 9}, {1, 0, 9}, {2, 0, 9}, {3, 0, 9}, {4, 0, 9}, {5, 0, 9}, {6, 0, 9}, {7, 0, 9}, {8, 0, 999}}, 3},
		{cpu.KVQ4, 0, false, 128, []Reach{{0, 63488, 65535}}, 8},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			o := Attend{KV: KV{Format: c.format, Heads: 1, Dim: 8}, Window: c.window, Chunked: c.chunked, Reaches: c.reaches, Shape: &AttendShape{Spread: c.room}}
			room, _ := o.spread()
			all, next := o.rounds(), map[int]int{}
			if len(all) != c.rounds {
				t.Errorf("%d rounds, want %d", len(all), c.rounds)
			}
			for _, r := range c.reaches {
				next[r.Owner] = o.firstSeen(r.First+1) / PagePositions * PagePositions
			}
			for _, r := range all {
				if r.places > room || len(r.pieces) > spreadPieces || len(r.pieces) == 0 {
					t.Fatalf("%+v, room is for %d", r, room)
				}
				taken := map[int]bool{}
				for _, p := range r.pieces {
					if p.from != next[p.owner] || p.to <= p.from {
						t.Fatalf("%+v, %d is next", p, next[p.owner])
					}
					next[p.owner] = p.to
					for page := p.from / PagePositions; page < ceil(p.to, PagePositions); page++ {
						last := 0
						for _, reach := range c.reaches {
							if reach.Owner == p.owner {
								last = reach.Last
							}
						}
						if c.format.Coded() && (page < cpu.KVFirst || int64(page*PagePositions) >= cpu.NewestFrom(int64(last))) {
							continue
						}
						if at := page + p.base; at < 0 || at >= r.places || taken[at] {
							t.Fatalf("%+v: page %d at place %d of %d", p, page, at, r.places)
						} else {
							taken[at] = true
						}
					}
				}
				if len(taken) != r.places {
					t.Errorf("%d places, %d are taken", r.places, len(taken))
				}
			}
			for _, r := range c.reaches {
				if next[r.Owner] != r.Last+1 {
					t.Errorf("%+v: up to %d", r, next[r.Owner])
				}
			}
		})
	}
}
