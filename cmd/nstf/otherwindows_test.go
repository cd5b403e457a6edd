package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestOtherWindows warns where a file of statistics is of the same text cut otherwise.
func TestOtherWindows(t *testing.T) {
	file := filepath.Join(t.TempDir(), "demo.nstats")
	if r := invoke("calibrate", filepath.Join(micro, "llama-k256"), "--ctx", "64", "--samples", "8", "--sensitivity=false", "-o", file); r.code != 0 {
		t.Fatal(r.err)
	}
	for samples, warned := range map[string]bool{"8": false, "9": true} {
		r := invoke("quantize", filepath.Join(micro, "llama-k256"), "-o", filepath.Join(t.TempDir(), "out.nstf"), "--stats", file, "--ctx", "64", "--samples", samples, "--bpw", "6", "--schemes", "q4_k,q6_k,q8_0", "--dry-run")
		if r.code != 0 || strings.Contains(r.err, "other windows") != warned {
			t.Errorf("%s windows: exit code %d, %s", samples, r.code, r.err)
		}
	}
}
