package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/atomicfile"
	"github.com/nstf/nstf/quantize/pipeline"
	"github.com/nstf/nstf/runtime/exec"
	"github.com/nstf/nstf/runtime/gpu"
	"github.com/nstf/nstf/runtime/gpu/driver"
)

func TestExitCodes(t *testing.T) {
	for _, c := range []struct {
		err  error
		code int
		hint string
	}{
		{nil, 0, ""},
		{errors.New("x"), 1, ""},
		{fs.ErrNotExist, 3, ""},
		{usagef("x"), 2, "--help"},
		{formats.Errorf("f", "t", "x"), 3, ""},
		{fmt.Errorf("wrapped: %w", formats.ErrorAt("f", "", 3, "x")), 3, ""},
		{errors.Join(formats.Errorf("f", "a", "x"), formats.Errorf("f", "b", "x")), 3, ""},
		{formats.Unsupportedf("f", "t", "x"), 4, ""},
		{&formats.UnsupportedError{Feature: "x", Hint: "do y"}, 4, "do y"},
		{&usageError{err: &formats.UnsupportedError{Feature: "x", Hint: "do y"}}, 2, "do y"},
		{context.Canceled, 130, ""},
		{errInterrupted, 130, ""},
		{fmt.Errorf("while: %w", errInterrupted), 130, ""},
		{&atomicfile.DiskFullError{Path: "f", Needed: 2}, 1, "free some space"},
		{&pipeline.BoundError{Tries: []pipeline.Try{{Predicted: 1}}}, 1, "more tries"},
		{&pipeline.BoundError{Tries: []pipeline.Try{{Predicted: 1}, {}}}, 1, "allow a larger divergence; --discard"},
		{&exec.ContextFullError{Used: 1, New: 1, Capacity: 1}, 2, "--ctx"},
		{&gpu.TooLargeError{Plan: gpu.Plan{Weights: 9, Free: 8}}, 1, "fewer bits"},
		{&gpu.TooLargeError{Plan: gpu.Plan{Weights: 7, Cache: 9, Free: 8}}, 1, "--kv q8"},
		{&gpu.MissingError{Err: &driver.Error{Call: "x", Hint: "install y"}}, 1, "install y"},
	} {
		if got := exitCode(c.err); got != c.code {
			t.Errorf("%v: exit code %d, want %d", c.err, got, c.code)
		}
		if got := hint(c.err); (got == "") != (c.hint == "") || !strings.Contains(got, c.hint) {
			t.Errorf("%v: hint %q, want %q", c.err, got, c.hint)
		}
	}
}

// Whatever is wrong with a command line ends with 2, before anything is read.
func TestUsage(t *testing.T) {
	for _, line := range []string{
		"nosuch", "convert", "convert a b -o c", "convert a", "convert a -o b --dtype f8", "convert a -o b --nosuch",
		"quantize a -o b", "quantize a -o b --scheme nosuch", "quantize a -o b --scheme q4_k --head-scheme iq1_s",
		"inspect", "verify", "tokenize", "tokenize a --decode --ids", "eval a", "eval a --text t --protocol x", "eval a --text t --ctx 1",
		"eval a --token-ids i", "eval a --text t --dump-logits d", "eval a --token-ids i --dump-logits d --ref r", "eval a --text t --max-tokens -1",
		"run", "run a", "run a b", "run a -p x -", "run a -p x -f y", "run a -p x --system s", "run a -p x --temperature -1",
		"run a -p x --top-p 2", "run a -p x --ctx -1", "run a -p x --stop=", "run a -p x --kv f4", "run a -p x --device gpu", "run a -p x --device cpu:1", "eval a --text t --device hip:x", "bench a --device cuda:-1", "eval a --text t --kv f4", "eval a --text t --activations f4", "eval a --text t --exact --activations nstf", "export a -o b", "export a -o b/ --dtype f8", "demo x", "version x",
	} {
		invoke(strings.Fields(line)...).fails(t, exitUsage, "")
	}
}

// A model that is no package cannot be checked: that is not damage.
func TestNoHashes(t *testing.T) {
	gguf := filepath.Join(t.TempDir(), "x.gguf")
	must(t, "export", filepath.Join(micro, "llama-2"), "-o", gguf)
	for _, path := range []string{gguf, demoModel, filepath.Join(demoModel, "model.safetensors")} {
		for _, r := range []result{invoke("verify", path), invoke("run", path, "-p", "x", "--verify")} {
			r.fails(t, exitUnsupported, "holds no hashes, as only packages do")
			r.fails(t, exitUnsupported, "hint: nstf convert "+path+" -o ")
		}
	}
	invoke("verify", demoText).fails(t, exitInput, "not an NSTF package")
}

