package scheme_test

import (
	"os"
	"os/exec"
	"regexp"
	"testing"
)

// TestNoFusing compiles this package and the fitters for a machine that has
// fused multiply-add and wants none used: the bits of a decode and the bytes
// of a fit do not depend on the machine. An assignment does not keep the
// compiler from fusing a product with a later sum; only a conversion does.
func TestNoFusing(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles the standard library for another machine")
	}
	tool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("the go command is not in the path")
	}
	fused := regexp.MustCompile(`(?m)^.*\bFN?M(ADD|SUB)[SD]\b.*$`)
	for _, dir := range []string{".", "../tensor", "../../quantize/fit"} {
		cmd := exec.Command(tool, "build", "-gcflags=-S", ".")
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH=arm64", "CGO_ENABLED=0")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if len(out) < 1000 {
			t.Fatalf("%s: no listing: %q", dir, out)
		}
		for _, line := range fused.FindAll(out, -1) {
			t.Errorf("%s: %s", dir, line)
		}
	}
}
