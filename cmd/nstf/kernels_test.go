package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
)

// TestKernelsRefused: what no kernel writes, and what is no list of kernels, is refused by name.
func TestKernelsRefused(t *testing.T) {
	for input, want := range map[string]string{
		`[{"scheme": "q9_x", "type": "f32"}]`:                         `scheme "q9_x"`,
		`[{"scheme": "q4_k", "type": "f64"}]`:                         `type "f64"`,
		`[{"scheme": "fp8", "params": {"rows": 1}, "type": "f32"}]`:   "fp8",
		`[{"scheme": "nf4", "params": {"block": 64}, "type": "f32"}]`: `"nf4"`,
		`[{"scheme": "tcq", "params": {"bits": 9}, "type": "f32"}]`:   "bits",
		`[{"scheme": "q4_k", "kind": "f32"}]`:                         "kind",
		`{`:                                                           "standard input",
	} {
		var out, errs bytes.Buffer
		a := &app{in: strings.NewReader(input), out: &out, err: &errs}
		if code := a.run(context.Background(), []string{"dev", "kernels", "gfx1100"}); code == exitFine || !strings.Contains(errs.String(), want) || out.Len() > 0 {
			t.Errorf("%s: code %d, %q, output %q", input, code, errs.String(), out.String())
		}
	}
	var out, errs bytes.Buffer
	a := &app{in: strings.NewReader("[]"), out: &out, err: &errs}
	if code := a.run(context.Background(), []string{"dev", "kernels", "pentium"}); code != exitUsage {
		t.Errorf("target pentium: code %d, %q", code, errs.String())
	}
}
