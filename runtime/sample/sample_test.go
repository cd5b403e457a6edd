package sample

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
)

// logs returns the logits of given probabilities.
func logs(p ...float64) []float32 {
	out := make([]float32, len(p))
	for i, v := range p {
		out[i] = float32(math.Log(v))
	}
	return out
}

// The distributions that a chain leaves, worked out by hand.
func TestDistribution(t *testing.T) {
	base := []float64{0.1, 0.4, 0.05, 0.3, 0.15}
	for _, c := range []struct {
		name    string
		o       Options
		history []int32
		want    []float64
	}{
		{"temperature 1", Options{Temperature: 1}, nil, base},
		// Squares: 0.01 0.16 0.0025 0.09 0.0225, sum 0.285.
		{"temperature 1/2", Options{Temperature: 0.5}, nil, []float64{0.01 / 0.285, 0.16 / 0.285, 0.0025 / 0.285, 0.09 / 0.285, 0.0225 / 0.285}},
		{"top-k 2", Options{Temperature: 1, TopK: 2}, nil, []float64{0, 4. / 7, 0, 3. / 7, 0}},
		{"top-k beyond the vocabulary", Options{Temperature: 1, TopK: 9}, nil, base},
		// 0.4 + 0.3 = 0.7 is less than 0.75: 0.15 joins.
		{"top-p 0.75", Options{Temperature: 1, TopP: 0.75}, nil, []float64{0, 0.4 / 0.85, 0, 0.3 / 0.85, 0.15 / 0.85}},
		{"top-p tiny keeps the best", Options{Temperature: 1, TopP: 1e-9}, nil, []float64{0, 1, 0, 0, 0}},
		{"top-p 1", Options{Temperature: 1, TopP: 1}, nil, base},
		// 0.3 is at least 0.7*0.4 = 0.28, 0.15 is not.
		{"min-p 0.7", Options{Temperature: 1, MinP: 0.7}, nil, []float64{0, 4. / 7, 0, 3. / 7, 0}},
		// Of the three best, 0.4/0.85 + 0.3/0.85 = 0.82: top-p sees shares of what top-k left.
		{"top-k 3, top-p 0.8", Options{Temperature: 1, TopK: 3, TopP: 0.8}, nil, []float64{0, 4. / 7, 0, 3. / 7, 0}},
		// Alone, top-p 0.8 needs 0.4 + 0.3 + 0.15; min-p then drops 0.15 < 0.5*0.4.
		{"top-p 0.8, min-p 0.5", Options{Temperature: 1, TopP: 0.8, MinP: 0.5}, nil, []float64{0, 4. / 7, 0, 3. / 7, 0}},
		// Temperature comes first: squares' shares are 0.56, 0.32, ... and 0.56 + 0.32 reaches 0.85.
		{"temperature before top-p", Options{Temperature: 0.5, TopP: 0.85}, nil, []float64{0, 16. / 25, 0, 9. / 25, 0}},
		// log p < 0 is doubled, once however often it occurs: 0.4 becomes 0.16, 0.3 becomes 0.09; sum 0.55.
		{"repetition penalty", Options{Temperature: 1, RepetitionPenalty: 2}, []int32{3, 1, 3, 3}, []float64{0.1 / 0.55, 0.16 / 0.55, 0.05 / 0.55, 0.09 / 0.55, 0.15 / 0.55}},
		// Only the last two of the history: 1 is not among them; sum 0.79.
		{"repetition window", Options{Temperature: 1, RepetitionPenalty: 2, RepetitionWindow: 2}, []int32{1, 3, 3}, []float64{0.1 / 0.79, 0.4 / 0.79, 0.05 / 0.79, 0.09 / 0.79, 0.15 / 0.79}},
		{"history outside the vocabulary", Options{Temperature: 1, RepetitionPenalty: 2}, []int32{-1, 5, 900}, base},
	} {
		s, err := New(c.o)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		logits := logs(base...)
		const n = 100000
		counts := make([]float64, len(base))
		for i := range n {
			counts[s.Next(logits, c.history, int64(i))]++
		}
		if !slices.Equal(logits, logs(base...)) {
			t.Errorf("%s: the logits were changed", c.name)
		}
		for i, w := range c.want {
			// Five standard deviations; nothing at all where nothing may be.
			if d := math.Abs(counts[i]/n - w); d > 5*math.Sqrt(w*(1-w)/n)+1e-12 {
				t.Errorf("%s: token %d drawn with frequency %v, want %v", c.name, i, counts[i]/n, w)
			}
		}
	}
}

func TestPositiveLogitsAreDivided(t *testing.T) {
	s, err := New(Options{RepetitionPenalty: 2})
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Next([]float32{3, 5, 2}, []int32{1}, 0); got != 0 { // 5/2 < 3
		t.Errorf("token %d", got)
	}
	if got := s.Next([]float32{-3, -2, -5}, []int32{1}, 0); got != 0 { // -2*2 < -3
		t.Errorf("token %d", got)
	}
}

func TestGreedy(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, c := range []struct {
		logits []float32
		want   int32
	}{
		{[]float32{1, 3, 3}, 1},
		{[]float32{nan, 1, nan, 2}, 3},
		{[]float32{nan, nan}, 0},
		{[]float32{-inf, -inf, -7}, 2},
		{[]float32{1, inf}, 1},
	} {
		if got := Greedy(c.logits); got != c.want {
			t.Errorf("%v: token %d, want %d", c.logits, got, c.want)
		}
		for _, o := range []Options{{}, {Temperature: 1e-6}, {Temperature: 1, TopK: 1}} {
			s, err := New(o)
			if err != nil {
				t.Fatal(err)
			}
			got := s.Next(c.logits, nil, 0)
			if c.logits[0] == 1 && c.logits[1] == 3 && o.Temperature == 1e-6 {
				continue // a tie is drawn
			}
			if got != c.want {
				t.Errorf("%v with %+v: token %d, want %d", c.logits, o, got, c.want)
			}
		}
	}
}

