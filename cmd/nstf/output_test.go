package main

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/formats/export"
	"github.com/nstf/nstf/formats/gguf"
)

// snapshot reads every file below a folder.
func snapshot(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		out[path] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// inputs makes one of everything that commands read, in a folder of its own.
func inputs(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := copyFiles(at("hf"), filepath.Join(micro, "llama-headdim")); err != nil {
		t.Fatal(err)
	}
	must(t, "convert", at("hf"), "-o", at("m.nstf"))
	must(t, "export", at("hf"), "-o", at("m.gguf"))
	text, err := os.ReadFile(demoText)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"ids.json": []byte("[1,2,3]"), "text.txt": text} {
		if err := os.WriteFile(at(name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	must(t, "eval", at("m.nstf"), "--text", at("text.txt"), "--ctx", "8", "--max-tokens", "32", "--save-ref", at("m.ref"))
	must(t, "calibrate", at("m.nstf"), "--calib", at("text.txt"), "--samples", "8", "--ctx", "16", "-o", at("m.nstats"))
	must(t, "plan", at("m.nstf"), "--stats", at("m.nstats"), "--bpw", "13", "-o", at("plan.json"))
	must(t, "quantize", at("m.nstf"), "--stats", at("m.nstats"), "--calib", at("text.txt"), "--samples", "8", "--ctx", "16", "--bpw", "13", "-o", at("q.nstf"))
	return dir
}

// No command writes over a file that it reads, by whatever name: exit code 2, and every
// file is as it was.
func TestNoOutputIsAnInput(t *testing.T) {
	dir := inputs(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	text := []string{"--text", at("text.txt"), "--ctx", "8", "--max-tokens", "32"}
	calib := []string{"--calib", at("text.txt"), "--samples", "8", "--ctx", "16"}
	cases := []struct {
		args []string // the output comes last
		over []string // what it must not be
	}{
		{[]string{"convert", at("m.nstf"), "-o"}, []string{"m.nstf"}},
		{[]string{"convert", at("m.gguf"), "--force", "-o"}, []string{"m.gguf"}},
		{[]string{"convert", at("hf"), "--force", "-o"}, []string{"hf/config.json", "hf/tokenizer.json", "hf/model-00001-of-00004.safetensors", "hf/model.safetensors.index.json"}},
		{[]string{"quantize", at("m.nstf"), "--scheme", "q8_0", "-o"}, []string{"m.nstf"}},
		{append([]string{"quantize", at("m.nstf"), "--stats", at("m.nstats"), "--bpw", "13", "--force"}, append(calib, "-o")...), []string{"m.nstf", "m.nstats", "text.txt"}},
		{append([]string{"quantize", at("q.nstf"), "--source", at("hf"), "--plan", at("plan.json"), "--force"}, append(calib, "-o")...), []string{"q.nstf", "plan.json", "hf/tokenizer.json"}},
		{append([]string{"calibrate", at("m.nstf"), "--merge", at("m.nstats"), "--force"}, append(calib, "-o")...), []string{"m.nstf", "m.nstats", "text.txt"}},
		{[]string{"plan", at("m.nstf"), "--stats", at("m.nstats"), "--bpw", "13", "--force", "-o"}, []string{"m.nstf", "m.nstats"}},
		{[]string{"export", at("m.gguf"), "-o"}, []string{"m.gguf"}},
		{[]string{"export", at("m.gguf"), "--dtype", "bf16", "-o"}, []string{"m.gguf"}},
		{[]string{"report", at("q.nstf"), "--force", "-o"}, []string{"q.nstf"}},
		{append(append([]string{"eval", at("m.nstf"), "--ref", at("m.gguf"), "--force"}, text...), "--save-ref"), []string{"m.nstf", "m.gguf", "text.txt"}},
		{append(append([]string{"eval", at("m.nstf"), "--ref", at("m.ref"), "--force"}, text...), "--save-ref"), []string{"m.ref"}},
		{[]string{"eval", at("m.nstf"), "--token-ids", at("ids.json"), "--force", "--dump-logits"}, []string{"m.nstf", "ids.json"}},
	}
	before := snapshot(t, dir)
	for _, c := range cases {
		for _, name := range c.over {
			for _, way := range []string{"", "symbolic", "hard", "relative"} {
				out := otherName(t, at(name), way)
				r := invoke(append(append([]string{}, c.args...), out)...)
				if r.code != exitUsage || !strings.Contains(r.err, "error: ") {
					t.Errorf("nstf %s %s (%s link of %s): exit %d, want %d\n%s", strings.Join(c.args, " "), out, way, name, r.code, exitUsage, r.err)
				}
				if after := snapshot(t, dir); !same(before, after) {
					t.Fatalf("nstf %s %s (%s link of %s) changed a file", strings.Join(c.args, " "), out, way, name)
				}
			}
		}
	}
}

// What is replaced is told, and that there is nothing to go on with.
func TestReplacedIsTold(t *testing.T) {
	out := filepath.Join(t.TempDir(), "x.nstf")
	args := []string{"quantize", filepath.Join(micro, "llama-2"), "-o", out, "--scheme", "q8_0"}
	if r := invoke(args...); r.code != exitFine || strings.Contains(r.err, "replaced") || strings.Contains(r.err, "--resume") {
		t.Errorf("exit %d: %s", r.code, r.err)
	}
	info, err := os.Stat(out)
	if err != nil {
		t.Fatal(err)
	}
	r := invoke(append(args, "--resume")...)
	for _, want := range []string{"replaced " + out + ", which was " + size(info.Size()) + " of 20", "there is no " + out + ".work"} {
		if r.code != exitFine || !strings.Contains(r.err, want) {
			t.Errorf("exit %d, without %q: %s", r.code, want, r.err)
		}
	}
}

func same(a, b map[string]string) bool {
	for k, v := range a {
		if b[k] != v {
			return false
		}
	}
	return len(a) == len(b)
}

// otherName returns another name of a file, with its ending.
func otherName(t *testing.T, path, way string) string {
	t.Helper()
	link := filepath.Join(t.TempDir(), "link"+filepath.Ext(path))
	var err error
	switch way {
	case "":
		return path
	case "relative":
		wd, err := os.Getwd()
		if err != nil {
			t.Fatal(err)
		}
		rel, err := filepath.Rel(wd, path)
		if err != nil {
			t.Fatal(err)
		}
		return rel
	case "symbolic":
		err = os.Symlink(path, link)
	case "hard":
		err = os.Link(path, link)
	}
	if err != nil && runtime.GOOS == "windows" {
		t.Skipf("links need a privilege: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return link
}

// The shards of a split GGUF that is opened by one of them are inputs all the same.
func TestNoOutputIsAnInputsShard(t *testing.T) {
	dir := splitGGUF(t, filepath.Join(micro, "llama-2"))
	first, second := gguf.SplitName(filepath.Join(dir, "m"), 0, 2), gguf.SplitName(filepath.Join(dir, "m"), 1, 2)
	must(t, "inspect", first)
	before := snapshot(t, dir)
	invoke("export", first, "-o", second).fails(t, exitUsage, "is read to make it")
	if !same(before, snapshot(t, dir)) {
		t.Fatal("a shard was written over")
	}
}

// splitGGUF writes a model as a GGUF in two parts, and returns their folder.
func splitGGUF(t *testing.T, src string) string {
	t.Helper()
	m, err := checkpoint.Open(src)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	x, err := export.GGUF(m, nil)
	if err != nil {
		t.Fatal(err)
	}
	dir, half := t.TempDir(), len(x.Tensors)/2
	for no, tensors := range [][]formats.Tensor{x.Tensors[:half], x.Tensors[half:]} {
		keys := []gguf.KV{{Key: "split.no", Value: uint16(no)}, {Key: "split.count", Value: uint16(2)}, {Key: "split.tensors.count", Value: int32(len(x.Tensors))}}
		if no == 0 {
			keys = append(keys, x.Keys...)
		}
		w, err := gguf.NewWriter(keys, tensors)
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if _, err := w.WriteTo(&b); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(gguf.SplitName(filepath.Join(dir, "m"), no, 2), b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// A file of another kind is replaced only with --force, one of the same kind without.
func TestOtherKindsAreKept(t *testing.T) {
	src := filepath.Join(micro, "llama-2")
	pkg := packaged(t, src)
	cases := map[string][]string{
		"convert":  {"convert", src, "-o"},
		"quantize": {"quantize", src, "--scheme", "q8_0", "-o"},
		"export":   {"export", src, "-o"},
		"plan":     {"plan", src, "--bpw", "13", "-o"},
		"save-ref": {"eval", pkg, "--text", demoText, "--ctx", "8", "--max-tokens", "16", "--save-ref"},
	}
	for name, args := range cases {
		out := filepath.Join(t.TempDir(), "thesis.txt")
		if name == "export" {
			out = strings.TrimSuffix(out, ".txt") + ".gguf"
		}
		mine := []byte("three years of work")
		if err := os.WriteFile(out, mine, 0o644); err != nil {
			t.Fatal(err)
		}
		r := invoke(append(args, out)...)
		r.fails(t, exitUsage, "is not a")
		if !strings.Contains(r.err, "--force") {
			t.Errorf("%s: no hint at --force:\n%s", name, r.err)
		}
		if data, err := os.ReadFile(out); err != nil || !bytes.Equal(data, mine) {
			t.Errorf("%s replaced a text: %v", name, err)
		}
		must(t, append(args, out, "--force")...)
		must(t, append(args, out)...) // of the same kind by now
	}
}

func TestOutputsNamedAfterNothing(t *testing.T) {
	src, err := filepath.Abs(filepath.Join(micro, "llama-2"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	t.Chdir(dir)
	for _, c := range []struct {
		args []string
		hint string
	}{
		{[]string{"convert", src, "-o", "-"}, "./-"},
		{[]string{"export", src, "-o", "-"}, "./-"},
		{[]string{"plan", src, "--bpw", "13", "-o", "-"}, "./-"},
		{[]string{"convert", src, "-o", "x.gguf"}, "nstf export"},
		{[]string{"quantize", src, "--scheme", "q8_0", "-o", "x.GGUF"}, "nstf export"},
		{[]string{"convert", src, "-o", "x.safetensors"}, "nstf export"},
		{[]string{"convert", src, "-o", "x/"}, "nstf export"},
	} {
		r := invoke(c.args...)
		r.fails(t, exitUsage, "")
		if !strings.Contains(r.err, c.hint) {
			t.Errorf("nstf %v: no hint at %q:\n%s", c.args, c.hint, r.err)
		}
	}
	empty(t, dir)
}
