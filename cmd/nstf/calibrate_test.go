package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats/stats"
)

// TestCalibrate writes statistics of texts and of conversations, merges them, and
// says what it read.
func TestCalibrate(t *testing.T) {
	dir := t.TempDir()
	src := filepath.Join(micro, "mixtral")
	text, one, two := filepath.Join(dir, "t.txt"), filepath.Join(dir, "one.nstats"), filepath.Join(dir, "two.nstats")
	if err := os.WriteFile(text, []byte(strings.Repeat("Some words, and some more of them. ", 40)), 0o666); err != nil {
		t.Fatal(err)
	}
	small := []string{"--samples", "8", "--ctx", "16"}
	out := must(t, append([]string{"calibrate", src, "--calib", text, "-o", one}, small...)...)
	for _, want := range []string{"t.txt, 7 windows", "1 windows held out", "KL of a 1 % error", "never routed to"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
	r := invoke(append([]string{"calibrate", src, "-o", two, "--merge", one, "--sensitivity=false", "--memory", "1MiB", "--json"}, small...)...)
	if r.code != exitFine || !strings.Contains(r.err, "warning: calibrating on a small mixed text") {
		t.Fatalf("exit %d: %s", r.code, r.err)
	}
	var report calibrationReport
	if err := json.Unmarshal([]byte(r.out), &report); err != nil || report.Source.Windows != 14 || report.Source.Text != "default.jsonl+t.txt" || len(report.Experts) == 0 {
		t.Errorf("%v: %s", err, r.out)
	}
	s, err := stats.Open(two)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if s.Source.Tokens != 14*16 || len(s.Sensitivity) == 0 {
		t.Errorf("%+v", s.Source)
	}
	chat := filepath.Join(dir, "c.jsonl")
	if err := os.WriteFile(chat, []byte(`{"messages":[{"role":"user","content":"hi"}]}`+"\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		code int
		says string
		args []string
	}{
		{exitUsage, "--memory", []string{"--memory", "much"}},
		{exitUsage, "--ctx", []string{"--ctx", "1"}},
		{exitInput, "none.txt", []string{"--calib", "none.txt"}},
		{exitUnsupported, "8 windows of 4096 need", []string{"--calib", text, "--samples", "8", "--ctx", "4096"}},
		{exitUnsupported, "no chat template", []string{"--calib", chat}},
		{exitInput, "another model", append([]string{"--merge", filepath.Join(dir, "other.nstats")}, small...)},
	} {
		if strings.HasSuffix(c.args[1], "other.nstats") {
			must(t, append([]string{"calibrate", filepath.Join(micro, "llama-31"), "-o", c.args[1], "--sensitivity=false"}, small...)...)
		}
		to := filepath.Join(t.TempDir(), "x.nstats")
		invoke(append([]string{"calibrate", src, "-o", to}, c.args...)...).fails(t, c.code, c.says)
		empty(t, filepath.Dir(to))
	}
}
