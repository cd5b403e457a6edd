package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/runtime/bench"
	"github.com/nstf/nstf/runtime/place"
)

func TestBench(t *testing.T) {
	if testing.Short() {
		t.Skip("reads gigabytes where the cache is large")
	}
	var r bench.Result
	decode(t, must(t, "bench", demoModel, "--prompt", "16", "--gen", "4", "--depth", "2", "--repeat", "2", "--threads", "2", "--kv", "q8", "--json"), &r)
	if r.Prompt.Tokens != 16 || r.Decode.Tokens != 4 || r.Decode.Depth != 2 || r.Repeat != 2 || r.Threads != 2 || r.Model != demoModel {
		t.Errorf("%+v", r)
	}
	if r.Prompt.Rate.Median <= 0 || r.Decode.Share <= 0 || r.FirstToken != nil {
		t.Errorf("prompt %+v, decode %+v, first token %+v", r.Prompt, r.Decode, r.FirstToken)
	}
	out := must(t, "bench", demoModel, "--prompt", "16", "--gen", "0", "--repeat", "1", "--level", "generic", "--exact")
	fits(t, out)
	for _, what := range []string{"tokens/s", "GFLOP/s", "generic", "peak memory"} {
		if !strings.Contains(out, what) {
			t.Errorf("no %q in %s", what, out)
		}
	}
	if strings.Contains(out, "decode") {
		t.Errorf("--gen 0 decodes: %s", out)
	}
}

// A share above the whole of memory is explained.
func TestBenchBeyond(t *testing.T) {
	for share, want := range map[float64]bool{0.97: false, 1: false, 1.3: true} {
		var out strings.Builder
		(&app{out: &out}).printBench(&bench.Result{Decode: &bench.Decode{Share: share}})
		if strings.Contains(out.String(), "caches give the rest") != want {
			t.Errorf("share %g: %s", share, out.String())
		}
	}
}

// The time to the first token is that of a process.
func TestFirstToken(t *testing.T) {
	a := &app{self: func(_ context.Context, args ...string) *exec.Cmd { return command(t, args...) }}
	f := &benchFlags{Options: bench.Options{Threads: 1}, device: deviceFlag{name: "cpu"}}
	d, err := a.firstToken(context.Background(), demoModel, f)
	if err != nil || d <= 0 {
		t.Errorf("%v, %v", d, err)
	}
	if _, err := a.firstToken(context.Background(), "/nosuch", f); err == nil || !strings.Contains(err.Error(), "nosuch") {
		t.Errorf("a missing model: %v", err)
	}
}

// What is measured is kept, and measured again where it is damaged or --fresh asks.
func TestProbe(t *testing.T) {
	if testing.Short() {
		t.Skip("reads gigabytes where the cache is large")
	}
	home := t.TempDir()
	for _, name := range []string{"XDG_CACHE_HOME", "HOME", "LocalAppData"} {
		t.Setenv(name, home)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	m := place.Discover(cpu.Best())
	path := m.Path(filepath.Join(dir, "nstf"))
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(`{"machine": {"cpu": "`), 0o666); err != nil { // damaged: it is measured
		t.Fatal(err)
	}
	fits(t, must(t, "bench", "--probe"))
	kept, err := os.ReadFile(path)
	var p place.Profile
	if decode(t, string(kept), &p); err != nil || p.ReadAll.Median <= 0 {
		t.Errorf("a damaged file becomes %s, %v", kept, err)
	}
	if files, err := filepath.Glob(filepath.Join(dir, "nstf", "machine-*.json")); err != nil || len(files) != 1 {
		t.Errorf("%v in %s: %v", files, dir, err)
	}
	if out := must(t, "bench", "--probe", "--json"); out != string(kept) {
		t.Errorf("printed %s, kept %s", out, kept)
	}
}

// Kernels are printed as they are timed; the tests of runtime/bench time all of them.
func TestBenchKernels(t *testing.T) {
	if testing.Short() {
		t.Skip("validates and times kernels for a while")
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	out := &until{text: "\nMatVecF32 ", then: func() { cancel(errors.New("seen")) }}
	a := &app{in: strings.NewReader(""), out: out, err: io.Discard, interrupts: &interrupts{cancel: cancel}}
	if code := a.run(ctx, []string{"bench", "--kernels", "--shape", "1x64x256", "--repeat", "1", "--threads", "1"}); code == exitFine {
		t.Error("all kernels were timed: what ends them came too late")
	}
	text := out.String()
	fits(t, text)
	for _, name := range []string{"kernel ", "DotRows ", "MatVecF32 "} {
		if !strings.Contains("\n"+text, "\n"+name) {
			t.Errorf("no line of %sin %s", name, text)
		}
	}
}

// until is output that calls a function when it holds a text.
type until struct {
	bytes.Buffer
	text string
	then func()
}

func (u *until) Write(p []byte) (int, error) {
	n, err := u.Buffer.Write(p)
	if strings.Contains(u.String(), u.text) {
		u.then()
	}
	return n, err
}

// The best tiles are kept, and runs take them.
func TestTune(t *testing.T) {
	if testing.Short() {
		t.Skip("times products of 4096 x 4096")
	}
	home := t.TempDir()
	for _, name := range []string{"XDG_CACHE_HOME", "HOME", "LocalAppData"} {
		t.Setenv(name, home)
	}
	var r tuning
	decode(t, must(t, "bench", "--tune", "--repeat", "1", "--json"), &r)
	if _, err := os.Stat(r.Kept); err != nil || len(r.Trials) < 12 || !r.Best.Sound() {
		t.Errorf("%+v, %v", r, err)
	}
	a := &app{}
	processor := &deviceFlag{name: "cpu"}
	if err := processor.check(); err != nil {
		t.Fatal(err)
	}
	if d := a.device(processor); d.Tiles != r.Best {
		t.Errorf("a run takes %+v, the best was %+v", d.Tiles, r.Best)
	}
	if err := os.WriteFile(r.Kept, []byte("{}"), 0o666); err != nil {
		t.Fatal(err)
	}
	if d := a.device(processor); !d.Tiles.Sound() {
		t.Errorf("with a damaged file a run takes %+v", d.Tiles)
	}
	fits(t, must(t, "bench", "--tune", "--repeat", "1"))
}

func TestBenchUsage(t *testing.T) {
	for _, line := range []string{
		"bench", "bench a b", "bench a --probe", "bench a --fresh", "bench a --prompt -1", "bench a --gen -1", "bench a --depth -1",
		"bench a --threads -1", "bench a --repeat 0", "bench a --prompt 0 --gen 0", "bench a --level sse9", "bench a --kv f4", "bench --probe --kernels",
		"bench a --kernels", "bench a --concurrency 0", "bench a --concurrency 4 --gen 0", "bench --kernels --concurrency 4", "bench a --tune", "bench --tune --kernels", "bench --tune --level avx2", "bench a --shape 1x1x1", "bench --kernels --shape 1x1", "bench a --nosuch",
	} {
		invoke(strings.Fields(line)...).fails(t, exitUsage, "")
	}
	invoke("bench", "/nosuch").fails(t, exitInput, "nosuch")
	invoke("bench", demoText).fails(t, exitInput, "")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errInterrupted)
	invokeWith(ctx, strings.NewReader(""), "bench", demoModel).fails(t, exitInterrupted, "interrupted")
}
