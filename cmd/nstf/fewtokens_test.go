package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// What predictions rest on too few tokens is said where they are made.
func TestFewTokens(t *testing.T) {
	dir := t.TempDir()
	model, few := filepath.Join(micro, "llama-31"), filepath.Join(dir, "few.nstats")
	calibrate := []string{"calibrate", model, "--calib", microText, "--ctx", "16", "--samples", "4", "-o", few}
	for i, c := range []struct {
		args   []string
		warned bool
	}{
		{calibrate, true},
		{[]string{"plan", model, "--stats", few, "--bpw", "5", "--schemes", "q4_0,q8_0"}, true},
		{[]string{"plan", model, "--bpw", "5", "--schemes", "q4_0,q8_0"}, false}, // predicts nothing
		{[]string{"quantize", model, "--stats", few, "--bpw", "5", "--schemes", "q4_0,q8_0", "--calib", microText, "--ctx", "16", "--samples", "4", "-o", filepath.Join(dir, "o.nstf")}, true},
		{[]string{"quantize", model, "--scheme", "q4_0", "--calib", microText, "--ctx", "16", "--samples", "4", "-o", filepath.Join(dir, "p.nstf")}, false},
	} {
		r := invoke(c.args...)
		if r.code != exitFine || strings.Count(r.err, "of calibration text are few") == 1 != c.warned {
			t.Errorf("case %d: exit %d, %s", i, r.code, r.err)
		}
	}
}
