package place

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"reflect"
	"testing"
	"time"

	"github.com/nstf/nstf/formats"
)

func paceWork(d Request, block float64) Work {
	return Work{Device: d, Name: "a name", Weights: "q4_k", Block: block}
}

// Whoever takes other times than predicted is known after one run alone, and after some of several together where
// it took part with different others; what is unlike learns nothing.
func TestPacesLearn(t *testing.T) {
	gpu, processor := paceWork(Request{Kind: HIP}, 1e8), paceWork(Request{Kind: CPU}, 1e8)
	truth := map[Request]float64{gpu.Device: 0.8, processor.Device: 1.9}
	p, now := &Paces{}, time.Unix(1e9, 0)
	run := func(parts ...Part) {
		seconds := 0.0
		for _, x := range parts {
			seconds += truth[x.Device] * x.Seconds
		}
		p.Learn(parts, seconds, now)
	}
	near := func(w Work, want, tolerance float64) {
		t.Helper()
		if f, _ := p.Of(w, now); math.Abs(f-want) > tolerance {
			t.Errorf("%v has a pace of %g, want %g", w.Device, f, want)
		}
	}
	if f, runs := p.Of(gpu, now); f != 1 || runs != 0 {
		t.Errorf("a pace of %g from %d runs before the first", f, runs)
	}
	run(Part{gpu, 0.01})
	near(gpu, 0.8, 0.001)
	for i := range 40 {
		run(Part{gpu, 0.01}, Part{processor, 0.004 * float64(1+i%3)})
	}
	near(gpu, 0.8, 0.02)
	near(processor, 1.9, 0.04)
	if _, runs := p.Of(processor, now); runs != 40 {
		t.Errorf("%d runs of the processor", runs)
	}
	near(paceWork(gpu.Device, 3e8), 0.8, 0.02) // like it
	near(paceWork(gpu.Device, 5e8), 1, 0)
	exact, split := gpu, gpu
	exact.Exact, split.Split = true, Tensors
	near(exact, 1, 0)
	near(split, 1, 0)
	// A nearer one counts from then on.
	p.Learn([]Part{{paceWork(gpu.Device, 3e8), 1}}, 3, now)
	near(paceWork(gpu.Device, 2.9e8), 3, 0.05)
	near(gpu, 0.8, 0.02)
	// What was in the way of a run is bounded, and what is no time is no run.
	p.Learn([]Part{{exact, 1}}, 1e9, now)
	near(exact, mostPace, 0)
	p.Learn([]Part{{split, 1}}, math.Inf(1), now)
	p.Learn([]Part{{split, 1}}, 0, now)
	near(split, 1, 0)
	for i := range maxPaces {
		p.Learn([]Part{{paceWork(Request{CUDA, i}, 1), 1}}, 1, now.Add(time.Hour))
	}
	if len(p.Paces) != maxPaces {
		t.Errorf("%d are kept", len(p.Paces))
	}
	near(exact, 1, 0) // among the oldest
}

// A device that one run found slow is tried again some day, though layouts leave it out and no run tells of it; the
// first run then is what counts.
func TestSlowPacesAge(t *testing.T) {
	slow, fast, p, now := paceWork(Request{CUDA, 0}, 1e8), paceWork(Request{CUDA, 1}, 1e8), &Paces{}, time.Unix(1e9, 0)
	p.Learn([]Part{{slow, 0.01}}, 0.08, now)
	p.Learn([]Part{{fast, 0.01}}, 0.006, now)
	for _, c := range []struct{ days, least, most float64 }{{-1, 7.9, 8}, {0, 7.9, 8}, {0.1, 7.8, 8}, {7, 3, 4}, {28, 1.05, 1.2}} {
		then := now.Add(time.Duration(c.days * 24 * float64(time.Hour)))
		if f, runs := p.Of(slow, then); !(f >= c.least && f <= c.most) || runs != 1 {
			t.Errorf("a pace of %g from %d runs %g days behind the last, want %g to %g", f, runs, c.days, c.least, c.most)
		}
		if f, _ := p.Of(fast, then); math.Abs(f-0.6) > 0.01 { // it is used, so timed
			t.Errorf("a fast pace is %g %g days behind the last run", f, c.days)
		}
	}
	now = now.Add(28 * 24 * time.Hour)
	p.Learn([]Part{{slow, 0.01}}, 0.01, now)
	if f, runs := p.Of(slow, now); math.Abs(f-1) > 0.02 || runs != 2 {
		t.Errorf("a pace of %g from %d runs where the last took what was predicted", f, runs)
	}
}

