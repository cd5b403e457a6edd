package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats"
)

// evil is what a stranger may write wherever a name is expected: it sets the title of a
// terminal, clears it, turns the direction of what follows and feigns a line of ours.
const evil = "\x1b]0;owned\x07\u009b2J\u202e\nerror: fine"

// harmless fails where a terminal would obey what a command printed.
func harmless(t *testing.T, what string, r result) {
	t.Helper()
	if strings.HasSuffix(what, " run") {
		r.out = "" // what a model generates is its own, and this is no terminal
	}
	for name, text := range map[string]string{"stdout": r.out, "stderr": r.err} {
		if strings.ContainsFunc(text, func(c rune) bool { return formats.Controls(c) && c != '\n' && c != '\t' }) {
			t.Errorf("%s: %s holds control characters: %.300q", what, name, text)
		}
		if strings.Contains(text, "\nerror: fine") {
			t.Errorf("%s: %s holds a line that we did not write: %.300q", what, name, text)
		}
		if len(text) > 16<<10 && !strings.HasPrefix(text, "{") { // JSON says all
			t.Errorf("%s: %s has %d bytes", what, name, len(text))
		}
	}
}

// change rewrites keys of a JSON file.
func change(t *testing.T, path string, keys map[string]any) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]any
	decode(t, string(raw), &all)
	for k, v := range keys {
		all[k] = v
	}
	if raw, err = json.Marshal(all); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, raw, 0o666); err != nil {
		t.Fatal(err)
	}
}

// Nothing that a file says reaches the terminal as a command to it, and nothing of a
// megabyte makes a message of a megabyte.
func TestForeignStrings(t *testing.T) {
	long := evil + strings.Repeat("x", 1<<20)
	for name, keys := range map[string]map[string]any{
		"model_type": {"model_type": long}, "dtype": {"torch_dtype": long, "dtype": long}, "activation": {"hidden_act": long},
		"rope": {"rope_scaling": map[string]any{"rope_type": long, "type": long}}, "quantization": {"quantization_config": map[string]any{"quant_method": long}},
	} {
		dir := copyDir(t, filepath.Join(micro, "llama-2"))
		change(t, filepath.Join(dir, "config.json"), keys)
		for _, line := range [][]string{{"inspect", dir}, {"inspect", dir, "--json"}, {"convert", dir, "-o", filepath.Join(t.TempDir(), "x.nstf")}, {"run", dir, "-p", "x", "--max-tokens", "1", "--greedy"}} {
			harmless(t, name+" "+line[0], invoke(line...))
		}
	}
	dir := copyDir(t, filepath.Join(micro, "llama-headdim"))
	index := filepath.Join(dir, "model.safetensors.index.json")
	raw, err := os.ReadFile(index)
	if err != nil {
		t.Fatal(err)
	}
	quoted, _ := json.Marshal(evil + strings.Repeat("y", 300) + ".safetensors")
	raw = bytes.ReplaceAll(raw, []byte(`"model-00002-of-00004.safetensors"`), quoted)
	if err := os.WriteFile(index, raw, 0o666); err != nil {
		t.Fatal(err)
	}
	harmless(t, "a shard's name", invoke("inspect", dir))
	missing := filepath.Join(t.TempDir(), evil)
	for _, line := range [][]string{{"inspect", missing}, {"verify", missing}, {"run", missing, "-p", "x"}, {evil}, {"run", "--" + evil}, {"quantize", "x", "-o", "y", "--scheme", evil}} {
		harmless(t, line[0]+" of a path", invoke(line...))
	}
}

// An error that was joined of several says each on a line of its own, and a line that is
// not the first of one is set off.
func TestErrorLines(t *testing.T) {
	var out bytes.Buffer
	a := &app{err: &out}
	a.printError(formats.Errorf("f", "", "%s", "a\nerror: b"))
	if got := out.String(); got != "error: f: a\\nerror: b\n" {
		t.Errorf("%q", got)
	}
}

// Text of a model acts on a terminal only where that is asked for.
func TestEmit(t *testing.T) {
	const text = "\x1b[31mred\n\ttab ü \u202e"
	for _, c := range []struct {
		terminal, raw bool
		want          string
	}{{false, false, text}, {true, true, text}, {true, false, "\\x1b[31mred\n\ttab ü \\u202e"}} {
		var out bytes.Buffer
		a := &app{out: &out, outTerminal: c.terminal}
		if err := a.emit(c.raw)(text); err != nil || out.String() != c.want {
			t.Errorf("terminal %v, raw %v: %q, %v", c.terminal, c.raw, out.String(), err)
		}
	}
	invokeWith(context.Background(), strings.NewReader("x"), "tokenize", demoModel, "--raw").fails(t, exitUsage, "--decode")
}
