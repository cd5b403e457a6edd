package generate_test

import (
	"context"
	"regexp"
	"strings"
	"testing"

	"github.com/nstf/nstf/runtime/generate"
	"github.com/nstf/nstf/runtime/grammar"
	"github.com/nstf/nstf/runtime/sample"
)

// A grammar is obeyed to its end, past the end of the context too, and what breaks off
// is told.
func TestGrammar(t *testing.T) {
	g := generator(t, 24)
	v, err := g.Vocabulary()
	if err != nil {
		t.Fatal(err)
	}
	of, err := grammar.ParseRegex(`([a-z]{3} ){30}end`)
	if err != nil {
		t.Fatal(err)
	}
	c := v.Compile(of)
	whole := regexp.MustCompile(`^([a-z]{3} ){30}end$`)
	for _, o := range []sample.Options{{}, {Temperature: 2, Seed: 1}, {Temperature: 1, TopK: 3, RepetitionPenalty: 1.5, Seed: 2}} {
		text, stats, err := run(t, g, "Once upon a time", generate.Options{Sampling: o, Grammar: c, Shift: true})
		if err != nil || !whole.MatchString(text) || stats.Unfinished || stats.Reason != generate.ReasonEnd || stats.Forgotten == 0 {
			t.Errorf("%+v: %q, %+v, %v", o, text, stats, err)
		}
		again, _, err := run(t, g, "Once upon a time", generate.Options{Sampling: o, Grammar: c, Shift: true})
		if err != nil || again != text {
			t.Errorf("%+v: again %q, %v; first %q", o, again, err, text)
		}
		cut, stats, err := run(t, g, "Once upon a time", generate.Options{Sampling: o, Grammar: c, MaxTokens: 5})
		if err != nil || !stats.Unfinished || !strings.HasPrefix(text, cut) || stats.Reason != generate.ReasonMax {
			t.Errorf("%+v: %q, %+v, %v", o, cut, stats, err)
		}
	}
	// What may end may be ended by the model alone, what has to by nobody else.
	any, err := grammar.ParseRegex(`[^]*`)
	if err != nil {
		t.Fatal(err)
	}
	free, s1, err := run(t, g, "Once upon a time", generate.Options{MaxTokens: 6})
	if err != nil {
		t.Fatal(err)
	}
	bound, s2, err := run(t, g, "Once upon a time", generate.Options{MaxTokens: 6, Grammar: v.Compile(any)})
	if err != nil || bound != free || s1.Tokens != s2.Tokens || s2.Unfinished {
		t.Errorf("any text: %q, %+v, %v; without a grammar %q", bound, s2, err, free)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	ids, err := g.Prompt("Once upon another", true)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.Run(ctx, ids, generate.Options{Grammar: c}, func(string) error { return nil }); err == nil {
		t.Error("it goes on behind the end of its context")
	}
}

// What a grammar leaves no choice of is not chosen: it comes as the tokenizer has it, in
// the pass of what stands before it.
func TestForced(t *testing.T) {
	g := generator(t, 256)
	v, err := g.Vocabulary()
	if err != nil {
		t.Fatal(err)
	}
	of, err := grammar.ParseRegex(`\{"temperature_in_the_house":([1-9]),"what she said":"she is old é","yes":(true|tries)\}`)
	if err != nil {
		t.Fatal(err)
	}
	c := v.Compile(of)
	whole := regexp.MustCompile(`^\{"temperature_in_the_house":[1-9],"what she said":"she is old é","yes":(true|tries)\}$`)
	for _, o := range []sample.Options{{}, {Temperature: 2, Seed: 1}, {Temperature: 1, RepetitionPenalty: 1.5, Seed: 2}} {
		text, stats, err := run(t, g, "Once upon a time", generate.Options{Sampling: o, Grammar: c})
		if err != nil || !whole.MatchString(text) || stats.Unfinished || stats.Reason != generate.ReasonEnd {
			t.Errorf("%+v: %q, %+v, %v", o, text, stats, err)
		}
		if chosen := stats.Tokens - stats.Forced; chosen > 12 || stats.Forced < 12 {
			t.Errorf("%+v: %d tokens chosen, %d forced", o, chosen, stats.Forced)
		}
		cut, s2, err := run(t, g, "Once upon a time", generate.Options{Sampling: o, Grammar: c, MaxTokens: 5})
		if err != nil || s2.Tokens != 5 || s2.Reason != generate.ReasonMax || !strings.HasPrefix(text, cut) {
			t.Errorf("%+v: %q, %+v, %v", o, cut, s2, err)
		}
	}
	guide := generate.NewGuide(c, g.Tokenizer())
	if err := guide.AcceptBytes([]byte(`{"`)); err != nil {
		t.Fatal(err)
	}
	text := ""
	for _, id := range guide.Forced() {
		text += string(g.Tokenizer().TokenBytes(id))
	}
	if !strings.HasPrefix(`temperature_in_the_house":`, text) || len(text) < len(`temperature_in`) {
		t.Errorf("forced: %q", text)
	}
}
