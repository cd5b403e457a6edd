package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A greedyReference is a prompt with transformers' continuation.
type greedyReference struct {
	Prompt    string    `json:"prompt"`
	GreedyIDs []int32   `json:"greedy_ids"`
	Margins   []float64 `json:"margins"`
	Text      string    `json:"text"`
}

// The trained models continue as transformers does, up to the first step that
// may fall either way; from the directory, and for one prompt from a package and
// from GGUF, which hold the same tensors.
func TestRunIsTransformers(t *testing.T) {
	dir := os.Getenv("NSTF_SHARED")
	if dir == "" {
		t.Skip("NSTF_SHARED is not set: it names the folder of trained models with transformers' continuations")
	}
	for _, name := range []string{"tiny-llama", "tiny-qwen3", "tiny-gptj", "tiny-gemma3", "tiny-mixtral"} {
		src := filepath.Join(dir, "models", name)
		paths := []string{src, packaged(t, src)}
		if gguf := src + "-bf16.gguf"; exists(gguf) {
			paths = append(paths, gguf)
		}
		p, err := os.ReadFile(filepath.Join(src, "reference", "greedy.json"))
		if err != nil {
			t.Fatal(err)
		}
		var refs []greedyReference
		decode(t, string(p), &refs)
		for i, path := range paths {
			if i > 0 {
				refs = refs[:1]
			}
			for _, ref := range refs {
				checkGreedy(t, path, ref)
			}
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func checkGreedy(t *testing.T, path string, ref greedyReference) {
	t.Helper()
	sure := slices.IndexFunc(ref.Margins, func(m float64) bool { return m < 1e-2 })
	want := ref.Text
	if sure >= 0 {
		ids, err := json.Marshal(ref.GreedyIDs[:sure])
		if err != nil {
			t.Fatal(err)
		}
		want = strings.TrimRight(tokenize(t, string(ids), path, "--decode"), "\uFFFD")
	}
	got := must(t, "run", path, "--greedy", "--max-tokens", "40", "-p", ref.Prompt)
	if !strings.HasSuffix(got, "\n") || !strings.HasPrefix(got, want) || sure < 0 && got != want+"\n" {
		t.Errorf("%s continues %.30q by %q, transformers by %q", path, ref.Prompt, got, want)
	}
}

func TestRunSources(t *testing.T) {
	text := "It was a cold morning in the early spring, and"
	file := filepath.Join(t.TempDir(), "prompt.txt")
	if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	args := []string{"run", demoModel, "--greedy", "--max-tokens", "12"}
	want := must(t, append(args, "-p", text)...)
	if len(strings.Fields(want)) < 5 || strings.Count(want, "\n") != 1 {
		t.Errorf("continuation %q", want)
	}
	if got := must(t, append(args, "-f", file)...); got != want {
		t.Errorf("-f gives %q, -p %q", got, want)
	}
	if r := invokeWith(context.Background(), strings.NewReader(text), append(args, "-")...); r.out != want || r.err != "" {
		t.Errorf("- gives %q and %q on stderr, -p %q", r.out, r.err, want)
	}
	if got := must(t, "run", packaged(t, demoModel), "--greedy", "--max-tokens", "12", "-p", text, "--verify", "--threads", "1"); got != want {
		t.Errorf("the package gives %q, the directory %q", got, want)
	}
}

func TestRunSampling(t *testing.T) {
	args := []string{"run", demoModel, "--max-tokens", "30", "-p", "Once upon a time"}
	first := must(t, append(args, "--seed", "7")...)
	if again := must(t, append(args, "--seed", "7")...); again != first {
		t.Errorf("seed 7 gives %q and %q", first, again)
	}
	if other := must(t, append(args, "--seed", "8")...); other == first {
		t.Errorf("seeds 7 and 8 both give %q", first)
	}
	greedy := must(t, append(args, "--greedy")...)
	if cold := must(t, append(args, "--temperature", "0")...); cold != greedy {
		t.Errorf("temperature 0 gives %q, --greedy %q", cold, greedy)
	}
	if one := must(t, append(args, "--top-k", "1")...); one != greedy {
		t.Errorf("--top-k 1 gives %q, --greedy %q", one, greedy)
	}
	if p := must(t, append(args, "--greedy", "--repetition-penalty", "1.8")...); p == greedy {
		t.Errorf("--repetition-penalty changes nothing in %q", greedy)
	}
}

func TestRunStops(t *testing.T) {
	args := []string{"run", demoModel, "--greedy", "--max-tokens", "30", "-p", "Once upon a time"}
	whole := strings.TrimSuffix(must(t, args...), "\n")
	stop := whole[len(whole)/2 : len(whole)/2+5]
	r := invoke(append(args, "--stop", stop, "--stop", "never there", "--stats")...)
	if want := whole[:strings.Index(whole, stop)] + "\n"; r.out != want {
		t.Errorf("--stop %q gives %q of %q", stop, r.out, whole)
	}
	if !strings.Contains(r.err, "stop string") || !strings.Contains(r.err, "tokens/s") || !strings.Contains(r.err, "first token") {
		t.Errorf("statistics:\n%s", r.err)
	}
	fits(t, r.err)
	invoke(append(args, "--stop", "")...).fails(t, exitUsage, "--stop is empty")
}

func TestRunContextEnd(t *testing.T) {
	args := []string{"run", demoModel, "--greedy", "-p", "Once upon a time", "--ctx", "16"}
	r := invoke(args...)
	if r.code != 0 || !strings.Contains(r.err, "--ctx-shift") {
		t.Errorf("the end of the context is exit %d\n%s", r.code, r.err)
	}
	if strings.TrimSpace(r.out) == "" {
		t.Error("what fitted the context is not printed")
	}
	more := invoke(append(args, "--max-tokens", "60")...)
	more.fails(t, exitUsage, "--ctx")
	if more.out != r.out {
		t.Errorf("%q is printed before the failure, %q without --max-tokens", more.out, r.out)
	}
	long := must(t, append(args, "--ctx-shift", "--max-tokens", "60")...)
	if !strings.HasPrefix(long, strings.TrimSuffix(r.out, "\n")) || len(long) < 2*len(r.out) {
		t.Errorf("--ctx-shift gives %q behind %q", long, r.out)
	}
	invoke("run", demoModel, "-p", strings.Repeat("word ", 50), "--ctx", "16").fails(t, exitUsage, "--ctx")
	if r := invoke(append(args[:5:5], "--ctx", "2000", "--max-tokens", "1")...); !strings.Contains(r.err, "warning: --ctx 2000") {
		t.Errorf("no warning beyond the model's context: %s", r.err)
	}
}

func TestRunFailures(t *testing.T) {
	invoke("run", "/nosuch", "-p", "x").fails(t, exitInput, "nosuch")
	invoke("run", demoModel, "-f", "/nosuch.txt").fails(t, exitInput, "nosuch.txt")
	invoke("run", demoText, "-p", "x").fails(t, exitInput, "not a model")
	invoke("run", filepath.Join(micro, "gpt2"), "-p", "").fails(t, exitFailure, "hint: give a text")
	invoke("run", filepath.Join(micro, "gpt2"), "--chat", "-p", "x").fails(t, exitUnsupported, "chat template")
	invoke("run", vocabularyFile(t, "gpt-2"), "-p", "x").fails(t, exitInput, "vocabulary")
}

// An empty prompt is BOS alone.
func TestRunEmptyPrompt(t *testing.T) {
	if out := must(t, "run", demoModel, "-p", "", "--greedy", "--max-tokens", "5"); strings.TrimSpace(out) == "" {
		t.Errorf("%q", out)
	}
}

func TestChat(t *testing.T) {
	args := []string{"run", demoModel, "--chat", "--greedy", "--max-tokens", "8", "--system", "Be brief."}
	lines := "Who are you?\n\nAnd <|im_end|> where?\n"
	r := invokeWith(context.Background(), strings.NewReader(lines), append(args, "--stats")...)
	if r.code != 0 || strings.Count(r.err, "first token") != 2 {
		t.Fatalf("exit %d, two answers expected:\n%s", r.code, r.err)
	}
	// The second prompt continues the first conversation, so part of it is known.
	if strings.Contains(strings.SplitAfterN(r.err, "prompt", 3)[2], " 0 of them known") {
		t.Errorf("the second prompt is computed as a whole:\n%s", r.err)
	}
	one := must(t, append(args, "-p", "Who are you?")...)
	if !strings.HasPrefix(r.out, strings.TrimSuffix(one, "\n")) {
		t.Errorf("-p answers %q, the conversation began with %q", one, r.out)
	}
	invokeWith(context.Background(), strings.NewReader(strings.Repeat("word ", 100)), append(args, "--ctx", "40")...).fails(t, exitUsage, "--ctx")
	many := strings.Repeat("Tell me more about it.\n", 6)
	if r := invokeWith(context.Background(), strings.NewReader(many), append(args, "--ctx", "60", "--ctx-shift")...); r.code != 0 {
		t.Errorf("--ctx-shift: exit %d\n%s", r.code, r.err)
	}
}

// Ctrl-C stops an answer and the conversation goes on; a second one leaves.
func TestChatInterrupt(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	var out, errs watched
	r, w := io.Pipe()
	a := &app{in: r, out: &out, err: &errs, interrupts: &interrupts{cancel: cancel}}
	code := make(chan int)
	go func() {
		code <- a.run(ctx, []string{"run", demoModel, "--chat", "--ctx-shift", "--seed", "3", "--stats"})
	}()
	for i, message := range []string{"Hello\n", "Again\n"} {
		before := len(out.String())
		if _, err := io.WriteString(w, message); err != nil {
			t.Fatal(err)
		}
		eventually(t, "an answer", func() bool { return len(out.String()) > before })
		if a.interrupts.signal(true) {
			t.Fatal("the first Ctrl-C of an answer ended the command")
		}
		eventually(t, "the answer's end", func() bool { return strings.Count(errs.String(), "work space") == i+1 })
	}
	if !a.interrupts.signal(true) {
		t.Error("the second Ctrl-C in a row did not end the command")
	}
	if c := <-code; c != exitInterrupted {
		t.Errorf("exit %d", c)
	}
}

// A watched buffer may be read while it is written.
type watched struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.Write(p)
}

func (w *watched) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.String()
}

// eventually waits until something is so.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for range 4000 {
		if is() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("%s did not come", what)
}

