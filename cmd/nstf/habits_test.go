package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats/checkpoint"
)

// Flags of llama.cpp's tools are taken where they mean the same.
func TestHabits(t *testing.T) {
	root := (&app{}).root()
	for line, want := range map[string]string{
		"run -m x -p y":                                        "run x -p y",
		"run -p -m -m x":                                       "run x -p -m",
		"run x -p y -ngl 0 -cnv -sys z":                        "run x -p y --device cpu --chat --system=z",
		"run x -p y -s -1 --repeat-last-n -1 -no-cnv":          "run x -p y --repetition-window=0",
		"run x -p y -s 4 --repeat-last-n=64 --gpu-layers=0":    "run x -p y -s 4 --repetition-window=64 --device cpu",
		"run x -- -m":                                          "run x -- -m",
		"eval -m x -f y":                                       "eval x -f y",
		"quantize -m x":                                        "quantize x",
		"diff -m x -m y":                                       "diff x y",
		"serve -m x -ngl 99 -c 64":                             "serve x -c 64",
		"verify -t 4 x":                                        "verify x",
		"convert -m x -t 4 -o y":                               "convert x -o y",
		"plan -m x -t 4":                                       "plan x -t 4",
		"tokenize -m x -p y --log-disable --stdin --ids":       "tokenize x -p y --ids",
		"run x -p y -ngl 99 -fa on -b 512 -ub=64 --mlock":      "run x -p y",
		"run x -fa -p --mlock --jinja":                         "run x -p --mlock",
		"bench -m x -fa 1 -b 2048 -ub 512 -mmp 0 -ngl 99 -r 3": "bench x -r 3",
		"bench x --no-warmup --prio 2 -p 64 -n 8":              "bench x -p 64 -n 8",
		"run x -n 5 -c 64 -t 2 --temp 0 --repeat-penalty 1.1":  "run x -n 5 -c 64 -t 2 --temp 0 --repeat-penalty 1.1",
	} {
		got, _, err := translate(root, strings.Fields(line))
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%s: %q, %v, want %q", line, strings.Join(got, " "), err, want)
		}
	}
	ours := must(t, "run", demoModel, "-p", "Once upon", "--max-tokens", "6", "--greedy", "--ctx", "64", "--threads", "1", "--repetition-penalty", "1.2", "--repetition-window", "8", "--top-k", "0", "--min-p", "0")
	theirs := must(t, "run", "-m", demoModel, "-p", "Once upon", "-n", "6", "--temp", "0", "-c", "64", "-t", "1", "--repeat-penalty", "1.2", "--repeat-last-n", "8", "--top-k", "0", "--min-p", "0", "-ngl", "0", "-no-cnv")
	if ours != theirs {
		t.Errorf("%q by our flags, %q by llama.cpp's", ours, theirs)
	}
}

// Flags that change nothing are left out, with one line for all of them.
func TestIdleFlags(t *testing.T) {
	plain := invoke("run", demoModel, "-p", "Once upon", "-n", "4", "--greedy", "--device", "cpu")
	r := invoke("run", demoModel, "-p", "Once upon", "-n", "4", "--greedy", "--device", "cpu", "-fa", "on", "-b", "512", "--mlock", "--no-warmup", "--color", "--jinja")
	if want := "warning: left out, for they change nothing here: -fa on, -b 512, --mlock, --no-warmup, --color, --jinja\n"; r.code != exitFine || r.out != plain.out || !strings.Contains(r.err, want) {
		t.Errorf("exit %d, %q: %s", r.code, r.out, r.err)
	}
}

