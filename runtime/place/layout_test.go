package place

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nstf/nstf/formats"
)

// randomPieces makes a model of n pieces for sites whose memory may or may not do.
func randomPieces(r *rand.Rand, n, sites int) (*Pieces, []Site) {
	p := &Pieces{Row: 4 * r.Int64N(100)}
	memory := func() (m []int64) {
		for range sites {
			m = append(m, r.Int64N(100))
		}
		return m
	}
	p.Embed, p.Head = Piece{Read: r.Float64(), Memory: memory()}, Piece{Read: 100 * r.Float64(), Memory: memory()}
	for i := range sites {
		p.Tied, p.Common = append(p.Tied, r.Int64N(1+p.Head.Memory[i])), append(p.Common, r.Int64N(5))
	}
	at := 0
	for range n {
		hi := at + 1 + r.IntN(2)
		p.Blocks = append(p.Blocks, Piece{Lo: at, Hi: hi, Read: 100 * r.Float64(), Memory: memory()})
		at = hi
	}
	var all []Site
	for i := range sites {
		s := Site{Device: Request{HIP, i}, Memory: r.Int64N(80 * int64(n)), Work: r.Int64N(10)}
		s.Speed = Speed{Read: 1 + 100*r.Float64(), Block: r.Float64() / 10, Copy: r.Float64() / 10, Link: float64(r.IntN(2)) * (1 + r.Float64())}
		all = append(all, s)
	}
	return p, all
}

// every calls f with all ways to give sites their pieces.
func every(n, sites, from int, cuts [][2]int, f func([][2]int)) {
	if sites == 0 {
		if from == n {
			f(cuts)
		}
		return
	}
	for to := from; to <= n; to++ {
		every(n, sites-1, to, append(cuts, [2]int{from, to}), f)
	}
}

// The layout is the fastest of all that have room, and where none has, what is missing is
// what the best lacks: both by trying all.
func TestSplitIsTheBestOfAll(t *testing.T) {
	r := rand.New(rand.NewPCG(17, 0))
	fitted, full := 0, 0
	for range 400 {
		p, sites := randomPieces(r, 1+r.IntN(7), 1+r.IntN(3))
		least, lack := math.Inf(1), int64(math.MaxInt64)
		every(len(p.Blocks), len(sites), 0, nil, func(cuts [][2]int) {
			seconds, missing := 0.0, int64(0)
			for k, c := range cuts {
				if c[0] == c[1] {
					continue
				}
				first, last := c[0] == 0, c[1] == len(p.Blocks)
				v, memory, read, blocks := sites[k].Speed, sites[k].Work+p.Common[k], 0.0, 0
				for _, b := range p.Blocks[c[0]:c[1]] {
					memory, read, blocks = memory+b.Memory[k], read+b.Read, blocks+b.Hi-b.Lo
				}
				copies := func(n int64) float64 {
					if v.Link == 0 {
						return 0
					}
					return v.Copy + float64(n)/v.Link
				}
				if first {
					memory, read = memory+p.Embed.Memory[k], read+p.Embed.Read
				}
				if last {
					memory, read = memory+p.Head.Memory[k], read+p.Head.Read
				}
				if first && last {
					memory -= p.Tied[k]
				} else {
					seconds += copies(p.Row)
					if first || last {
						seconds += copies(4)
					} else {
						seconds += copies(p.Row)
					}
				}
				seconds += read/v.Read + float64(blocks)*v.Block
				missing += max(memory-sites[k].Memory, 0)
			}
			lack = min(lack, missing)
			if missing == 0 {
				least = min(least, seconds)
			}
		})
		l, err := Split(p, sites)
		var room *RoomError
		switch {
		case lack > 0:
			full++
			if !errors.As(err, &room) || room.Missing != lack {
				t.Fatalf("%v, want %d bytes missing", err, lack)
			}
		case err != nil:
			t.Fatalf("%v, though there is room", err)
		default:
			fitted++
			if math.Abs(l.Seconds-least) > 1e-12*least {
				t.Fatalf("%g s, the best takes %g", l.Seconds, least)
			}
			used := slices.DeleteFunc(slices.Clone(sites), func(s Site) bool { return slices.Contains(l.LeftOut, s.Device) })
			if len(used) == len(sites) {
				again, err := Lay(p, used, l.Ranges)
				if err != nil || !reflect.DeepEqual(again, l) {
					t.Fatalf("by hand %+v, %v, want %+v", again, err, l)
				}
			}
		}
	}
	if fitted < 100 || full < 50 {
		t.Errorf("%d fitted, %d did not", fitted, full)
	}
}