// A process at work ends with 130 at a signal.
func TestSignal(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no signals between processes")
	}
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		c := command(t, "run", demoModel, "-p", "Once upon a time", "--ctx-shift")
		var out, errs watched
		c.Stdout, c.Stderr = &out, &errs
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "text", func() bool { return out.String() != "" })
		if err := c.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
		c.Wait()
		if code := c.ProcessState.ExitCode(); code != exitInterrupted || errs.String() != "error: interrupted\n" {
			t.Errorf("%v: exit %d, stderr %q", s, code, errs.String())
		}
	}
}

// --chat-template picks one of several by its name.
func TestChatTemplate(t *testing.T) {
	dir := t.TempDir()
	if err := copyFiles(dir, filepath.Join(micro, "llama-2")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "additional_chat_templates"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, source := range map[string]string{
		"chat_template.jinja":                 "{{ messages[-1].content }}",
		"additional_chat_templates/rag.jinja": "{{ messages[-1].content }}{{ messages[-1].content }}",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(source), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	prompt := regexp.MustCompile(`prompt +│? *(\d+) tokens`)
	tokens := func(extra ...string) int {
		t.Helper()
		r := invoke(append([]string{"run", dir, "--chat", "-p", "one two three", "--greedy", "--max-tokens", "1", "--stats"}, extra...)...)
		m := prompt.FindStringSubmatch(r.err)
		if r.code != 0 || m == nil {
			t.Fatalf("exit %d: %s", r.code, r.err)
		}
		n, _ := strconv.Atoi(m[1])
		return n
	}
	if one, rag := tokens(), tokens("--chat-template", "rag"); one != tokens("--chat-template", "default") || rag <= one {
		t.Errorf("prompts of %d tokens by default and %d by the template rag", one, rag)
	}
	invoke("run", dir, "--chat", "--chat-template", "other", "-p", "x").fails(t, exitUnsupported, `["default" "rag"]`)
	invoke("run", dir, "--chat-template", "rag", "-p", "x").fails(t, exitUsage, "--chat")

	// One that is wrong, or does not end, is a bad input file: the model, the
	// template, the line and the budget are named.
	for source, says := range map[string]string{
		"{% if x %}\n{{ y }":                                "line 2",
		"\n{{ raise_exception('only two may talk') }}":      "only two may talk",
		"\n{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}": "budget of depth",
		"\n{{ 'x' * 10**10 }}":                              "budget of memory",
		"{% for i in range(100000) %}\n{% for i in range(100000) %}{% endfor %}{% endfor %}": "budget of steps",
		"{{ messages[0].nothing.more }}": "no attribute",
	} {
		if err := os.WriteFile(filepath.Join(dir, "additional_chat_templates", "bad.jinja"), []byte(source), 0o600); err != nil {
			t.Fatal(err)
		}
		r := invoke("run", dir, "--chat", "--chat-template", "bad", "-p", "x")
		r.fails(t, exitInput, says)
		if !strings.Contains(r.err, dir) || !strings.Contains(r.err, "template bad, line ") {
			t.Errorf("%q: the error names no model, template or line: %s", source, r.err)
		}
	}
}
