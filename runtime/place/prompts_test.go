package place

import (
	"math"
	"testing"
)

// Few rows are the processor's and many the device's; the rows from which on that is so are the
// least ones for which it is.
func TestPrompts(t *testing.T) {
	all := []Experts{{Blocks: 20, Count: 128, TopK: 4, Bytes: 14 << 20, Few: 1e-3, Many: 3e-3}, {Blocks: 5, Count: 64, TopK: 8, Bytes: 20 << 20, Few: 2e-3, Many: 5e-3}}
	const read, stream = 60e9, 25e9
	p := NewPrompts(all, 2048, read, stream)
	if want := float64(20*128*14<<20+5*64*20<<20) / stream; math.Abs(p.Stream-want) > 1e-9*want {
		t.Errorf("%v s to send all weights, want %v", p.Stream, want)
	}
	home := func(rows int) float64 { return all[0].Seconds(rows, read) + all[1].Seconds(rows, read) }
	if p.Home != home(2048) || p.From < 2 || home(p.From) <= p.Stream || home(p.From-1) > p.Stream {
		t.Errorf("%+v: %v s of a pass, %v with a row less", p, home(p.From), home(p.From-1))
	}
	if !p.Streams() || NewPrompts(all, 2048, read, stream/1000).Streams() {
		t.Errorf("%+v, and with a link as slow as a disk: one streams, one does not", p)
	}
	// One row reads TopK experts at the speed of memory; as many as were timed take their time.
	if got, want := all[0].Seconds(1, read), 20*4*(14<<20)/read; math.Abs(got-want) > 1e-9*want {
		t.Errorf("one row takes %v s, want %v", got, want)
	}
	if got, want := all[0].Seconds(64*32, read), 20*128*3e-3; math.Abs(got-want) > 1e-6*want {
		t.Errorf("64 rows of each expert take %v s, want %v", got, want)
	}
}
