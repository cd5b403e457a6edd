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

	"github.com/nstf/nstf/testdata/packed"
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
	file := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, given := range [][]string{{"-p", text}, {"-f", file}, {"--prompt=" + text}} {
		if got := tokenIDs(t, "not this", append(given, demoModel)...); !slices.Equal(got, all) {
			t.Errorf("%q: %v, of standard input %v", given, got, all)
		}
	}
	if got := tokenize(t, "not this", demoModel, "-p", ""); strings.Contains(got, "\n1") || len(tokenIDs(t, "x", demoModel, "-p", "", "--no-special")) != 0 {
		t.Errorf("an empty text gives %q", got)
	}
	lines := strings.Split(strings.TrimSpace(tokenize(t, "a\nb", demoModel, "--no-special")), "\n")
	if len(lines) != 3 || !strings.HasPrefix(lines[0], "65\t") && !strings.Contains(lines[0], "\ta") {
		t.Errorf("one line per token: %q", lines)
	}
}

// The same ids out of a package, and out of what llama.cpp's tests hold.
// vocabularyFile unpacks a GGUF that holds nothing else.
func vocabularyFile(t *testing.T, name string) string {
	t.Helper()
	return packed.File(t, "../../testdata/vocab/ggml-vocab-"+name+".gguf")
}

func TestTokenizeContainers(t *testing.T) {
	text := "In the thin inn, naïve 😀\n"
	want := tokenIDs(t, text, demoModel)
	for _, path := range []string{packaged(t, demoModel), filepath.Join(demoModel, "model.safetensors"), filepath.Join(demoModel, "tokenizer.json")} {
		if got := tokenIDs(t, text, path); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}
	for _, name := range []string{"gpt-2", "phi-3"} {
		path := vocabularyFile(t, name)
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
	r := invokeWith(context.Background(), strings.NewReader("[0, 36, 99999999]"), "tokenize", demoModel, "--decode")
	r.fails(t, exitInput, "id 99999999 at position 2 is outside the vocabulary")
	if r.out != "" {
		t.Errorf("%q is printed of ids that are refused", r.out)
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

// What is no UTF-8 is replaced, and said.
func TestTokenizeInvalid(t *testing.T) {
	r := invokeWith(t.Context(), strings.NewReader("a\xffb\xc3"), "tokenize", demoModel)
	if r.code != exitFine || !strings.Contains(r.err, "2 sequences of bytes are not UTF-8") {
		t.Errorf("exit %d: %s", r.code, r.err)
	}
	if r := invokeWith(t.Context(), strings.NewReader("na\u00efve"), "tokenize", demoModel); r.err != "" {
		t.Errorf("of good text: %s", r.err)
	}
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
