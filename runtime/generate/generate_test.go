package generate_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/runtime/exec"
	"github.com/nstf/nstf/runtime/generate"
	"github.com/nstf/nstf/runtime/sample"
)

const demo = "../../testdata/demo/model"

func Example() {
	m, err := checkpoint.Open(demo)
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	g, err := generate.New(m, generate.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer g.Close()
	ids, err := g.Prompt("He opened the door and", true)
	if err != nil {
		log.Fatal(err)
	}
	stats, err := g.Run(context.Background(), ids, generate.Options{MaxTokens: 8}, func(text string) error {
		fmt.Print(text)
		return nil
	})
	fmt.Printf("\n%s, %v\n", stats.Reason, err)
	// Output:
	// opened it. The door opened, and
	// maximum of tokens, <nil>
}

func generator(t *testing.T, context int64) *generate.Generator {
	t.Helper()
	m, err := checkpoint.Open(demo)
	if err != nil {
		t.Fatal(err)
	}
	g, err := generate.New(m, generate.Config{Context: context})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close(); m.Close() })
	return g
}

func run(t *testing.T, g *generate.Generator, prompt string, o generate.Options) (string, *generate.Stats, error) {
	t.Helper()
	ids, err := g.Prompt(prompt, true)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	stats, err := g.Run(context.Background(), ids, o, func(s string) error { b.WriteString(s); return nil })
	return b.String(), stats, err
}

// What is cached of an earlier prompt does not change the text.
func TestCachedPrompt(t *testing.T) {
	g := generator(t, 0)
	o := generate.Options{MaxTokens: 10}
	first, s1, err := run(t, g, "Once upon a time there was", o)
	if err != nil || s1.CachedTokens != 0 || s1.Tokens != 10 {
		t.Fatalf("%+v, %v", s1, err)
	}
	again, s2, err := run(t, g, "Once upon a time there was", o)
	if err != nil || again != first || s2.CachedTokens != s2.PromptTokens-1 {
		t.Errorf("again: %q, %+v, %v; first %q", again, s2, err, first)
	}
	if _, s3, err := run(t, g, "Once upon another day", o); err != nil || s3.CachedTokens == 0 || s3.CachedTokens >= s3.PromptTokens-1 {
		t.Errorf("another prompt: %+v, %v", s3, err)
	}
}

func TestContextFull(t *testing.T) {
	g := generator(t, 12)
	text, stats, err := run(t, g, "Once upon a time", generate.Options{})
	if !errors.Is(err, exec.ErrContextFull) || stats.ContextTokens != 12 || text == "" {
		t.Errorf("%q, %+v, %v", text, stats, err)
	}
	long, stats, err := run(t, g, "Once upon a time", generate.Options{Shift: true, MaxTokens: 50})
	if err != nil || stats.Tokens != 50 || !strings.HasPrefix(long, text) {
		t.Errorf("with Shift: %q, %+v, %v", long, stats, err)
	}
	if _, _, err := run(t, g, strings.Repeat("word ", 20), generate.Options{Shift: true}); !errors.Is(err, exec.ErrContextFull) {
		t.Errorf("a prompt beyond the context: %v", err)
	}
	// The end of the text is not lost where it may have begun a stop string.
	held, _, err := run(t, generator(t, 12), "Once upon a time", generate.Options{Stop: []string{text[len(text)-1:] + "\x00"}})
	if !errors.Is(err, exec.ErrContextFull) || held != text {
		t.Errorf("with a stop string: %q, %v; without %q", held, err, text)
	}
	one := generator(t, 1)
	if _, _, err := run(t, one, "", generate.Options{Shift: true}); !errors.Is(err, exec.ErrContextFull) {
		t.Errorf("a context of one position: %v", err)
	}
}

func TestRefusals(t *testing.T) {
	g := generator(t, 0)
	if _, err := g.Run(context.Background(), nil, generate.Options{}, nil); !errors.Is(err, generate.ErrNoPrompt) {
		t.Errorf("no prompt: %v", err)
	}
	for _, o := range []generate.Options{{Stop: []string{""}}, {Sampling: sample.Options{Temperature: -1}}} {
		if _, _, err := run(t, g, "x", o); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
	broken := errors.New("broken")
	ids, err := g.Prompt("Once upon a time", true)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.Run(context.Background(), ids, generate.Options{}, func(string) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("an error of emit: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	n := 0
	stats, err := g.Run(ctx, ids, generate.Options{}, func(string) error {
		if n++; n == 3 {
			cancel()
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) || stats.Tokens > 6 {
		t.Errorf("cancelled: %+v, %v", stats, err)
	}
}

// A conversation remembers its answers, also those that were stopped, and not
// what failed; special tokens that a user types stay text.
func TestChat(t *testing.T) {
	g := generator(t, 128)
	c, err := g.NewChat("", "Be brief.")
	if err != nil {
		t.Fatal(err)
	}
	quiet := func(string) error { return nil }
	o := generate.Options{MaxTokens: 5}
	plain, err := c.Send(context.Background(), "Who is there?", o, quiet)
	if err != nil || len(c.Messages()) != 3 || c.Messages()[2].Role != "assistant" {
		t.Fatalf("%+v, %v", c.Messages(), err)
	}
	if _, err := c.Send(context.Background(), strings.Repeat("word ", 200), o, quiet); !errors.Is(err, exec.ErrContextFull) || len(c.Messages()) != 3 {
		t.Errorf("a message beyond the context: %v, %+v", err, c.Messages())
	}
	ctx, cancel := context.WithCancel(context.Background())
	if _, err := c.Send(ctx, "Go on.", o, func(string) error { cancel(); return nil }); !errors.Is(err, context.Canceled) || len(c.Messages()) != 5 {
		t.Errorf("a stopped answer: %v, %+v", err, c.Messages())
	}
	other, err := generator(t, 128).NewChat("", "Be brief.")
	if err != nil {
		t.Fatal(err)
	}
	typed, err := other.Send(context.Background(), "Who is <|im_end|> there?", o, quiet)
	if err != nil || typed.PromptTokens < plain.PromptTokens+3 {
		t.Errorf("<|im_end|> typed by the user takes %d tokens of the prompt (%v), without it %d", typed.PromptTokens, err, plain.PromptTokens)
	}
	o.Shift = true
	for range 6 {
		if _, err := c.Send(context.Background(), "Tell me more about all of it, please.", o, quiet); err != nil {
			t.Fatal(err)
		}
	}
	if m := c.Messages(); m[0].Role != "system" || m[1].Role != "user" || m[1].Content == "Who is there?" {
		t.Errorf("the oldest turns are not forgotten, or the system message is: %+v", m)
	}
}
