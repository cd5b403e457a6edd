package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/formats/corpus"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/nstf"
	"github.com/nstf/nstf/runtime/exec"
	"github.com/nstf/nstf/runtime/generate"
	"github.com/nstf/nstf/runtime/sample"
)

// runFlags are the flags of run.
type runFlags struct {
	generate.Config
	generate.Options
	prompt, file        string
	template, system    string
	chat, greedy, stats bool
	noParse, verify     bool
	raw                 bool
	boundBy             string // what set MaxTokens where nobody said it, "" else
	bounded             bool   // --max-tokens was said, if only that there is no bound
	device              deviceFlag
	grammar             grammarFlags
	attention           attentionFlag
}

func (a *app) runCommand() *cobra.Command {
	var f runFlags
	c := &cobra.Command{
		Use: "run MODEL [-p TEXT | -f FILE | -]", Short: "Continue a text, or talk to a model", Args: cobra.RangeArgs(1, 2),
		Long: `Continue a text: only the continuation and a final newline go to standard output.
The text comes from -p, from a file by -f, or from standard input by -. What the
tokenizer puts in front of a text (BOS) is put there. A terminal gets control characters
of the text spelled (\x1b), unless --raw is given.

--chat holds a conversation in the form of the model's chat template; what is typed can
never become a special token. With -p, -f or - it answers once; else every line of
standard input is a message. A line that ends in \ goes on in the next, and """ begins and
ends a message of several. /help lists commands: /clear, /undo, /system, /save, /load and
/stats. Ctrl-C stops an answer, twice in a row leaves.

--json-schema, --grammar, --regex and --choice let only texts be written that they allow,
whatever the model would rather say: tell it in the prompt what is wanted. A text that ends
too early for its grammar, at --max-tokens or the end of the context, is an error.`,
		Example: `  nstf run model.nstf -p "The quick brown fox" --greedy --max-tokens 40
  nstf run model.gguf --chat --system "You answer in one sentence."
  nstf run model.nstf --chat -p "Name a colour." --choice red,green,blue
  cat story.txt | nstf run ./Llama-3.2-1B - --temperature 0.7 --seed 1 --stats`,
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.check(c, args); err != nil {
				return err
			}
			return a.runModel(c.Context(), args, &f)
		},
	}
	f.add(c)
	return c
}

// rawUsage is what --raw does wherever a text is printed.
const rawUsage = "let control characters of the text act on the terminal"

// maxTokensUsage says what bounds a continuation.
const maxTokensUsage = "end after so many tokens; 0 or less: at the end of the text or of the context;\ndefault: what generation_config.json says, else 512, and none in a conversation"

func (f *runFlags) add(c *cobra.Command) {
	s := c.Flags()
	s.StringVarP(&f.prompt, "prompt", "p", "", "text to continue")
	s.StringVarP(&f.file, "file", "f", "", "file with the text to continue")
	s.BoolVar(&f.chat, "chat", false, "talk to the model in the form of its chat template")
	s.StringVar(&f.system, "system", "", "system message, with --chat")
	s.StringVar(&f.template, "chat-template", "", "name of the chat template, where the model has several")
	s.Int64VarP(&f.Context, "ctx", "c", 0, "positions of the context; 0: what the model was made for")
	s.BoolVar(&f.Shift, "ctx-shift", false, "at the end of the context forget the oldest text instead of failing")
	s.IntVarP(&f.Threads, "threads", "t", 0, "threads; 0: one per core")
	s.IntVarP(&f.MaxTokens, "max-tokens", "n", 0, maxTokensUsage)
	s.StringArrayVar(&f.Stop, "stop", nil, "end before this text; may be given several times")
	s.BoolVar(&f.greedy, "greedy", false, "always take the most likely token")
	s.Float64Var(&f.Sampling.Temperature, "temperature", 0.8, "divides the logits; 0 is greedy")
	s.IntVar(&f.Sampling.TopK, "top-k", 40, "keep the most likely tokens; 0: all")
	s.Float64Var(&f.Sampling.TopP, "top-p", 0.95, "keep tokens until their probability reaches this; 1: all")
	s.Float64Var(&f.Sampling.MinP, "min-p", 0.05, "keep tokens at least so many times as likely as the best; 0: all")
	s.Float64Var(&f.Sampling.RepetitionPenalty, "repetition-penalty", 1, "divides the logits of tokens that occurred; 1: none")
	s.IntVar(&f.Sampling.RepetitionWindow, "repetition-window", 0, "tokens that it looks back; 0: all")
	s.Uint64VarP(&f.Sampling.Seed, "seed", "s", 0, "seed of the random numbers; default: another every time")
	addPrecision(s, &f.Exact, &f.KV)
	f.attention.add(s)
	f.device.addSeveral(s)
	f.device.addMemory(s)
	f.grammar.add(s)
	s.BoolVar(&f.noParse, "no-parse-special", false, "read the spelling of special tokens in the text as plain text")
	s.BoolVar(&f.verify, "verify", false, "check every hash of the package first")
	s.BoolVar(&f.raw, "raw", false, rawUsage)
	s.BoolVar(&f.stats, "stats", false, "print speed and memory to standard error")
}

