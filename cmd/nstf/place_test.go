package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nstf/nstf/runtime/place"
)

// A layout is printed, told in JSON, taken again by run, and refused where it has no room.
func TestPlace(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	out := must(t, "place", demoModel, "--device", "cpu", "--ctx", "256")
	fits(t, out)
	for _, want := range []string{"0 to 5", "the first has the embedding", "expected: ", "context:  256 positions"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	text := must(t, "place", demoModel, "--device", "cpu", "--memory", "cpu=1GiB", "--json")
	var l place.Layout
	decode(t, text, &l)
	if len(l.Ranges) != 1 || l.Ranges[0].Hi != 6 || l.Ranges[0].Limit > 1<<30 || l.Ranges[0].Memory < 13<<20 || !(l.Seconds > 0) {
		t.Errorf("%+v", l)
	}
	file := filepath.Join(t.TempDir(), "layout.json")
	if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	write := []string{"run", demoModel, "-p", "Once upon", "--greedy", "--max-tokens", "8"}
	laid := invoke(append(write, "--place", file)...)
	if plain := must(t, append(write, "--device", "cpu")...); laid.code != exitFine || laid.out != plain || !strings.Contains(laid.err, "blocks 0 to 5 of 6") {
		t.Errorf("exit %d, %q on %s, want %q", laid.code, laid.out, laid.err, plain)
	}
	if err := os.WriteFile(file, []byte(`{"ranges":[{"device":"cpu","lo":0,"hi":5}]}`), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		code int
		what string
		args []string
	}{
		{exitUnsupported, "missing beside 1.00 MiB on cpu", []string{"place", demoModel, "--device", "cpu", "--memory", "cpu=1MiB"}},
		{exitUnsupported, "missing beside 1.00 MiB on cpu", append(write, "--device", "cpu", "--memory", "cpu=1MiB")},
		{exitInput, "not of all 6 blocks", append(write, "--place", file)},
		{exitInput, "no such file", append(write, "--place", file+"x")},
		{exitUsage, "so does --device", append(write, "--place", file, "--device", "cpu")},
		{exitUsage, "does not name cpu", append(write, "--memory", "cpu=1GiB")},
		{exitUsage, "no list such as", append(write, "--device", "cpu", "--memory", "1GiB")},
		{exitUsage, "a limit already", append(write, "--device", "cpu", "--memory", "cpu=1GiB,cpu=2GiB")},
		{exitUsage, "is no size", append(write, "--device", "cpu", "--memory", "cpu=much")},
		{exitUsage, "twice", append(write, "--device", "hip,hip:0")},
		{exitUsage, "auto stands by itself", append(write, "--device", "auto,cpu")},
		{exitUsage, "this command runs on one device", []string{"calibrate", demoModel, "--calib", demoText, "--device", "hip:0,cpu", "-o", file + ".nstats"}},
		{exitUsage, "looks at one device", []string{"bench", demoModel, "--tune", "--device", "hip:0,cpu"}},
		{exitUsage, "does not name hip:1", []string{"serve", demoModel, "--memory", "24GiB,hip:1=2GiB", "--device", "cpu"}},
	} {
		invoke(c.args...).fails(t, c.code, c.what)
	}
}
