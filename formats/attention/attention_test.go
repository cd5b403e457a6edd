package attention

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats"
)

func sample() *Policy {
	return &Policy{
		Version: 1,
		Source:  Source{Model: "m", Text: "t", TextHash: strings.Repeat("0", 64), Context: 4096, Windows: 2, Held: 1, Steps: 32},
		Grid:    []float64{0.05, 0.2, 0.5},
		Heads: []Head{
			{0, 0, []float64{0.01, 0.008, 0.001}, []float64{0.02, 0.001, 0.0005}},
			{0, 1, []float64{0.0001, 0.0002, 0.00001}, []float64{0.0001, 0.0001, 0.0001}},
			{2, 0, []float64{0.03, 0.004, 0.002}, []float64{0.01, 0.009, 0.008}},
		},
		Measured: []Point{{0.1, 0.11, 0.005, 0.001, 0.97}},
		Prompts:  []Point{{0.1, 0.15, 0.007, 0.002, 0.96}, {0.2, 0.22, 0.003, 0.001, 0.98}},
	}
}

func TestPolicyRoundTrips(t *testing.T) {
	data := sample().Encode()
	p, err := Parse("p", data)
	if err != nil {
		t.Fatal(err)
	}
	if again := p.Encode(); !bytes.Equal(again, data) {
		t.Errorf("%s\nthen\n%s", data, again)
	}
	older := sample()
	older.Prompts = nil
	for i := range older.Heads {
		older.Heads[i].Prompt = nil
	}
	if q, err := Parse("older", older.Encode()); err != nil || q.Prompts != nil || q.ForPrompts(3, 0.1) != nil || bytes.Contains(older.Encode(), []byte("prompt")) {
		t.Errorf("a policy that nobody measured prompts with: %+v, %v", q, err)
	}
	if err := p.Fits("p", []int64{2, 0, 1}); err != nil {
		t.Error(err)
	}
	for _, heads := range [][]int64{{2, 0}, {1, 0, 1}, {2, 1, 1}, {2, 0, 2}, {}} {
		if err := p.Fits("p", heads); err == nil {
			t.Errorf("fits a model of %v", heads)
		}
	}
}

// What heads need most they get first; the mean is what was asked for, and no more of a
// head is given than it has.
func TestShares(t *testing.T) {
	p := sample()
	for _, c := range []struct {
		pages float64
		want  [3]float64
	}{
		{0.01, [3]float64{0.05, 0.05, 0.05}},
		{0.1, [3]float64{0.05, 0.05, 0.2}},
		{0.25, [3]float64{0.5, 0.05, 0.2}},
		{0.4, [3]float64{0.5, 0.05, 0.65}},
		{1, [3]float64{1, 1, 1}},
	} {
		s := p.Shares(3, c.pages)
		got := [3]float64{s[0][0], s[0][1], s[2][0]}
		for i := range got {
			if math.Abs(got[i]-c.want[i]) > 1e-9 {
				t.Errorf("%g of the pages: %v, want %v", c.pages, got, c.want)
				break
			}
		}
		if len(s[1]) != 0 {
			t.Errorf("a block without heads has %v", s[1])
		}
	}
}

// Prompts get as many pages as steps, or the fewest with which they lost little enough, dealt
// out by what heads lose in prompts.
func TestPromptShares(t *testing.T) {
	p := sample()
	if s := p.PromptShares(3, 0.1); math.Abs(s[0][0]-0.2) > 1e-9 || math.Abs(s[2][0]-0.05) > 1e-9 {
		t.Errorf("%v", s)
	}
	p.Prompts = []Point{{Pages: 0.1, KLD: 0.02}, {Pages: 0.2, KLD: 0.009}, {Pages: 0.3, KLD: 0.001}}
	for pages, want := range map[float64]float64{0.05: 0.2, 0.1: 0.2, 0.15: 0.2, 0.25: 0.3, 0.3: 0.3, 0.4: 0.4} {
		got, s := p.ForPrompts(3, pages), p.PromptShares(3, want)
		for i := range s {
			if !slices.Equal(got[i], s[i]) {
				t.Errorf("%g of the pages: %v, want %v", pages, got, s)
				break
			}
		}
	}
	p.Prompts[1].KLD, p.Prompts[2].KLD = 0.02, 0.02
	if s := p.ForPrompts(3, 0.1); s != nil {
		t.Errorf("prompts that lose too much get %v", s)
	}
}

// Between what was measured losses lie on straight lines, and end at 0.
func TestLoss(t *testing.T) {
	p := sample()
	for share, want := range map[float64]float64{0.01: 0.01, 0.05: 0.01, 0.125: 0.009, 0.2: 0.008, 0.5: 0.001, 0.75: 0.0005, 1: 0} {
		if got := p.Loss(&p.Heads[0], share); math.Abs(got-want) > 1e-12 {
			t.Errorf("%g of the pages: %g, want %g", share, got, want)
		}
	}
}

// Whatever is wrong is refused, in a word that names it.
func TestPolicyRefusals(t *testing.T) {
	for _, c := range []struct{ old, new, want string }{
		{`"version":1`, `"version":2`, "version 2"},
		{`"version":1`, `"version":0`, "0 is no version"},
		{`"steps":32`, `"steps":32,"more":1`, "more"},
		{`"grid":[0.05,0.2,0.5]`, `"grid":[]`, "shares"},
		{`"grid":[0.05,0.2,0.5]`, `"grid":[0.05,0.5,0.2]`, "ascend"},
		{`"grid":[0.05,0.2,0.5]`, `"grid":[0.05,0.2]`, "figures"},
		{`"head":1`, `"head":0`, "twice"},
		{`"block":2`, `"block":99999`, "block 99999"},
	} {
		data := strings.NewReplacer(" ", "", "\n", "").Replace(string(sample().Encode()))
		if !strings.Contains(data, c.old) {
			t.Fatalf("%s has no %s", data, c.old)
		}
		_, err := Parse("p", []byte(strings.Replace(data, c.old, c.new, 1)))
		var wrong *formats.FormatError
		var unsupported *formats.UnsupportedError
		if err == nil || !strings.Contains(err.Error(), c.want) || !errors.As(err, &wrong) && !errors.As(err, &unsupported) {
			t.Errorf("%s: %v", c.new, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(sample().Encode())
	f.Add([]byte(`{"version":1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := Parse("p", data)
		if err != nil {
			return
		}
		for _, pages := range []float64{0.001, 0.3, 1} {
			for _, heads := range p.Shares(mostBlocks, pages) {
				for _, x := range heads {
					if !(x >= 0 && x <= 1) {
						t.Fatalf("a share of %g", x)
					}
				}
			}
		}
		if q, err := Parse("p", p.Encode()); err != nil || len(q.Heads) != len(p.Heads) {
			t.Fatalf("written again: %v", err)
		}
	})
}