// check refuses flags that do not go together.
func (f *runFlags) check(c *cobra.Command, args []string) error {
	sources := 0
	for _, given := range []bool{c.Flags().Changed("prompt"), f.file != "", len(args) == 2} {
		if given {
			sources++
		}
	}
	switch {
	case len(args) == 2 && args[1] != "-":
		return &usageError{fmt.Errorf("%q is neither a flag nor - for standard input", formats.Brief(args[1], 80)), "give a text by -p TEXT, in quotes, or a file by -f FILE"}
	case sources > 1:
		return usagef("give the text by one of -p, -f and -")
	case sources == 0 && !f.chat:
		return usagef("give a text by -p, -f or -, or talk by --chat")
	case f.system != "" && !f.chat:
		return usagef("--system goes with --chat")
	case f.template != "" && !f.chat:
		return usagef("--chat-template goes with --chat")
	case slices.Contains(f.Stop, ""):
		return usagef("--stop is empty: every text begins with that")
	case f.Context < 0 || f.Threads < 0:
		return usagef("--ctx and --threads are not negative")
	}
	if f.bounded = given(c.Flags(), "max-tokens"); f.MaxTokens < 0 {
		f.MaxTokens = 0
	}
	if err := checkKV(f.KV); err != nil {
		return err
	}
	var err error
	if f.Policy, err = f.attention.policy(); err != nil {
		return err
	}
	if err := f.device.check(); err != nil {
		return err
	}
	if f.greedy {
		f.Sampling.Temperature = 0
	} else if !c.Flags().Changed("seed") {
		f.Sampling.Seed = rand.Uint64()
	}
	if _, err := f.grammar.given(); err != nil {
		return err
	}
	if _, err := sample.New(f.Sampling); err != nil {
		return &usageError{err: err}
	}
	return nil
}

func (a *app) runModel(ctx context.Context, args []string, f *runFlags) error {
	if f.verify {
		if err := a.verifyFirst(ctx, args[0]); err != nil {
			return err
		}
	}
	of, err := f.grammar.read()
	if err != nil {
		return err
	}
	m, err := checkpoint.Open(args[0])
	if err != nil {
		return err
	}
	defer m.Close()
	f.Device = f.attention.on(a.device(&f.device))
	if err := errors.Join(f.attention.fit(f.Policy, m), a.keep(m, &f.KV, f.Exact)); err != nil {
		return err
	}
	g, err := generate.New(m, f.Config)
	if err != nil {
		return err
	}
	defer g.Close()
	if f.Grammar, err = compileGrammar(g, of); err != nil {
		return err
	}
	if g.Context() > m.Graph.Context {
		a.warn(fmt.Sprintf("--ctx %d is beyond the %d positions that the model was made for", g.Context(), m.Graph.Context))
	}
	text, once, err := a.readPrompt(ctx, args, f)
	if err != nil {
		return err
	}
	if once && !f.bounded {
		f.MaxTokens, f.boundBy = usualBound(m)
	}
	switch {
	case f.chat && once:
		return a.answer(ctx, g, text, f)
	case f.chat:
		return a.chat(ctx, g, f)
	}
	return a.complete(ctx, g, text, f)
}

func (a *app) verifyFirst(ctx context.Context, path string) error {
	if err := hasHashes(path); err != nil {
		return err
	}
	p, err := nstf.Open(path)
	if err != nil {
		return err
	}
	defer p.Close()
	step, end := a.progress("verifying", "bytes")
	defer end()
	return p.Verify(ctx, step)
}

