package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats/attention"
	"github.com/nstf/nstf/formats/ledger"
	"github.com/nstf/nstf/runtime/place"
)

// reaching is a small model whose context is long.
func reaching(t *testing.T) string {
	t.Helper()
	dir := copyDir(t, filepath.Join(micro, "llama-k256"))
	file := filepath.Join(dir, "config.json")
	config, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	longer := bytes.Replace(config, []byte(`"max_position_embeddings": 256`), []byte(`"max_position_embeddings": 4096`), 1)
	if bytes.Equal(longer, config) {
		t.Fatal("no context of 256 in", file)
	}
	if err := os.WriteFile(file, longer, 0o666); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Bits of keys and values are chosen by what blocks lose, go into a package, are shown, and
// are how it is run where flags do not say otherwise.
func TestKeptBits(t *testing.T) {
	dir, model := t.TempDir(), reaching(t)
	file, packed := filepath.Join(dir, "k.json"), filepath.Join(dir, "m.nstf")
	measure := []string{"calibrate", model, "--calib", demoText, "--ctx", "1024", "--samples", "2"}
	out := must(t, append(measure, "--kv-bpw", "5", "-o", file)...)
	for _, want := range []string{"1 to fit and 1 held out", "bits of a number", "KL from f16", "KL q3"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
	k, err := attention.ReadKept(file)
	if err != nil {
		t.Fatal(err)
	}
	if m := k.Measured; !(m.Bits > 0 && m.Bits <= 5) || !(m.KLD > 0) {
		t.Errorf("%+v", m)
	}
	for _, b := range k.Blocks {
		for f := 1; f < len(b.KLD); f++ {
			if !(b.KLD[f] > 0) {
				t.Errorf("block %d loses %g in %s", b.Block, b.KLD[f], k.Formats[f])
			}
		}
		if b.KLD[4] < b.KLD[1] {
			t.Errorf("block %d loses less in q3 than in q8: %v", b.Block, b.KLD)
		}
	}
	must(t, "convert", model, "--kv", file, "-o", packed)
	if out := must(t, "inspect", packed); !strings.Contains(out, "nstf/kv.json") || !strings.Contains(out, "KL from f16") {
		t.Errorf("inspect says nothing of the choice:\n%s", out)
	}
	text := []string{"--text", demoText, "--ctx", "1024", "--max-tokens", "1024", "--device", "cpu", "--json"}
	said := func(args ...string) (value string, note string) {
		r := invoke(append([]string{"eval"}, append(text, args...)...)...)
		if r.code != 0 {
			t.Fatalf("%v: exit %d, %s", args, r.code, r.err)
		}
		var v struct {
			NLL struct{ Value json.Number }
		}
		if err := json.Unmarshal([]byte(r.out), &v); err != nil {
			t.Fatal(err)
		}
		return v.NLL.Value.String(), r.err
	}
	own, note := said(packed)
	if !strings.Contains(note, "as the package says: ") {
		t.Errorf("said %q", note)
	}
	if same, note := said(packed, "--kv", k.List()); same != own || strings.Contains(note, "package says") {
		t.Errorf("%s as the package says, %s by --kv %s (%q)", own, same, k.List(), note)
	}
	if other, _ := said(packed, "--kv", "f16"); other == own {
		t.Errorf("f16 gives %s too", other)
	}
	room := func(args ...string) int64 {
		var l place.Layout
		if err := json.Unmarshal([]byte(must(t, append([]string{"place", packed, "--device", "cpu", "--ctx", "1024", "--json"}, args...)...)), &l); err != nil || len(l.Ranges) != 1 {
			t.Fatalf("%+v (%v)", l, err)
		}
		return l.Ranges[0].Memory
	}
	if own := room(); own != room("--kv", k.List()) || own >= room("--kv", "f16") {
		t.Errorf("%d bytes as the package says, %d by --kv, %d in f16", own, room("--kv", k.List()), room("--kv", "f16"))
	}

	table := must(t, "plan", packed, "--bpw", "6", "--schemes", "q4_0,q8_0", "--layers")
	for _, want := range []string{"fewer bits", "others", k.Chosen[0] + ", ", " B, "} {
		if !strings.Contains(table, want) {
			t.Errorf("no %q in:\n%s", want, table)
		}
	}
	var layered struct {
		Layers []ledger.Layer
	}
	if err := json.Unmarshal([]byte(must(t, "plan", model, "--bpw", "6", "--schemes", "q4_0,q8_0", "--layers", "--kv", file, "--json")), &layered); err != nil || len(layered.Layers) != len(k.Chosen)+1 {
		t.Fatalf("%d layers (%v)", len(layered.Layers), err)
	}
	for i, l := range layered.Layers[:len(k.Chosen)] {
		if b := l.Bits; l.Block != int64(i) || !(l.Bytes > 0 && l.Loss > 0) || b == nil || b.Bytes <= 0 || b.Bytes >= l.Bytes || !(b.Loss > 0) || l.KV.Format != k.Chosen[i] || l.KV.KLD != k.Blocks[i].KLD[slices.Index(k.Formats, k.Chosen[i])] || l.Pages != nil {
			t.Errorf("layer %d: %+v, %+v, %+v", i, l, l.Bits, l.KV)
		}
	}

	loose := filepath.Join(dir, "loose.json")
	must(t, append(measure, "--kv-kld", "100", "-o", loose)...)
	if k, err = attention.ReadKept(loose); err != nil || !(k.Measured.Bits < 4) {
		t.Errorf("any divergence: %+v (%v)", k.Measured, err)
	}
	damaged := filepath.Join(dir, "d.json")
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(damaged, data[:len(data)/2], 0o666); err != nil {
		t.Fatal(err)
	}
	no := filepath.Join(dir, "no.json")
	for _, c := range []struct {
		code int
		says string
		args []string
	}{
		{exitUsage, "--layers", []string{"plan", model, "--bpw", "4", "--kv", file}},
		{exitInput, "d.json", []string{"plan", model, "--bpw", "4", "--layers", "--kv", damaged}},
		{exitUsage, "one choice", append(measure, "--kv-bpw", "4", "--kv-kld", "1", "-o", no)},
		{exitUsage, "--kv-bpw", append(measure, "--kv-bpw", "-1", "-o", no)},
		{exitUsage, "on the processor", append(measure, "--kv-bpw", "4", "--attention", "-o", no)},
		{exitUnsupported, "the fewest", append(measure, "--kv-bpw", "2", "-o", no)},
		{exitUsage, "longer windows", []string{"calibrate", model, "--calib", demoText, "--ctx", "512", "--samples", "2", "--kv-bpw", "4", "-o", no}},
		{exitInput, "d.json", []string{"convert", model, "--kv", damaged, "-o", filepath.Join(dir, "no.nstf")}},
		{exitInput, "blocks are named", []string{"convert", filepath.Join(micro, "gemma3"), "--kv", file, "-o", filepath.Join(dir, "no.nstf")}},
	} {
		r := invoke(c.args...)
		if r.code != c.code || !strings.Contains(r.err, c.says) {
			t.Errorf("%v: exit %d, %s", c.args, r.code, r.err)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "no.*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