// What was predicted to take no time, or reads no blocks, teaches nothing, and leaves what can be kept.
func TestPacesOfNothing(t *testing.T) {
	dir, m, now := t.TempDir(), &Machine{CPU: "x", Cores: 2}, time.Unix(1e9, 0).UTC()
	device := Request{Kind: CPU}
	p, err := LoadPaces(dir, m)
	if err != nil {
		t.Fatal(err)
	}
	p.Learn([]Part{{paceWork(device, 7), 0}}, 3, now)
	p.Learn([]Part{{paceWork(device, 0), 2}}, 3, now)
	p.Learn([]Part{{paceWork(device, 0), 2}, {paceWork(device, math.NaN()), 2}}, 3, now)
	p.Learn([]Part{{paceWork(device, 7), math.NaN()}}, 3, now)
	p.Learn([]Part{{paceWork(device, 7), math.Inf(1)}}, 3, now)
	if len(p.Paces) != 0 {
		t.Errorf("%+v is learned of nothing", p.Paces)
	}
	p.Learn([]Part{{paceWork(device, 7), 2}, {paceWork(Request{HIP, 0}, 7), 0}, {paceWork(Request{HIP, 1}, 0), 1}}, 4, now)
	if f, _ := p.Of(paceWork(device, 7), now); math.Abs(f-1.5) > 0.01 {
		t.Errorf("a pace of %g beside parts of nothing, want 1.5", f)
	}
	if err := p.Save(dir, m); err != nil {
		t.Fatal(err)
	}
	if again, err := LoadPaces(dir, m); err != nil || len(again.Paces) != 1 || !reflect.DeepEqual(again, p) {
		t.Errorf("%+v, %v, want %+v", again, err, p)
	}
}

// A site as slow as a pace says takes so many times as long, whatever the layout.
func TestPacedSites(t *testing.T) {
	p := &Pieces{Embed: Piece{Memory: []int64{1, 1}}, Head: Piece{Read: 5, Memory: []int64{1, 1}}, Tied: []int64{0, 0}, Common: []int64{0, 0}, Row: 8}
	for i := range 4 {
		p.Blocks = append(p.Blocks, Piece{Lo: i, Hi: i + 1, Read: 10, Memory: []int64{10, 10}})
	}
	sites := []Site{{Device: Request{HIP, 0}, Memory: 25, Speed: Speed{Read: 10, Block: 0.25, Copy: 0.5, Link: 16}}, {Device: Request{HIP, 1}, Memory: 25, Speed: Speed{Read: 7, Copy: 0.5, Link: 16}}}
	plain, err := Split(p, sites)
	if err != nil {
		t.Fatal(err)
	}
	if plain.Learned() != "" {
		t.Errorf("%q was learned of no run", plain.Learned())
	}
	sites[0] = sites[0].Paced(1.5, 1)
	paced, err := Split(p, sites)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := paced.Ranges[0].Seconds, 1.5*plain.Ranges[0].Seconds; math.Abs(got-want) > 1e-12 || paced.Ranges[1].Seconds != plain.Ranges[1].Seconds {
		t.Errorf("%g and %g seconds, want %g and %g", got, paced.Ranges[1].Seconds, want, plain.Ranges[1].Seconds)
	}
	if got, want := paced.Learned(), "hip:0 takes 1.5 times as long as measured apart, by 1 run"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	together, err := Together(p, sites, &Team{Memory: []int64{1, 1}, Read: [][]float64{{1}, {1}}, Exchanges: 3, Exchange: 0.5})
	if err != nil {
		t.Fatal(err)
	}
	if r := together.Ranges; r[0].Hand != 1.5*r[1].Hand || r[0].Pace != 1.5 {
		t.Errorf("%+v", r)
	}
}

func TestKeptPaces(t *testing.T) {
	dir, m := t.TempDir(), &Machine{CPU: "x", Cores: 2}
	p, err := LoadPaces(dir, m)
	if err != nil || len(p.Paces) != 0 {
		t.Fatalf("%+v, %v of an empty folder", p, err)
	}
	p.Learn([]Part{{paceWork(Request{Kind: CPU}, 7), 2}}, 3, time.Unix(1e9, 0).UTC())
	if err := p.Save(dir, m); err != nil {
		t.Fatal(err)
	}
	if again, err := LoadPaces(dir, m); err != nil || !reflect.DeepEqual(again, p) {
		t.Errorf("%+v, %v, want %+v", again, err, p)
	}
	for _, text := range []string{"", "{", `{"version":0,"key":"x||0|2"}`, `{"version":1,"key":"x|||2|0","paces":[{"device":"cpu","factor":1e9,"runs":1,"block_bytes":1}]}`,
		`{"version":1,"key":"x|||2|0","paces":[{"device":"cpu","factor":1,"runs":1}]}`} {
		if err := os.WriteFile(m.PacesPath(dir), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		p, err := LoadPaces(dir, m)
		var wrong *formats.FormatError
		if !errors.As(err, &wrong) || p == nil || len(p.Paces) != 0 || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%q: %+v, %v", text, p, err)
		}
	}
}