// What is not known is answered with what may have been meant.
func TestDidYouMean(t *testing.T) {
	for line, want := range map[string]string{
		"quantze":                              "did you mean nstf quantize?",
		"Convert x":                            "did you mean nstf convert?",
		"eva":                                  "did you mean nstf eval?",
		"pull llama":                           "nstf pull ORG/NAME",
		"download x":                           "nstf pull ORG/NAME",
		"llama-cli -m x -p y":                  "nstf run MODEL --chat",
		"run x --promt y":                      "did you mean --prompt?",
		"run x -p y -ngl 99 --device cpu":      "--device",
		"inspect x --n-gpu-layers 99":          "--device",
		"bench x -o md":                        "--json prints JSON",
		"bench x -pg 512,128":                  "--prompt N and --gen N",
		"run x Once":                           "give a text by -p TEXT",
		"quantize x Q4_K_M":                    "nstf quantize x -o OUT.nstf --scheme q4_k",
		"quantize x q8_0":                      "nstf quantize x -o OUT.nstf --scheme q8_0",
		"quantize x -o y.nstf":                 "--scheme q4_k rounds within seconds",
		"convert x":                            "name the file to write by -o FILE",
		"eval x book.txt":                      "nstf eval x --text book.txt",
		"verify x -fa on":                      "leave it out",
		"run x -p y -e":                        "$'one",
		"run x -p y --escape":                  "-f FILE",
		"run x -p y -st":                       "--chat -p TEXT answers once",
		"run x -p y --model-draft z":           "no draft models",
		"run x -p y -md z":                     "no draft models",
		"run x -p y --keep 4":                  "--ctx-shift keeps",
		"run x -p y -np 2":                     "one text at a time",
		"run x -p y -cmoe":                     "--device",
		"run x -p y --mirostat 2":              "not implemented",
		"run x -p y --repeat-last-n 0":         "--repetition-penalty 1",
		"run -hff x.gguf":                      "ORG/NAME:FILE.gguf",
		"run x -p y --max-model-len 64":        "--ctx N",
		"run x -p y --tensor-parallel-size 2":  "--device",
		"run x --list-devices":                 "nstf doctor",
		"serve x --port 80":                    "--listen ADDRESS:PORT",
		"serve x --host 0.0.0.0":               "--listen ADDRESS:PORT",
		"serve x --api-key y":                  "--keys FILE",
		"serve x -np 4":                        "--parallel N",
		"serve x --served-model-name y":        "--alias NAME",
		"run":                                  "usage: nstf run MODEL",
		"completion foo":                       "nstf completion takes one of bash, fish, powershell, zsh",
		"help quantze":                         "did you mean nstf quantize?",
		"tokenize x Once":                      "give it by -p TEXT",
		"tokenize x -p y -f z":                 "--help",
		"tokenize x -p y --no-bos":             "--no-special",
		"llama-tokenize -m x -p y":             "nstf tokenize MODEL -p TEXT",
		"config set threads 4":                 "write the line threads = 4 into the file that NSTF_CONFIG names, or set NSTF_THREADS=4",
		"config set NSTF_MAX_TOKENS=5":         "max-tokens = 5",
		"config get thread":                    "did you mean threads?",
		"inspect a b":                          "usage: nstf inspect MODEL",
		"quantize a.gguf b.gguf Q4_K_M":        "nstf quantize a.gguf -o b.nstf --scheme q4_k",
		"quantize a -o b.nstf --scheme Q4_K_M": "--scheme q4_k",
		"quantize a -o b.nstf --scheme q4k":    "did you mean q4_k?",
		"quantize a -o b.nstf --scheme tcq":    "did you mean tcq2?",
		"quantize a -o b.nstf --bpw 3 --schemes q4_0,iq2": "tcq2, tcq3, tcq4, tcq5, tcq6",
		"quantize a -o b.nstf --bpw 3 --imatrix x":        "--stats",
		"plan a --bpw 3 --schemes Q3_K_M":                 "mixture",
		"convert a b.nstf":                                "nstf convert a -o b.nstf",
		"export a b.gguf":                                 "nstf export a -o b.gguf",
		"quantize a b.nstf --scheme q4_k":                 "nstf quantize a -o b.nstf",
		"quantize a -o b --bpw three":                     `--bpw "three" is not a number`,
		"run a -p x -n many":                              `--max-tokens "many" is not a whole number`,
		"run a -p x --seed -4":                            `--seed "-4" is not a whole number of 0 or more`,
		"run a -p x -t 99999999999999999999":              `--threads "99999999999999999999" is out of range`,
	} {
		r := invoke(strings.Fields(line)...)
		r.fails(t, exitUsage, want)
		if strings.Contains(r.err, "strconv") {
			t.Errorf("%s: %s", line, r.err)
		}
	}
	for _, s := range []string{"zzzzzz", "", strings.Repeat("q", 1<<20)} {
		if got := nearest(s, []string{"quantize", "run"}); got != "" {
			t.Errorf("%.20q: %q", s, got)
		}
	}
}

// A scheme is known in any case of letters.
func TestSchemeInAnyCase(t *testing.T) {
	dir := t.TempDir()
	for name, scheme := range map[string]string{"a.nstf": "Q4_K", "b.nstf": "q4_k"} {
		must(t, "quantize", demoModel, "-o", filepath.Join(dir, name), "--scheme", scheme)
	}
	a, err := os.ReadFile(filepath.Join(dir, "a.nstf"))
	if err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "b.nstf")); err != nil || string(a) != string(b) {
		t.Errorf("other bytes by Q4_K than by q4_k, %v", err)
	}
	if help := must(t, "quantize", "--help"); !strings.Contains(help, "tcq2,") || !strings.Contains(help, "tcq6.") {
		t.Error("--help does not list the trellis codes")
	}
}

func TestVersionFlag(t *testing.T) {
	if out := must(t, "--version"); !strings.HasPrefix(out, "nstf version ") {
		t.Errorf("%q", out)
	}
}

// invokeIn runs a command line in an environment.
func invokeIn(env map[string]string, config string, args ...string) result {
	var out, errs strings.Builder
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	a := &app{in: strings.NewReader(""), out: &out, err: &errs, interrupts: &interrupts{cancel: cancel},
		env: environment{get: func(name string) string { return env[name] }, config: config}}
	code := a.run(ctx, args)
	return result{out.String(), errs.String(), code}
}

