package pipeline

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// One slow run, or one fast, does not decide what a sample is taken to cost.
func TestTimed(t *testing.T) { synctest.Test(t, measured) }

func measured(t *testing.T) {
	n := 0
	seconds, err := timed(func() error {
		if n++; n == 1 {
			time.Sleep(200 * time.Millisecond)
		}
		return nil
	})
	if err != nil || n != sampleRuns || seconds > 0.1 {
		t.Errorf("%d runs, %g s, %v", n, seconds, err)
	}
	n = 0
	if _, err := timed(func() error { n++; time.Sleep(sampleTime); return nil }); err != nil || n != 1 {
		t.Errorf("%d runs of a slow sample, %v", n, err)
	}
	broken := errors.New("broken")
	if _, err := timed(func() error { return broken }); err != broken {
		t.Errorf("%v", err)
	}
}