// One of two equal devices is left out where one has room for all, and neither where none
// has.
func TestSplitTwoAlike(t *testing.T) {
	block := func(i int) Piece { return Piece{Lo: i, Hi: i + 1, Read: 10, Memory: []int64{10, 10}} }
	p := &Pieces{Embed: Piece{Memory: []int64{5, 5}}, Head: Piece{Read: 5, Memory: []int64{5, 5}}, Tied: []int64{5, 5}, Common: []int64{0, 0}, Row: 8}
	for i := range 4 {
		p.Blocks = append(p.Blocks, block(i))
	}
	sites := []Site{{Device: Request{HIP, 0}, Memory: 45}, {Device: Request{HIP, 1}, Memory: 45}}
	for i := range sites {
		sites[i].Speed = Speed{Read: 10, Copy: 0.5, Link: 16}
	}
	l, err := Split(p, sites)
	if err != nil || len(l.Ranges) != 1 || l.Ranges[0].Memory != 45 || l.Seconds != 4.5 || !slices.Equal(l.LeftOut, []Request{{HIP, 1}}) {
		t.Errorf("%+v, %v", l, err)
	}
	sites[0].Memory, sites[1].Memory = 30, 30
	l, err = Split(p, sites)
	if err != nil || len(l.Ranges) != 2 || l.Ranges[0].Hi != 2 || l.Ranges[1].Memory != 25 || l.Seconds != 4.5+2*1+2*0.75 {
		t.Errorf("%+v, %v", l, err)
	}
	sites[1].Memory = 14
	var room *RoomError
	if _, err := Split(p, sites); !errors.As(err, &room) || room.Missing != 6 { // 25 + 10 + 15 into 30 + 14
		t.Errorf("%v", err)
	}
}

// Sites that compute together read a part each, wait for the slowest and for the largest part
// of each block, and add up; one that has no room says what is missing.
func TestTogether(t *testing.T) {
	p := &Pieces{Blocks: []Piece{{Hi: 2}, {Lo: 2, Hi: 3}}, Embed: Piece{Read: 4}}
	sites := []Site{{Device: Request{Kind: HIP}, Memory: 20, Speed: Speed{Read: 10, Block: 1}}, {Device: Request{HIP, 1}, Memory: 30, Speed: Speed{Read: 6, Block: 1}}}
	team := &Team{Memory: []int64{20, 25}, Read: [][]float64{{10, 20, 15, 5}, {20, 10, 15, 5}}, Exchanges: 7, Exchange: 0.5}
	l, err := Together(p, sites, team)
	if err != nil || l.Split != Tensors || len(l.Ranges) != 2 || l.Ranges[1].Hi != 3 || l.Ranges[0].Read != 54 || l.Ranges[0].Hand != 3.5+1 {
		t.Fatalf("%+v, %v", l, err)
	}
	if want := 64.0/6 + 3 + 7*0.5; math.Abs(l.Seconds-want) > 1e-9 || math.Abs(l.Ranges[0].Seconds-(64.0/10+3+3.5)) > 1e-9 {
		t.Errorf("%v seconds, want %v", l.Seconds, want)
	}
	var room *RoomError
	team.Memory = []int64{23, 34}
	if _, err := Together(p, sites, team); !errors.As(err, &room) || room.Missing != 7 {
		t.Errorf("%v", err)
	}
}

