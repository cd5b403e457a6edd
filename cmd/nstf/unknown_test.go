package main

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zeebo/blake3"

	"github.com/nstf/nstf/formats/inspect"
)

// renamed copies a package with text of its header replaced by other text as long, under a
// root hash that fits.
func renamed(t *testing.T, pkg, old, now string) string {
	t.Helper()
	p, err := os.ReadFile(pkg)
	if err != nil {
		t.Fatal(err)
	}
	head := p[64 : 64+binary.LittleEndian.Uint64(p[16:])]
	if len(old) != len(now) || !strings.Contains(string(head), old) {
		t.Fatalf("%q cannot stand for %q in the header", now, old)
	}
	copy(head, strings.Replace(string(head), old, now, 1))
	h := blake3.New()
	h.Write(p[:32])
	h.Write(head)
	h.Sum(p[32:32])
	out := filepath.Join(t.TempDir(), "newer.nstf")
	if err := os.WriteFile(out, p, 0o666); err != nil {
		t.Fatal(err)
	}
	return out
}

// A package of a scheme that a newer program wrote is listed and verified; what has to
// decode it refuses it by the scheme's name.
func TestUnknownScheme(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	must(t, "quantize", filepath.Join(micro, "llama-2"), "--scheme", "q8_0", "-o", at("q.nstf"))
	want := report(t, at("q.nstf"))
	for what, edit := range map[string][2]string{
		`scheme "q9_z"`:   {`"scheme":"q8_0"`, `"scheme":"q9_z"`},
		`form "fluid"`:    {`"form":"dense"`, `"form":"fluid"`},
		`dtype "i9"`:      {`"dtype":"u8"`, `"dtype":"i9"`},
		`encoding "zst9"`: {`"encoding":"zstd"`, `"encoding":"zst9"`},
	} {
		t.Run(what, func(t *testing.T) {
			newer := renamed(t, at("q.nstf"), edit[0], edit[1])
			got := report(t, newer)
			if len(got.Unknown) != 1 || got.Unknown[0] != what || !strings.Contains(got.Note, what) {
				t.Errorf("unknown %q, note %q; want %s", got.Unknown, got.Note, what)
			}
			if !got.Known || got.Params != want.Params || got.Bytes != want.Bytes || len(got.Tensors) != len(want.Tensors) || *got.Shape != *want.Shape || len(got.Files) != len(want.Files) {
				t.Errorf("%+v\nwant the sizes of %+v", got, want)
			}
			if marked := unknownTensors(got); (marked == 1) == strings.HasPrefix(what, "encoding") {
				t.Errorf("%d tensors are said to be unknown", marked)
			}
			fits(t, must(t, "inspect", newer, "--tensors"))
			r := invoke("verify", newer)
			if r.code != exitFine || !strings.Contains(r.err, what) {
				t.Errorf("verify: exit %d, %s", r.code, r.err)
			}
			if !strings.HasPrefix(what, "encoding") {
				must(t, "tokenize", newer)
			}
			invoke("verify", spoilt(t, newer)).fails(t, exitInput, "damaged")
			for _, args := range [][]string{
				{"run", newer, "-p", "x"}, {"convert", newer, "-o", at("out.nstf")},
				{"quantize", newer, "--scheme", "q4_0", "-o", at("out.nstf")}, {"export", newer, "-o", at("out.gguf")},
			} {
				invoke(args...).fails(t, exitUnsupported, what)
			}
		})
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

func unknownTensors(r inspect.Report) (n int) {
	for _, t := range r.Tensors {
		if t.Unknown != "" {
			n++
		}
	}
	return n
}

// spoilt copies a package with a byte of its last tensor changed.
func spoilt(t *testing.T, pkg string) string {
	t.Helper()
	p, err := os.ReadFile(pkg)
	if err != nil {
		t.Fatal(err)
	}
	at := len(p) - 1
	for p[at] == 0 {
		at--
	}
	p[at] ^= 0x10
	out := filepath.Join(t.TempDir(), "spoilt.nstf")
	if err := os.WriteFile(out, p, 0o666); err != nil {
		t.Fatal(err)
	}
	return out
}