// A folder of models is none, and the models in it are named.
func TestFolderOfModels(t *testing.T) {
	dir := t.TempDir()
	invoke("run", dir, "-p", "x").fails(t, exitInput, "a .gguf or .nstf file is named itself")
	must(t, "export", filepath.Join(micro, "llama-2"), "-o", filepath.Join(dir, "x.gguf"))
	invoke("inspect", dir).fails(t, exitInput, "name the model in the folder: "+filepath.Join(dir, "x.gguf")+"\n")
	if err := copyFiles(filepath.Join(dir, "a"), filepath.Join(micro, "llama-2")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "notes.txt"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	invoke("convert", dir, "-o", filepath.Join(dir, "x.nstf")).fails(t, exitInput, "one of the models in the folder: "+filepath.Join(dir, "a")+", "+filepath.Join(dir, "x.gguf")+"\n")
	for i := range 9 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i, ".nstf")), nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	invoke("run", dir, "-p", "x").fails(t, exitInput, " and 6 more\n")
}

// A file that is not there is told in the same words by every command.
func TestMissingFiles(t *testing.T) {
	out := filepath.Join(t.TempDir(), "x")
	for _, line := range []string{
		"convert nosuch -o OUT", "inspect nosuch", "verify nosuch", "verify nosuch.nstf", "report nosuch.nstf -o OUT", "diff nosuch " + demoModel, "run nosuch -p x", "tokenize nosuch",
		"run " + demoModel + " -f nosuch", "eval " + demoModel + " --text nosuch", "eval " + demoModel + " --token-ids nosuch --dump-logits OUT", "run nosuch.nstf -p x --verify",
		"quantize " + demoModel + " -o OUT --plan nosuch", "quantize " + demoModel + " -o OUT --bpw 4 --stats nosuch", "plan " + demoModel + " --bpw 4 --calib nosuch",
	} {
		r := invoke(strings.Fields(strings.ReplaceAll(line, "OUT", out))...)
		if r.fails(t, exitInput, "nosuch"); !strings.Contains(r.err, ": there is no such file or directory\n") {
			t.Errorf("%s: %s", line, r.err)
		}
	}
}

func TestHelp(t *testing.T) {
	out := must(t, "--help")
	for _, code := range []string{"0 ", "1 ", "2 ", "3 ", "4 ", "130 "} {
		if !strings.Contains(out, "\n  "+code) {
			t.Errorf("--help does not list exit code %s", code)
		}
	}
	for _, c := range (&app{}).root().Commands() {
		if c.Hidden || c.Name() == "help" || c.Name() == "completion" {
			continue
		}
		out := must(t, c.Name(), "--help")
		if c.Example == "" || !strings.Contains(out, c.Example) {
			t.Errorf("%s --help has no examples", c.Name())
		}
		for line := range strings.Lines(out) {
			if len([]rune(strings.TrimRight(line, "\n"))) > 120 {
				t.Errorf("%s --help has a line of %d columns: %s", c.Name(), len(line), line)
			}
		}
	}
}

func TestVersion(t *testing.T) {
	var r versionReport
	decode(t, must(t, "version", "--json"), &r)
	for _, c := range []struct {
		info debug.BuildInfo
		want string
	}{
		{debug.BuildInfo{}, "(devel), of a commit that its build did not note"},
		{debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}}, "v1.2.3"},
		{debug.BuildInfo{Main: debug.Module{Version: "(devel)"}, Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "abc"}}}, "(devel), commit abc"},
		{debug.BuildInfo{Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.modified", Value: "true"}}}, "(devel), commit abc, with changes"},
	} {
		r := versionReport{Version: unversioned, Commit: unknownCommit}
		if r.read(&c.info); r.short() != c.want {
			t.Errorf("%+v: %q, want %q", c.info, r.short(), c.want)
		}
	}
	if r.Version == "" || !strings.HasPrefix(r.Go, "go1.") || r.SIMD == "" || r.Threads < 1 {
		t.Errorf("%+v", r)
	}
	fits(t, must(t, "version"))
}

// fits checks that what is printed takes at most 100 columns.
func fits(t *testing.T, out string) {
	t.Helper()
	if strings.TrimSpace(out) == "" {
		t.Error("nothing is printed")
	}
	for line := range strings.Lines(out) {
		if n := len([]rune(strings.TrimRight(line, "\n"))); n > tableWidth {
			t.Errorf("a line of %d columns: %s", n, line)
		}
	}
}
