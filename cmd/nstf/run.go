package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

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
	device              deviceFlag
}

func (a *app) runCommand() *cobra.Command {
	var f runFlags
	c := &cobra.Command{
		Use: "run MODEL [-p TEXT | -f FILE | -]", Short: "Continue a text, or talk to a model", Args: cobra.RangeArgs(1, 2),
		Long: `Continue a text: only the continuation and a final newline go to standard output.
The text comes from -p, from a file by -f, or from standard input by -. What the
tokenizer puts in front of a text (BOS) is put there.

--chat holds a conversation in the form of the model's chat template; what is typed can
never become a special token. With -p, -f or - it answers once; else every line of
standard input is a message. Ctrl-C stops an answer, twice in a row leaves.`,
		Example: `  nstf run model.nstf -p "The quick brown fox" --greedy --max-tokens 40
  nstf run model.gguf --chat --system "You answer in one sentence."
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

func (f *runFlags) add(c *cobra.Command) {
	s := c.Flags()
	s.StringVarP(&f.prompt, "prompt", "p", "", "text to continue")
	s.StringVarP(&f.file, "file", "f", "", "file with the text to continue")
	s.BoolVar(&f.chat, "chat", false, "talk to the model in the form of its chat template")
	s.StringVar(&f.system, "system", "", "system message, with --chat")
	s.StringVar(&f.template, "chat-template", "", "name of the chat template, where the model has several")
	s.Int64Var(&f.Context, "ctx", 0, "positions of the context; 0: what the model was made for")
	s.BoolVar(&f.Shift, "ctx-shift", false, "at the end of the context forget the oldest text instead of failing")
	s.IntVar(&f.Threads, "threads", 0, "threads; 0: one per core")
	s.IntVar(&f.MaxTokens, "max-tokens", 0, "end after so many tokens; 0: at the end of the text or of the context")
	s.StringArrayVar(&f.Stop, "stop", nil, "end before this text; may be given several times")
	s.BoolVar(&f.greedy, "greedy", false, "always take the most likely token")
	s.Float64Var(&f.Sampling.Temperature, "temperature", 0.8, "divides the logits; 0 is greedy")
	s.IntVar(&f.Sampling.TopK, "top-k", 40, "keep the most likely tokens; 0: all")
	s.Float64Var(&f.Sampling.TopP, "top-p", 0.95, "keep tokens until their probability reaches this; 1: all")
	s.Float64Var(&f.Sampling.MinP, "min-p", 0.05, "keep tokens at least so many times as likely as the best; 0: all")
	s.Float64Var(&f.Sampling.RepetitionPenalty, "repetition-penalty", 1, "divides the logits of tokens that occurred; 1: none")
	s.IntVar(&f.Sampling.RepetitionWindow, "repetition-window", 0, "tokens that it looks back; 0: all")
	s.Uint64Var(&f.Sampling.Seed, "seed", 0, "seed of the random numbers; default: another every time")
	addPrecision(s, &f.Exact, &f.KV)
	f.device.add(s)
	s.BoolVar(&f.noParse, "no-parse-special", false, "read the spelling of special tokens in the text as plain text")
	s.BoolVar(&f.verify, "verify", false, "check every hash of the package first")
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
		return usagef("%q is neither a flag nor - for standard input", args[1])
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
	case f.Context < 0 || f.Threads < 0 || f.MaxTokens < 0:
		return usagef("--ctx, --threads and --max-tokens are not negative")
	}
	if err := checkKV(f.KV); err != nil {
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
	if _, err := sample.New(f.Sampling); err != nil {
		return &usageError{err}
	}
	return nil
}

func (a *app) runModel(ctx context.Context, args []string, f *runFlags) error {
	if f.verify {
		if err := a.verifyFirst(ctx, args[0]); err != nil {
			return err
		}
	}
	m, err := model.Open(args[0])
	if err != nil {
		return err
	}
	defer m.Close()
	f.Device = a.device(&f.device)
	g, err := generate.New(m, f.Config)
	if err != nil {
		return err
	}
	defer g.Close()
	if g.Context() > m.Graph.Context {
		a.warn(fmt.Sprintf("--ctx %d is beyond the %d positions that the model was made for", g.Context(), m.Graph.Context))
	}
	text, once, err := a.readPrompt(ctx, args, f)
	if err != nil {
		return err
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
		p, err := os.ReadFile(f.file)
		return string(p), true, err
	}
	return f.prompt, !f.chat || f.prompt != "", nil
}

func (a *app) complete(ctx context.Context, g *generate.Generator, text string, f *runFlags) error {
	ids, err := g.Prompt(text, !f.noParse)
	if err != nil {
		return err
	}
	stats, err := g.Run(ctx, ids, f.Options, a.emit)
	return a.finish(stats, f, err)
}

// answer is one turn of a conversation.
func (a *app) answer(ctx context.Context, g *generate.Generator, text string, f *runFlags) error {
	c, err := g.NewChat(f.template, f.system)
	if err != nil {
		return err
	}
	stats, err := c.Send(ctx, text, f.Options, a.emit)
	return a.finish(stats, f, err)
}

func (a *app) emit(text string) error {
	_, err := io.WriteString(a.out, text)
	return err
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
	if f.MaxTokens == 0 && stats.Tokens > 0 && errors.Is(err, exec.ErrContextFull) {
		fmt.Fprintf(a.err, "the context of %d positions is full: --ctx gives a longer one, --ctx-shift lets the oldest text be forgotten\n", stats.ContextTokens)
		return nil
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