// The same seed gives the same tokens, another one others; the numbers are
// those of the documented generator.
func TestSeed(t *testing.T) {
	logits := make([]float32, 1000)
	draw := func(seed uint64) (ids []int32) {
		s, err := New(Options{Temperature: 1, Seed: seed})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 50 {
			ids = append(ids, s.Next(logits, nil, int64(i)))
		}
		return ids
	}
	for i, got := range draw(42) {
		// All weights are 1: the token is the share of 1000, rounded down.
		if want := int32(float64(Random(42, uint64(i))>>11) / (1 << 53) * 1000); got != want {
			t.Errorf("token %d is %d, want %d", i, got, want)
		}
	}
	if slices.Equal(draw(1), draw(2)) {
		t.Error("two seeds gave the same tokens")
	}
}

func TestOptionsOutOfRange(t *testing.T) {
	for _, o := range []Options{
		{Temperature: -1}, {Temperature: math.NaN()}, {Temperature: math.Inf(1)}, {TopK: -1}, {TopP: -0.1}, {TopP: 1.1},
		{MinP: 2}, {MinP: math.NaN()}, {RepetitionPenalty: -2}, {RepetitionPenalty: math.NaN()}, {RepetitionWindow: -1},
	} {
		if _, err := New(o); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
}

func TestNextAllocatesNothing(t *testing.T) {
	logits := make([]float32, 5000)
	for i := range logits {
		logits[i] = float32(i%97) / 10
	}
	s, err := New(Options{Temperature: 0.8, TopK: 40, TopP: 0.9, MinP: 0.01, RepetitionPenalty: 1.1})
	if err != nil {
		t.Fatal(err)
	}
	history := []int32{1, 2, 3}
	s.Next(logits, history, 0)
	if n := testing.AllocsPerRun(20, func() { s.Next(logits, history, 0) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestStopper(t *testing.T) {
	for _, c := range []struct {
		stops []string
		text  string
		want  string
		stop  bool
	}{
		{[]string{"END"}, "one END two", "one ", true},
		{[]string{"END"}, "one EN two E", "one EN two E", false},
		{[]string{"aab"}, "aaab", "a", true},
		{[]string{"abc", "b"}, "xabcd", "xa", true}, // b is complete first
		{[]string{"bc", "abc"}, "xabcd", "x", true}, // both end there: the longer
		{[]string{"\n\n", "User:"}, "hi\nUser: x", "hi\n", true},
		{[]string{"é"}, "caf\u00e9s", "caf", true},
		{nil, "anything", "anything", false},
	} {
		for cut := range len(c.text) { // every way to cut in three
			for cut2 := cut; cut2 <= len(c.text); cut2++ {
				s, err := NewStopper(c.stops...)
				if err != nil {
					t.Fatal(err)
				}
				var out strings.Builder
				stopped := false
				for _, part := range []string{c.text[:cut], c.text[cut:cut2], c.text[cut2:]} {
					var o string
					o, stopped = s.Push(part)
					out.WriteString(o)
				}
				out.WriteString(s.Flush())
				if out.String() != c.want || stopped != c.stop {
					t.Errorf("%q for %q cut at %d, %d: %q, %v", c.stops, c.text, cut, cut2, out.String(), stopped)
				}
			}
		}
	}
	if _, err := NewStopper("a", ""); err == nil {
		t.Error("an empty stop string was accepted")
	}
}

// Nothing is held back longer than needed.
func TestStopperHoldsLittle(t *testing.T) {
	s, err := NewStopper("stop")
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct{ in, out string }{{"a st", "a "}, {"o", ""}, {"ne s", "stone "}, {"tay", "stay"}} {
		if out, _ := s.Push(step.in); out != step.out {
			t.Errorf("%q gives %q, want %q", step.in, out, step.out)
		}
	}
	s.Push("stop")
	if out, stopped := s.Push("more"); out != "" || !stopped {
		t.Errorf("after the stop: %q, %v", out, stopped)
	}
	s.Reset()
	if out, stopped := s.Push("more"); out != "more" || stopped {
		t.Errorf("after Reset: %q, %v", out, stopped)
	}
}

func ExampleSampler() {
	s, err := New(Options{Temperature: 0.7, TopP: 0.9, Seed: 1})
	if err != nil {
		panic(err)
	}
	history := []int32{3}
	for range 3 {
		history = append(history, s.Next([]float32{2, 0, 2, -5}, history, int64(len(history))))
	}
	fmt.Println(len(history))
	// Output: 4
}

// The known answers of the generator's authors (Random123's kat_vectors).
func TestRandom(t *testing.T) {
	for _, c := range []struct {
		counter [4]uint32
		key     [2]uint32
		want    [4]uint32
	}{
		{[4]uint32{}, [2]uint32{}, [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{[4]uint32{1<<32 - 1, 1<<32 - 1, 1<<32 - 1, 1<<32 - 1}, [2]uint32{1<<32 - 1, 1<<32 - 1}, [4]uint32{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
		{[4]uint32{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, [2]uint32{0xa4093822, 0x299f31d0}, [4]uint32{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
	} {
		if got := philox(c.counter, c.key); got != c.want {
			t.Errorf("%x: %x, want %x", c.counter, got, c.want)
		}
	}
}
