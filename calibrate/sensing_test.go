package calibrate_test

import (
	"maps"
	"testing"

	"github.com/nstf/nstf/calibrate"
	"github.com/nstf/nstf/formats/stats"
)

// TestSensing measures matrices by two processes that take turns from the last to the first, and
// wants the sensitivities of one that measures all together.
func TestSensing(t *testing.T) {
	for _, name := range []string{"llama-31", "llama-tied", "mixtral", "gemma4-e"} {
		m := openMicro(t, name)
		windows := someWindows(m.Graph.Vocab)
		s, err := calibrate.Measure(t.Context(), m, windows, calibrate.Options{})
		if err != nil {
			t.Fatal(name, err)
		}
		defer s.Close()
		o := calibrate.SensitivityOptions{Options: calibrate.Options{Threads: 1}, Tokens: 20}
		if err := calibrate.Sensitivities(t.Context(), m, s, windows, o); err != nil {
			t.Fatal(name, err)
		}
		want := s.Sensitivity
		var both [2]*calibrate.Sensing
		for i := range both {
			if both[i], err = calibrate.NewSensing(t.Context(), m, func(input string) ([]float64, error) { return s.Moments(input, -1) }, windows, o); err != nil {
				t.Fatal(name, err)
			}
			defer both[i].Close()
		}
		found := make([]calibrate.Sensed, calibrate.Matrices(m))
		for i := len(found) - 1; i >= 0; i-- {
			if found[i], err = both[i%2].Measure(t.Context(), i); err != nil {
				t.Fatal(name, err)
			}
		}
		again := &stats.File{Inputs: s.Inputs, Experts: s.Experts}
		if err := calibrate.Sense(t.Context(), m, again, windows, o, found); err != nil {
			t.Fatal(name, err)
		}
		if !maps.Equal(again.Sensitivity, want) {
			t.Errorf("%s: %v, not %v", name, again.Sensitivity, want)
		}
	}
}
