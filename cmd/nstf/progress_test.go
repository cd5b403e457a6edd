package main

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Where nobody watches a bar a phase tells of itself in lines, unless it is short.
func TestPhaseLog(t *testing.T) { synctest.Test(t, tellPhases) }

func tellPhases(t *testing.T) {
	var out bytes.Buffer
	w := &lockedWriter{w: &out}
	l := newPhaseLog(w, "fitting", "weights", time.Hour, time.Hour)
	l.step(1, 2)
	l.end()
	l.end()
	if out.Len() > 0 {
		t.Errorf("a phase that ended at once says %q", out.String())
	}
	l = newPhaseLog(w, "fitting", "weights", 5*time.Millisecond, 5*time.Millisecond)
	time.Sleep(18 * time.Millisecond)
	l.step(25000, 100000)
	time.Sleep(49 * time.Millisecond)
	l.step(100000, 100000)
	l.end()
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	for i, want := range map[int]string{0: `^fitting: begun 0\.\d s ago$`, len(lines) - 2: `^fitting: 25\.0 K of 100\.0 K weights, 0\.\d s so far, about 0\.\d s left$`, len(lines) - 1: `^fitting: done in 0\.\d s$`} {
		if i < 0 || !regexp.MustCompile(want).MatchString(lines[i]) {
			t.Errorf("line %d of %q does not match %s", i, lines, want)
		}
	}
	out.Reset()
	l = newPhaseLog(w, "calibrating", "blocks", time.Millisecond, time.Hour)
	time.Sleep(50 * time.Millisecond) // the first block takes longer than the first line waits
	l.step(1, 4)
	time.Sleep(50 * time.Millisecond)
	l.step(2, 4)
	l.step(4, 4)
	l.end()
	if lines := strings.Split(out.String(), "\n"); len(lines) != 4 || !strings.Contains(lines[0], "begun") || !strings.Contains(lines[1], "1 of 4 blocks") || !strings.Contains(lines[1], "left") {
		t.Errorf("how long it takes is not told as soon as it can be: %q", out.String())
	}
	out.Reset()
	l = newPhaseLog(w, "converting", "bytes", time.Millisecond, time.Hour)
	l.step(1<<20, 3<<20)
	time.Sleep(50 * time.Millisecond)
	l.end()
	if got := out.String(); !strings.Contains(got, "1.00 MiB of 3.00 MiB") || !strings.Contains(got, "ended after") {
		t.Errorf("%q", got)
	}
}
