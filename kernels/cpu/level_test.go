package cpu_test

import (
	"errors"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/kernels/cpu"
)

// TestLevels states which levels every other test of this run covers.
func TestLevels(t *testing.T) {
	ls := cpu.Levels()
	t.Logf("levels tested on this machine and build: %v", ls)
	if ls[0] != cpu.LevelGeneric {
		t.Errorf("the lowest level is %v, want generic", ls[0])
	}
	if best := cpu.Best().Level(); best != ls[len(ls)-1] {
		t.Errorf("Best is %v of %v", best, ls)
	}
	for _, l := range ls {
		s, err := cpu.ForLevel(l)
		if err != nil || s.Level() != l {
			t.Errorf("ForLevel(%v) = %v, %v", l, s, err)
		}
		if back, err := cpu.ParseLevel(l.String()); err != nil || back != l {
			t.Errorf("ParseLevel(%q) = %v, %v", l, back, err)
		}
	}
}

func TestLevelErrors(t *testing.T) {
	var unsupported *formats.UnsupportedError
	if _, err := cpu.ParseLevel("sse9"); !errors.As(err, &unsupported) {
		t.Errorf("ParseLevel(sse9) gives %v, want an UnsupportedError", err)
	}
	if _, err := cpu.ForLevel(99); !errors.As(err, &unsupported) {
		t.Errorf("ForLevel(99) gives %v, want an UnsupportedError", err)
	}
}
