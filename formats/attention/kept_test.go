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

func sampleKept() *Kept {
	return &Kept{
		Version: 1,
		Source:  Source{Model: "m", Text: "t", TextHash: strings.Repeat("0", 64), Context: 2048, Windows: 2, Held: 1, Steps: 256},
		Formats: []string{"f16", "q8", "q4"},
		Blocks: []KeptBlock{
			{Block: 0, Numbers: 128, Bits: []float64{16, 8.75, 4.5}, KLD: []float64{0, 0.0001, 0.01}},
			{Block: 2, Numbers: 128, Bits: []float64{16, 8.75, 4.5}, KLD: []float64{0, 0.0002, 0.0001}}, // noise: fewer bits never count as better
			{Block: 3, Numbers: 256, Bits: []float64{16, 8.75, 4.5}, KLD: []float64{0, 0.00001, 0.001}},
		},
		Chosen:   []string{"q8", "f16", "q4", "q4"},
		Measured: KeptPoint{Bits: 5.5625, KLD: 0.0015, SE: 0.0001, Top1: 0.98},
	}
}

func TestKeptRoundTrips(t *testing.T) {
	data := sampleKept().Encode()
	k, err := ParseKept("k", data)
	if err != nil {
		t.Fatal(err)
	}
	if again := k.Encode(); !bytes.Equal(again, data) {
		t.Errorf("%s\nthen\n%s", data, again)
	}
	if err := k.Fits("k", 4); err != nil || k.List() != "q8,f16,q4,q4" {
		t.Error(err, k.List())
	}
	if err := k.Fits("k", 5); err == nil {
		t.Error("fits a model of 5 blocks")
	}
}

// Blocks lose bits in the order of what that costs, as far as the mean asks for.
func TestChoose(t *testing.T) {
	k := sampleKept()
	for _, c := range []struct {
		bits   float64
		chosen []int
		mean   float64
	}{
		{16, []int{0, 0, 0}, 16},
		{15.9, []int{0, 0, 1}, 12.375},
		{12, []int{1, 0, 1}, 10.5625},
		{9, []int{1, 2, 1}, 7.6875},
		{6, []int{1, 2, 2}, 5.5625},
		{4.5, []int{2, 2, 2}, 4.5},
		{1, []int{2, 2, 2}, 4.5},
	} {
		chosen, mean, kld := k.Choose(c.bits)
		want := 0.
		for i, f := range c.chosen {
			want += max(k.Blocks[i].KLD[f], k.Blocks[i].KLD[max(f-1, 0)])
		}
		if !slices.Equal(chosen, c.chosen) || math.Abs(mean-c.mean) > 1e-9 || math.Abs(kld-want) > 1e-12 {
			t.Errorf("%g bits: %v, %g bits, divergence %g, want %v, %g, %g", c.bits, chosen, mean, kld, c.chosen, c.mean, want)
		}
	}
	k.Blocks[1].Bits[1] = 4.5 // as many bits as fewer have: the better of both
	if chosen, _, _ := k.Choose(4.5); !slices.Equal(chosen, []int{2, 2, 2}) {
		t.Errorf("of two formats of as many bits: %v", chosen)
	}
	k.Blocks[1].Bits[1] = 20 // more bits than what it is measured from
	if chosen, mean, _ := k.Choose(30); !slices.Equal(chosen, []int{0, 0, 0}) || mean != 16 {
		t.Errorf("with a format of more bits than the first: %v, %g", chosen, mean)
	}
	k.Set(4, []int{1, 2, 0})
	if k.List() != "q8,f16,q4,f16" {
		t.Error(k.List())
	}
}

func TestKeptRefusals(t *testing.T) {
	for _, c := range []struct{ old, new, want string }{
		{`"version":1`, `"version":2`, "version 2"},
		{`"formats":["f16","q8","q4"]`, `"formats":[]`, "formats"},
		{`"formats":["f16","q8","q4"]`, `"formats":["f16","q4"]`, "figures"},
		{`"block":2`, `"block":0`, "behind 0"},
		{`"block":3`, `"block":4`, "of 4"},
		{`"chosen":["q8"`, `"chosen":["q3"`, `"q3"`},
	} {
		data := strings.NewReplacer(" ", "", "\n", "").Replace(string(sampleKept().Encode()))
		if !strings.Contains(data, c.old) {
			t.Fatalf("%s has no %s", data, c.old)
		}
		_, err := ParseKept("k", []byte(strings.Replace(data, c.old, c.new, 1)))
		var wrong *formats.FormatError
		var unsupported *formats.UnsupportedError
		if err == nil || !strings.Contains(err.Error(), c.want) || !errors.As(err, &wrong) && !errors.As(err, &unsupported) {
			t.Errorf("%s: %v", c.new, err)
		}
	}
}

func FuzzParseKept(f *testing.F) {
	f.Add(sampleKept().Encode())
	f.Add([]byte(`{"version":1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		k, err := ParseKept("k", data)
		if err != nil {
			return
		}
		for _, bits := range []float64{3, 4.5, 16} {
			if chosen, _, _ := k.Choose(bits); len(chosen) != len(k.Blocks) {
				t.Fatalf("%d blocks of %d", len(chosen), len(k.Blocks))
			}
		}
		if q, err := ParseKept("k", k.Encode()); err != nil || q.List() != k.List() {
			t.Fatalf("written again: %v", err)
		}
	})
}