// A command line comes before the environment, which comes before the file.
func TestSettings(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	write("# mine\nmax-tokens = 3 # few\n\ntemperature=0\nthreads = 1\n")
	tokens := func(env map[string]string, args ...string) string {
		t.Helper()
		r := invokeIn(env, file, append([]string{"run", demoModel, "-p", "Once upon a time", "--stats"}, args...)...)
		if r.code != exitFine {
			t.Fatalf("exit %d: %s", r.code, r.err)
		}
		for line := range strings.Lines(r.err) {
			if f := strings.Fields(line); len(f) > 1 && f[0] == "decode" {
				return f[1]
			}
		}
		return ""
	}
	if n := tokens(nil); n != "3" {
		t.Errorf("the file's 3 tokens are %s", n)
	}
	if n := tokens(map[string]string{"NSTF_MAX_TOKENS": "4"}); n != "4" {
		t.Errorf("the environment's 4 tokens are %s", n)
	}
	if n := tokens(map[string]string{"NSTF_MAX_TOKENS": "4"}, "-n", "2"); n != "2" {
		t.Errorf("the command line's 2 tokens are %s", n)
	}
	var r configReport
	decode(t, invokeIn(map[string]string{"NSTF_DEVICE": "cpu"}, file, "config", "--json").out, &r)
	if i := slices.IndexFunc(r.Settings, func(s configEntry) bool { return s.Name == "device" }); !r.Exists || r.Settings[i].Value != "cpu" || r.Settings[i].From != "NSTF_DEVICE" {
		t.Errorf("%+v", r)
	}
	fits(t, invokeIn(nil, "x", "config").out)
	invokeIn(map[string]string{"NSTF_THREADS": "many"}, "", "run", demoModel, "-p", "x").fails(t, exitUsage, "NSTF_THREADS sets --threads")
	invokeIn(map[string]string{"NSTF_DEVICE": "tpu"}, "", "run", demoModel, "-p", "x").fails(t, exitUsage, "tpu")
	// What is a wish of a setting is no contradiction.
	if r := invokeIn(map[string]string{"NSTF_DEVICE": "cuda"}, "", "quantize", demoModel, "-o", filepath.Join(t.TempDir(), "x.nstf"), "--scheme", "q4_0"); r.code != exitFine {
		t.Errorf("exit %d: %s", r.code, r.err)
	}
	for text, want := range map[string]string{"colour = red": `"colour"`, "threads": "NAME = VALUE", "threads =": "NAME = VALUE"} {
		write("\n" + text)
		r := invokeIn(nil, file, "run", demoModel, "-p", "x")
		r.fails(t, exitInput, want)
		r.fails(t, exitInput, "line 2")
	}
	invokeIn(nil, t.TempDir(), "run", demoModel, "-p", "x").fails(t, exitInput, "not a regular file")
}

// Where nobody bounds a continuation something does, and says so.
func TestUsualBound(t *testing.T) {
	dir := copyDir(t, demoModel)
	change(t, filepath.Join(dir, "generation_config.json"), map[string]any{"max_new_tokens": 7})
	r := invoke("run", dir, "-p", "Once", "--greedy")
	if r.code != exitFine || !strings.Contains(r.err, "stopped at 7 tokens, max_new_tokens") {
		t.Errorf("exit %d: %s", r.code, r.err)
	}
	r = invoke("run", dir, "-p", "Once", "--greedy", "-n", "3")
	if strings.Contains(r.err, "stopped") {
		t.Errorf("what was asked for is told: %s", r.err)
	}
	// More than the context holds was asked for: the flags contradict each other.
	invoke("run", dir, "-p", "Once", "--greedy", "-n", "100", "-c", "8").fails(t, exitUsage, "8 of 8 positions used")
	invoke("run", dir, "-p", "Once upon a time there was", "-n", "1", "-c", "2").fails(t, exitUsage, "--ctx N")
	r = invoke("run", dir, "-p", "Once", "--greedy", "-n", "-1", "-c", "16")
	if r.code != exitFine || !strings.Contains(r.err, "context of 16 positions is full") {
		t.Errorf("exit %d: %s", r.code, r.err)
	}
	m, err := checkpoint.Open(filepath.Join(micro, "llama-2"))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if n, by := usualBound(m); n != usualTokens || by == "" {
		t.Errorf("%d, %s", n, by)
	}
}

func TestManPages(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "man1")
	must(t, "man", "-o", dir)
	for _, name := range []string{"nstf.1", "nstf-run.1", "nstf-quantize.1", "nstf-config.1"} {
		page, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !strings.Contains(string(page), ".TH \"NSTF") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if out := must(t, "completion", shell); !strings.Contains(out, "nstf") {
			t.Errorf("no completion for %s", shell)
		}
	}
}