func TestReadLayout(t *testing.T) {
	path := filepath.Join(t.TempDir(), "layout.json")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want := &Layout{Ranges: []Range{{Device: Request{CUDA, 0}, Hi: 3, Memory: 7}, {Device: Request{Kind: CPU}, Lo: 3, Hi: 4}}, Rows: 3, Seconds: 0.5}
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	write(string(text))
	if got, err := ReadLayout(path); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%s: %+v, %v", text, got, err)
	}
	write(`{"split":"tensor","ranges":[{"device":"hip:0","lo":0,"hi":4},{"device":"hip:1","lo":0,"hi":4}]}`)
	if got, err := ReadLayout(path); err != nil || got.Split != Tensors || len(got.Ranges) != 2 {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []string{
		``, `[]`, `{}`, `{"ranges":[]}`, `{"rangs":[]}`, `{"ranges":[{"device":"cpu","lo":1,"hi":2}]}`, `{"ranges":[{"device":"cpu","lo":0,"hi":0}]}`,
		`{"ranges":[{"device":"cpu","lo":0,"hi":1},{"device":"hip","lo":2,"hi":3}]}`, `{"ranges":[{"device":"hip","lo":0,"hi":1},{"device":"hip:0","lo":1,"hi":3}]}`,
		`{"ranges":[{"device":"gpu","lo":0,"hi":1}]}`, `{"split":"rows","ranges":[{"device":"cpu","lo":0,"hi":1}]}`,
		`{"split":"tensor","ranges":[{"device":"hip:0","lo":0,"hi":4},{"device":"hip:1","lo":0,"hi":3}]}`, `{"split":"tensor","ranges":[{"device":"hip:0","lo":0,"hi":2},{"device":"hip:1","lo":2,"hi":4}]}`,
		`{"ranges":[{"device":"hip","lo":0,"hi":2,"host_experts":[1,0]}]}`, `{"ranges":[{"device":"hip","lo":0,"hi":2,"host_experts":[2]}]}`,
		`{"ranges":[{"device":"hip","lo":0,"hi":2,"host_experts":[1],"pinned_experts":{"1":[]}}]}`, `{"ranges":[{"device":"hip","lo":0,"hi":2,"host_experts":[1],"pinned_experts":{"0":[1]}}]}`,
		`{"ranges":[{"device":"cpu","lo":0,"hi":2,"host_experts":[0]}]}`, `{"split":"tensor","ranges":[{"device":"hip","lo":0,"hi":2,"host_experts":[0]},{"device":"hip:1","lo":0,"hi":2}]}`,
		`{"ranges":[{"device":"auto","lo":0,"hi":1}]}`, `{"ranges":[{"device":"cpu","lo":0,"hi":1.5}]}`,
	} {
		write(bad)
		var format *formats.FormatError
		if l, err := ReadLayout(path); !errors.As(err, &format) {
			t.Errorf("%s: %+v, %v", bad, l, err)
		}
	}
}

func TestParseRequests(t *testing.T) {
	got, err := ParseRequests("hip,hip:1,cpu,cuda:2")
	if want := []Request{{HIP, 0}, {HIP, 1}, {CPU, 0}, {CUDA, 2}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"", "cpu,", "cpu,cpu", "hip,hip:0", "auto,cpu", "cpu,auto", "cpu, hip", "tpu"} {
		if got, err := ParseRequests(bad); err == nil {
			t.Errorf("%q: %v", bad, got)
		}
	}
}

// randomMixture is a model on a GPU and the processor whose blocks have routed experts, alike
// or not.
func randomMixture(r *rand.Rand, alike bool) (*Pieces, []Site) {
	n := 1 + r.IntN(6)
	p, sites := randomPieces(r, n, 2)
	for i := range p.Blocks {
		b := &p.Blocks[i]
		if alike && i > 0 {
			lo := p.Blocks[i-1].Hi
			*b = p.Blocks[0]
			b.Lo, b.Hi = lo, lo+1
			b.Routed = &Routed{}
			*b.Routed = *p.Blocks[0].Routed
			b.Routed.Blocks = []int{lo}
			continue
		}
		lo := b.Lo
		if i > 0 {
			lo = p.Blocks[i-1].Hi
		}
		b.Lo, b.Hi = lo, lo+1
		freed := 1 + r.Int64N(1+b.Memory[0])
		b.Memory[0] += freed
		b.Read += 50
		b.Routed = &Routed{Blocks: []int{lo}, Read: 50 * r.Float64(), Memory: freed, Freed: []int64{freed, 0}, Down: 8, Up: 4}
	}
	sites[1].Device, sites[1].Speed.Link = Request{Kind: CPU}, 0
	sites[1].Memory *= 2
	sites[0].Speed.Read += sites[1].Speed.Read
	sites[0].Handed, sites[1].Handed = r.Int64N(20), r.Int64N(20)
	return p, sites
}

