package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats/inspect"
	"github.com/nstf/nstf/formats/stats"
)

func report(t *testing.T, path string) inspect.Report {
	t.Helper()
	var r inspect.Report
	decode(t, must(t, "inspect", path, "--json"), &r)
	return r
}

// A model is the same in every container.
func TestInspectContainers(t *testing.T) {
	want := report(t, demoModel)
	if want.Architecture != "llama" || !want.Known || want.Params != 5770496 || want.BPW != 16 || want.Shape.Layers != 6 || !want.Shape.Tied {
		t.Errorf("%+v", want)
	}
	pkg := packaged(t, demoModel)
	got := report(t, pkg)
	if got.Kind != "nstf" || got.Params != want.Params || *got.Shape != *want.Shape || len(got.Tensors) != len(want.Tensors) {
		t.Errorf("the package: %+v", got)
	}
	p := got.Provenance
	if p == nil || len(p.Sources) != 1 || p.Sources[0].Name != "model.safetensors" || p.Sources[0].Bytes != 11547040 || len(p.Sources[0].Hash) != 64 || !strings.HasPrefix(p.Tool, "nstf ") {
		t.Errorf("provenance %+v", p)
	}
	var sum int64
	for _, role := range got.Roles {
		sum += role.Bytes
	}
	if sum != got.Bytes || got.Roles[0].Name != "embed" || len(got.Schemes) != 1 {
		t.Errorf("roles hold %d of %d bytes: %+v", sum, got.Bytes, got.Roles)
	}
	fits(t, must(t, "inspect", pkg, "--tensors"))
}

// What no graph is known for is shown as it is stored.
func TestInspectUnknown(t *testing.T) {
	dir := copyDir(t, filepath.Join(micro, "llama-2"))
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(`{"model_type": "nosuch"}`), 0o666); err != nil {
		t.Fatal(err)
	}
	r := report(t, dir)
	if r.Known || r.Params == 0 || !strings.Contains(r.Note, "nosuch") || r.Roles[0].Name != "other" {
		t.Errorf("%+v", r)
	}
	fits(t, must(t, "inspect", dir, "--tensors"))
	alone := filepath.Join(t.TempDir(), "adapter.safetensors")
	if err := os.Rename(filepath.Join(dir, "model.safetensors"), alone); err != nil {
		t.Fatal(err)
	}
	if a := report(t, alone); a.Known || a.Params != r.Params || a.Note == "" {
		t.Errorf("%+v", a)
	}
	if v := report(t, vocabularyFile(t, "gpt-2")); v.Kind != "gguf" || v.Params != 0 || !strings.Contains(v.Note, "vocabulary") {
		t.Errorf("%+v", v)
	}
	if split := report(t, "../../testdata/gguf/split-00002-of-00003.gguf"); split.Kind != "gguf" || split.Params == 0 {
		t.Errorf("%+v", split)
	}
}

func TestInspectFailures(t *testing.T) {
	invoke("inspect", "/nosuch").fails(t, exitInput, "nosuch")
	invoke("inspect", demoText).fails(t, exitInput, "not a model")
	invoke("inspect", t.TempDir()).fails(t, exitInput, "")
	cut := filepath.Join(t.TempDir(), "cut.nstf")
	p, err := os.ReadFile(packaged(t, filepath.Join(micro, "llama-2")))
	if err != nil {
		t.Fatal(err)
	}
	for size := 0; size < len(p); size += 4096 {
		if err := os.WriteFile(cut, p[:size], 0o666); err != nil {
			t.Fatal(err)
		}
		invoke("inspect", cut).fails(t, exitInput, "cut.nstf")
	}
}

// What a package says of its experts is summed up by how much the most used ones get.
func TestInspectUses(t *testing.T) {
	var out strings.Builder
	u := &stats.Uses{Text: "wiki.txt", Blocks: []stats.Use{{Block: 1, Chosen: []int64{1, 1, 7, 1, 0, 0, 0, 0, 0, 0}}, {Block: 3, Chosen: []int64{5, 5}}}}
	(&app{out: &out}).printUses(u)
	if want := "use of experts: of 2 blocks, counted on wiki.txt; the most used tenth of a block's gets 50 to 70 % of choices\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}
