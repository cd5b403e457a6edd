//go:build !nodemo

package main

import (
	"os"
	"strings"
	"testing"
)

func TestDemo(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	out := must(t, "demo")
	fits(t, out)
	for _, want := range []string{"perplexity", "KL divergence", "as it is (bf16)", "q8_0", "q4_k", "It was a cold morning"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	empty(t, os.Getenv("TMPDIR"))
}