// bestMixture tries every cut and every choice of experts that are left; 0: nothing fits.
func bestMixture(p *Pieces, sites []Site) float64 {
	least := math.Inf(1)
	gpu, cpu, n := sites[0], sites[1], len(p.Blocks)
	for cut := range n + 1 {
		for set := range 1 << cut {
			var home, memory int64
			seconds := 0.0
			for i := range cut {
				if set>>i&1 == 0 {
					continue
				}
				x := p.Blocks[i].Routed
				home, memory = home+x.Memory, memory-x.Freed[0]
				seconds += x.Read/cpu.Speed.Read - x.Read/gpu.Speed.Read + gpu.Speed.copies(x.Down) + gpu.Speed.copies(x.Up)
			}
			if home > 0 {
				home += gpu.Handed + cpu.Handed
			}
			s := newSplitter(p, sites)
			fits := true
			for k, c := range [][2]int{{0, cut}, {cut, n}} {
				if c[0] < c[1] {
					seconds += s.seconds(k, c[0], c[1])
					m := s.memory(k, c[0], c[1]) + []int64{memory, home}[k]
					fits = fits && m <= sites[k].Memory
				} else if k == 1 {
					fits = fits && home <= cpu.Memory
				}
			}
			if fits {
				least = min(least, seconds)
			}
		}
	}
	return least
}

// Where all of a model fits on the GPU none of its experts are left.
func TestNoneLeavesWhatFits(t *testing.T) {
	r, fits := rand.New(rand.NewPCG(27, 0)), 0
	for range 600 {
		p, sites := randomMixture(r, false)
		sites[0].Memory *= 3
		if !p.Fit(sites) {
			continue
		}
		fits++
		if l, err := Split(p, sites); err != nil || len(l.Ranges[0].HostExperts) > 0 {
			t.Fatalf("%+v, %v", l, err)
		}
	}
	if fits < 100 || fits > 500 {
		t.Errorf("%d of 600 fit", fits)
	}
}

// Experts are left to the processor so that a token takes the least time where blocks are alike,
// and within the time of one block's where they are not, and it has memory for them. By hand the same layout comes out.
func TestSplitLeavesExperts(t *testing.T) {
	r := rand.New(rand.NewPCG(26, 0))
	left := 0
	for k := range 600 {
		alike := k%2 == 0
		p, sites := randomMixture(r, alike)
		ample := k%3 > 0
		if ample {
			sites[1].Memory = 1 << 20
		}
		least, gap := bestMixture(p, sites), 0.0
		s := newSplitter(p, sites)
		for i := range p.Blocks {
			gap = max(gap, s.leaves(0, i))
		}
		l, err := Split(p, sites)
		if math.IsInf(least, 1) {
			var room *RoomError
			if !errors.As(err, &room) || room.Missing <= 0 {
				t.Fatalf("%+v, %v, though nothing fits", l, err)
			}
			continue
		}
		if err != nil {
			if !ample && !alike { // the search tries less where the processor's memory is short too
				continue
			}
			t.Fatalf("%v, though there is room", err)
		}
		if alike {
			gap = 0
		}
		if l.Seconds < least*(1-1e-12) || (ample || alike) && l.Seconds > least*(1+1e-12)+gap {
			t.Fatalf("%g s, the best takes %g, gap %g: %+v", l.Seconds, least, gap, l)
		}
		if len(l.Ranges[0].HostExperts) == 0 {
			continue
		}
		left++
		memory := sites[0].Handed + sites[1].Handed
		for _, i := range l.Ranges[0].HostExperts {
			memory += p.Blocks[i].Routed.Memory
		}
		if got := l.Ranges[0].HostMemory; got != memory {
			t.Errorf("%d bytes on the processor, want %d", got, memory)
		}
		again, err := Lay(p, sites, l.Ranges)
		if err != nil || !reflect.DeepEqual(again, l) {
			t.Fatalf("by hand %+v, %v, want %+v", again, err, l)
		}
		if got := Devices(l.Ranges); len(got) != 2 || got[1].Kind != CPU || slices.Contains(l.LeftOut, got[1]) {
			t.Errorf("devices %v, left out %v", got, l.LeftOut)
		}
		l.Ranges[0].HostExperts = []int{99}
		if _, err := Lay(p, sites, l.Ranges); err == nil {
			t.Error("experts of a block that is not there")
		}
	}
	if left < 50 {
		t.Errorf("%d layouts left experts", left)
	}
}