// readPrompt returns the text, and whether one was given.
func (a *app) readPrompt(ctx context.Context, args []string, f *runFlags) (string, bool, error) {
	switch {
	case len(args) == 2:
		p, err := a.readInput(ctx)
		return string(p), true, err
	case f.file != "":
		p, err := corpus.ReadPlain(f.file, maxInput)
		return string(p), true, err
	}
	return f.prompt, !f.chat || f.prompt != "", nil
}

func (a *app) complete(ctx context.Context, g *generate.Generator, text string, f *runFlags) error {
	ids, err := g.Prompt(text, !f.noParse)
	if err != nil {
		return err
	}
	stats, err := g.Run(ctx, ids, f.Options, a.emit(f.raw))
	return a.finish(stats, f, err)
}

// usualTokens bounds a continuation where nothing else does: a model that was not
// taught to end a text would fill its context.
const usualTokens = 512

// usualBound returns how many tokens are generated where nobody says, and by whose word.
func usualBound(m *model.Model) (int, string) {
	if _, n := generate.Recommended(m); n > 0 {
		return n, "max_new_tokens of the model's generation_config.json"
	}
	return usualTokens, "the usual bound"
}

// answer is one turn of a conversation.
func (a *app) answer(ctx context.Context, g *generate.Generator, text string, f *runFlags) error {
	c, err := newChat(g, f)
	if err != nil {
		return err
	}
	stats, err := c.Send(ctx, text, f.Options, a.emit(f.raw))
	return a.finish(stats, f, err)
}

// emit returns what writes a text that a model or a vocabulary holds to standard
// output: as it is, but that a terminal does not get to obey it unless raw is set.
func (a *app) emit(raw bool) func(text string) error {
	return func(text string) error {
		if a.outTerminal && !raw {
			text = formats.PrintableText(text)
		}
		_, err := io.WriteString(a.out, text)
		return err
	}
}

// finish ends the line of an answer and prints its statistics. Text that was to go
// on for as long as there is room has ended well where the context does.
func (a *app) finish(stats *generate.Stats, f *runFlags, err error) error {
	if stats == nil {
		return err
	}
	if _, werr := io.WriteString(a.out, "\n"); err == nil {
		err = werr
	}
	if f.stats {
		a.printStats(stats, f)
	}
	if stats.Forgotten > 0 {
		fmt.Fprintf(a.err, "the context was full: the oldest %d tokens behind the first are forgotten\n", stats.Forgotten)
	}
	if f.boundBy != "" && stats.Reason == generate.ReasonMax {
		fmt.Fprintf(a.err, "stopped at %d tokens, %s: --max-tokens N goes on for N, --max-tokens -1 to the end of the text or of the context\n", stats.Tokens, f.boundBy)
	}
	if (f.MaxTokens == 0 || f.boundBy != "") && stats.Tokens > 0 && errors.Is(err, exec.ErrContextFull) {
		fmt.Fprintf(a.err, "the context of %d positions is full: --ctx gives a longer one, --ctx-shift lets the oldest text be forgotten\n", stats.ContextTokens)
		err = nil
	}
	if stats.Unfinished && err == nil {
		return unfinished(stats)
	}
	return err
}

func (a *app) printStats(s *generate.Stats, f *runFlags) {
	t := newTable(2)
	row := func(name, format string, args ...any) { t.AppendRow([]any{name, fmt.Sprintf(format, args...)}) }
	row("prompt", "%d tokens, %d of them known before, %.1f tokens/s", s.PromptTokens, s.CachedTokens, s.PromptRate())
	row("first token", "%v", s.FirstToken.Round(time.Microsecond))
	row("decode", "%d tokens, %.1f tokens/s", s.Tokens, s.DecodeRate())
	row("ended by", "%s", s.Reason)
	if !f.greedy {
		row("seed", "%d", f.Sampling.Seed)
	}
	row("weights", "%s mapped, %s in memory", size(s.Memory.Mapped), size(s.Memory.Resident))
	row("cache", "%s for %d positions", size(s.CacheBytes), s.ContextTokens)
	row("work space", "%s", size(s.Memory.Scratch))
	printTable(a.err, t)
}
