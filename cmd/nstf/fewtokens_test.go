package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// What predictions rest on too few tokens is said where they are made.
func TestFewTokens(t *testing.T) {
	dir := t.TempDir()
	few := filepath.Join(dir, "few.nstats")
	calibrate := []string{"calibrate", demoModel, "--calib", demoText, "--ctx", "16", "--samples", "4", "-o", few}
	for i, c := range []struct {
		args   []string
		warned bool
	}{
		{calibrate, true},
		{[]string{"plan", demoModel, "--stats", few, "--bpw", "5", "--schemes", "q4_0,q8_0"}, true},
		{[]string{"plan", demoModel, "--bpw", "5", "--schemes", "q4_0,q8_0"}, false}, // predicts nothing
		{[]string{"quantize", demoModel, "--stats", few, "--bpw", "5", "--schemes", "q4_0,q8_0", "--calib", demoText, "--ctx", "16", "--samples", "4", "-o", filepath.Join(dir, "o.nstf")}, true},
		{[]string{"quantize", demoModel, "--scheme", "q4_0", "--calib", demoText, "--ctx", "16", "--samples", "4", "-o", filepath.Join(dir, "p.nstf")}, false},
	} {
		r := invoke(c.args...)
		if r.code != exitFine || strings.Count(r.err, "of calibration text are few") == 1 != c.warned {
			t.Errorf("case %d: exit %d, %s", i, r.code, r.err)
		}
	}
}