// mixture is a model of blocks whose experts have no room on a GPU for more than some, by use.
func mixture(use [][]float64) (*Pieces, []Site) {
	p := &Pieces{Embed: Piece{Memory: []int64{1, 1}}, Head: Piece{Memory: []int64{1, 1}}, Tied: []int64{0, 0}, Common: []int64{0, 0}, Row: 8}
	const each = 1 << 20
	for i, u := range use {
		n := int64(len(u))
		p.Blocks = append(p.Blocks, Piece{Lo: i, Hi: i + 1, Read: 3e6, Memory: []int64{each * (n + 1), each * (n + 1)},
			Routed: &Routed{Blocks: []int{i}, Read: 2e6, Memory: each * n, Freed: []int64{each * n, 0}, Count: int(n), Use: u, Down: 8, Up: 8}})
	}
	gpu := Site{Device: Request{Kind: HIP}, Memory: each * (int64(len(use)) + 6), Speed: Speed{Read: 1e9, Copy: 1e-6, Link: 1e9}}
	host := Site{Device: Request{Kind: CPU}, Memory: 1 << 30, Speed: Speed{Read: 1e8}}
	return p, []Site{gpu, host}
}

// Where experts have no room on a GPU, those that are chosen most lie there, of whichever blocks; where all are chosen
// alike, whole blocks do. What is laid out so is laid out again by hand.
func TestSplitPinsTheMostUsed(t *testing.T) {
	p, sites := mixture([][]float64{{0.1, 0.6, 0.1, 0.2}, {0.5, 0, 0.5, 0}, {0.25, 0.25, 0.25, 0.25}})
	l, err := Split(p, sites)
	if err != nil || len(l.Ranges) != 1 {
		t.Fatalf("%+v, %v", l, err)
	}
	r := l.Ranges[0]
	want := map[int][]int{0: {1}, 1: {0, 2}, 2: {0, 1}}
	if !reflect.DeepEqual(r.Pinned, want) || !slices.Equal(r.HostExperts, []int{0, 1, 2}) || math.Abs(r.PinnedUse-2.1/3) > 1e-9 {
		t.Errorf("%v of %v are pinned, for %g of choices; want %v", r.Pinned, r.HostExperts, r.PinnedUse, want)
	}
	if seconds := 2e6 * 0.9 / 1e8; math.Abs(r.HostSeconds-seconds) > 1e-9 || r.HostRead != 1.8e6 || r.Memory > r.Limit {
		t.Errorf("%g s and %d bytes of the processor, want %g; %d bytes of %d", r.HostSeconds, r.HostRead, seconds, r.Memory, r.Limit)
	}
	again, err := Lay(p, sites, l.Ranges)
	if err != nil || len(again.Ranges) != 1 || math.Abs(again.Seconds-l.Seconds) > 1e-12 || again.Ranges[0].Memory != r.Memory {
		t.Errorf("by hand %+v, %v, want %+v", again, err, l)
	}
	plain := *p
	plain.Blocks = slices.Clone(p.Blocks)
	for i := range plain.Blocks {
		x := *plain.Blocks[i].Routed
		x.Count = 0
		plain.Blocks[i].Routed = &x
	}
	if whole, err := Split(&plain, sites); err != nil || whole.Seconds <= l.Seconds || whole.Ranges[0].Pinned != nil {
		t.Errorf("%+v, %v by whole blocks", whole, err)
	}
	if _, err := Lay(&plain, sites, l.Ranges); err == nil {
		t.Error("experts that cannot be divided were pinned")
	}
	p, sites = mixture([][]float64{{0.25, 0.25, 0.25, 0.25}, {0.25, 0.25, 0.25, 0.25}})
	sites[0].Memory = 7 << 20 // all of one block, and what is aligned
	if l, err = Split(p, sites); err != nil || l.Ranges[0].Pinned != nil || len(l.Ranges[0].HostExperts) != 1 {
		t.Errorf("%+v, %v of experts that are used alike", l, err)
	}
}

