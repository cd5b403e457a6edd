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
	if want := float64(20*128*14<<20+5*64*20<<20) / stream; math.Abs(p.Stream-want) > 1e-9*want { // 2048 rows choose all
		t.Errorf("%v s to send all weights, want %v", p.Stream, want)
	}
	if got, want := NewPrompts(all, 1, read, stream).Stream, float64(20*4*14<<20+5*8*20<<20)/stream; math.Abs(got-want) > 1e-9*want {
		t.Errorf("%v s to send those of one row, want %v", got, want)
	}
	come := func(rows int) float64 { return NewPrompts(all, rows, read, stream).Stream }
	home := func(rows int) float64 { return all[0].Seconds(rows, read) + all[1].Seconds(rows, read) }
	if p.Home != home(2048) || p.From < 2 || home(p.From) <= come(p.From) || home(p.From-1) > come(p.From-1) {
		t.Errorf("%+v: %v s of a pass, %v with a row less", p, home(p.From), home(p.From-1))
	}
	if !p.Streams() || NewPrompts(all, 2048, read, stream/1000).Streams() {
		t.Errorf("%+v, and with a link as slow as a disk: one streams, one does not", p)
	}
	// A pass of fewer rows, and a token that is no more than that faster for it: four passes are slower than one.
	long, short := &Layout{Seconds: 4e-3, Ranges: []Range{{Prompts: p, Streams: true}}}, &Layout{Seconds: 3.9e-3, Ranges: []Range{{Prompts: NewPrompts(all, 512, read, stream), Streams: true}}}
	if a, b := long.Exchange(), short.Exchange(); !(a < b) || math.Abs(a-256*4e-3-p.Stream) > 1e-9*a {
		t.Errorf("%v s with passes of 2048 rows, %v s with such of 512", a, b)
	}
	// One row reads TopK experts at the speed of memory; as many as were timed take their time.
	if got, want := all[0].Seconds(1, read), 20*4*(14<<20)/read; math.Abs(got-want) > 1e-9*want {
		t.Errorf("one row takes %v s, want %v", got, want)
	}
	if got, want := all[0].Seconds(64*32, read), 20*128*3e-3; math.Abs(got-want) > 1e-6*want {
		t.Errorf("64 rows of each expert take %v s, want %v", got, want)
	}
}
