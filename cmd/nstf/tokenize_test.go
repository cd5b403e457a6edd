package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func tokenize(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	r := invokeWith(context.Background(), strings.NewReader(stdin), append([]string{"tokenize"}, args...)...)
	if r.code != 0 {
		t.Fatalf("tokenize %v: exit %d\n%s", args, r.code, r.err)
	}
	return r.out
}

func tokenIDs(t *testing.T, stdin string, args ...string) []int32 {
	t.Helper()
	var ids []int32
	decode(t, tokenize(t, stdin, append(args, "--ids")...), &ids)
	return ids
}

func TestTokenize(t *testing.T) {
	text := "It was a cold morning.\n  Naïve 😀 <|im_start|>"
	all := tokenIDs(t, text, demoModel)
	plain := tokenIDs(t, text, demoModel, "--no-special")
	if len(all) != len(plain)+1 || all[0] != 0 || !slices.Equal(all[1:], plain) {
		t.Errorf("--no-special gives %v of %v", plain, all)
	}
	literal := tokenIDs(t, text, demoModel, "--no-special", "--no-parse-special")
	if slices.Contains(literal, 2) || !slices.Contains(plain, 2) {
		t.Errorf("<|im_start|> is token 2: %v parsed, %v not parsed", plain, literal)
	}
	for _, ids := range [][]int32{plain, literal} {
		p, err := json.Marshal(ids)
		if err != nil {
			t.Fatal(err)
		}
		if got := tokenize(t, string(p), demoModel, "--decode"); got != text {
			t.Errorf("%v decodes to %q, not %q", ids, got, text)
		}
	}
	if got := tokenize(t, "[0, 36, 2]", demoModel, "--decode", "--no-special"); strings.Contains(got, "<|") {
		t.Errorf("--decode --no-special keeps special tokens: %q", got)
	}
	if got := tokenize(t, "", demoModel, "--ids", "--no-special"); got != "[]\n" {
		t.Errorf("no text gives %q", got)
	}
	lines := strings.Split(strings.TrimSpace(tokenize(t, "a\nb", demoModel, "--no-special")), "\n")
	if len(lines) != 3 || !strings.HasPrefix(lines[0], "65\t") && !strings.Contains(lines[0], "\ta") {
		t.Errorf("one line per token: %q", lines)
	}
}

// The same ids out of a package, and out of what llama.cpp's tests hold.
func TestTokenizeContainers(t *testing.T) {
	text := "In the thin inn, naïve 😀\n"
	want := tokenIDs(t, text, demoModel)
	for _, path := range []string{packaged(t, demoModel), filepath.Join(demoModel, "model.safetensors"), filepath.Join(demoModel, "tokenizer.json")} {
		if got := tokenIDs(t, text, path); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}
	vocabs, err := filepath.Glob("../../testdata/vocab/*.gguf")
	if err != nil || len(vocabs) == 0 {
		t.Fatalf("no GGUF vocabularies: %v", err)
	}
	for _, path := range vocabs {
		ids := tokenIDs(t, "Hello, world", path, "--no-special")
		p, _ := json.Marshal(ids)
		if got := tokenize(t, string(p), path, "--decode"); strings.TrimSpace(got) != "Hello, world" {
			t.Errorf("%s: %v decodes to %q", path, ids, got)
		}
	}
}

func TestTokenizeFailures(t *testing.T) {
	invoke("tokenize", "/nosuch").fails(t, exitInput, "nosuch")
	invoke("tokenize", demoText).fails(t, exitInput, "no tokenizer")
	for _, ids := range []string{"", "[1", "[-1]", `["a"]`} {
		invokeWith(context.Background(), strings.NewReader(ids), "tokenize", demoModel, "--decode").fails(t, exitInput, "standard input")
	}
	bad := copyDir(t, demoModel)
	p, err := os.ReadFile(filepath.Join(bad, "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bad, "tokenizer.json"), p[:len(p)/2], 0o666); err != nil {
		t.Fatal(err)
	}
	invoke("tokenize", bad).fails(t, exitInput, "tokenizer.json")
	invokeWith(context.Background(), failing{}, "tokenize", demoModel).fails(t, exitFailure, "broken pipe of a test")
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("broken pipe of a test") }

// An interrupt does not wait for somebody to type.
func TestInterruptWhileReading(t *testing.T) {
	r, w := io.Pipe()
	defer w.Close()
	ctx, cancel := context.WithCancelCause(context.Background())
	time.AfterFunc(50*time.Millisecond, func() { cancel(errInterrupted) })
	invokeWith(ctx, r, "tokenize", demoModel).fails(t, exitInterrupted, "interrupted")
}