func TestUses(t *testing.T) {
	dir := t.TempDir()
	u, err := LoadUses(dir, "abc")
	if err != nil || u.Shares(0, nil, 4) != nil {
		t.Fatalf("%+v, %v of an empty folder", u, err)
	}
	u.Add(map[int]map[int32]int64{3: {0: 9, 2: 27, -1: 5}})
	if err := u.Save(dir); err != nil {
		t.Fatal(err)
	}
	again, err := LoadUses(dir, "abc")
	if err != nil || !reflect.DeepEqual(again, u) {
		t.Fatalf("%+v, %v, want %+v", again, err, u)
	}
	if got, want := again.Shares(3, nil, 4), []float64{0.25, 0.025, 0.7, 0.025}; !slices.EqualFunc(got, want, func(a, b float64) bool { return math.Abs(a-b) < 1e-12 }) {
		t.Errorf("shares %v, want %v", got, want)
	}
	if again.Shares(3, nil, 2) != nil || again.Shares(3, nil, 100) != nil {
		t.Error("shares of a block that has fewer experts, or of few choices")
	}
	near := func(got, want []float64) bool {
		return slices.EqualFunc(got, want, func(a, b float64) bool { return math.Abs(a-b) < 1e-12 })
	}
	// A prior alone, one that weighs beside counts, and one of many tokens that counts as 32 choices for each.
	if got := again.Shares(0, []int64{0, 0, 16, 0}, 4); !near(got, []float64{0.05, 0.05, 0.85, 0.05}) {
		t.Errorf("shares %v of a prior", got)
	}
	if got := again.Shares(3, []int64{4, 0, 0, 0}, 4); !near(got, []float64{14. / 44, 1. / 44, 28. / 44, 1. / 44}) {
		t.Errorf("shares %v of counts and a prior", got)
	}
	if got := again.Shares(3, []int64{0, 1 << 40, 0, 0}, 4); !near(got, []float64{10. / 168, 129. / 168, 28. / 168, 1. / 168}) {
		t.Errorf("shares %v of counts and a large prior", got)
	}
	if again.Shares(0, []int64{1, 2}, 4) != nil {
		t.Error("shares by a prior of another model")
	}
	again.Add(map[int]map[int32]int64{3: {1: 1 << 40}})
	if n := again.Blocks[3][1]; n > mostUses || n < mostUses/2 || again.Blocks[3][2] != 0 {
		t.Errorf("%v are kept", again.Blocks[3])
	}
	for _, text := range []string{"", `{"version":1,"model":"abd","blocks":{}}`, `{"version":1,"model":"abc","blocks":{"0":[-1]}}`} {
		if err := os.WriteFile(usesPath(dir, "abc"), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		var wrong *formats.FormatError
		if u, err := LoadUses(dir, "abc"); !errors.As(err, &wrong) || u == nil || len(u.Blocks) != 0 {
			t.Errorf("%q: %+v, %v", text, u, err)
		}
	}
}

// Uses of many models are kept, and those that were learned of longest ago go.
func TestModelsAreForgotten(t *testing.T) {
	dir := t.TempDir()
	for i := range maxModels + 3 {
		u := &Uses{Version: usesVersion, Model: fmt.Sprintf("m%d", i), Blocks: map[int][]int64{}}
		if err := u.Save(dir); err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(time.Duration(i-1000) * time.Minute)
		if err := os.Chtimes(usesPath(dir, u.Model), at, at); err != nil {
			t.Fatal(err)
		}
	}
	kept, err := filepath.Glob(usesPath(dir, "*"))
	if err != nil || len(kept) != maxModels {
		t.Fatalf("%d are kept, %v", len(kept), err)
	}
	for i := range 3 {
		if _, err := os.Stat(usesPath(dir, fmt.Sprintf("m%d", i))); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("model %d is kept: %v", i, err)
		}
	}
}

// Of lessons that are learned at once none is lost.
func TestLearningAtOnce(t *testing.T) {
	dir := t.TempDir()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			Learning(dir, func() {
				u, err := LoadUses(dir, "abc")
				if err != nil {
					t.Error(err)
				}
				u.Add(map[int]map[int32]int64{0: {1: 1}})
				time.Sleep(5 * time.Millisecond)
				if err := u.Save(dir); err != nil {
					t.Error(err)
				}
			})
		})
	}
	all.Wait()
	if u, err := LoadUses(dir, "abc"); err != nil || u.Blocks[0][1] != 8 {
		t.Errorf("%v, %v", u, err)
	}
}
