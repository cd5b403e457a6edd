package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/corpus"
	"github.com/nstf/nstf/runtime/generate"
	"github.com/nstf/nstf/runtime/serve/client"
)

// serverFlags say which server is asked.
type serverFlags struct{ server, model, keyFile string }

func (f *serverFlags) add(s *pflag.FlagSet) {
	s.StringVar(&f.server, "server", "", "address of a server, such as http://127.0.0.1:8080")
	s.StringVar(&f.model, "server-model", "", "name of its model; default: its first one")
	s.StringVar(&f.keyFile, "key-file", "", "file with the API key; default: what NSTF_API_KEY says")
}

// client returns what asks the server, with the model to ask for.
func (a *app) client(ctx context.Context, f *serverFlags) (*client.Client, client.Model, error) {
	if !strings.HasPrefix(f.server, "http://") && !strings.HasPrefix(f.server, "https://") {
		return nil, client.Model{}, usagef("--server %q is no address such as http://127.0.0.1:8080", f.server)
	}
	c := &client.Client{Base: f.server}
	switch {
	case f.keyFile != "":
		keys, err := readKeys(f.keyFile)
		if err != nil {
			return nil, client.Model{}, err
		}
		c.Key = keys[0]
	case a.env.get != nil:
		c.Key = a.env.get("NSTF_API_KEY")
	}
	models, err := c.Models(ctx)
	if err != nil {
		return nil, client.Model{}, err
	}
	i := slices.IndexFunc(models, func(m client.Model) bool { return m.Name == f.model })
	switch {
	case i >= 0:
		return c, models[i], nil
	case f.model != "": // it may have names that are not listed
		return c, client.Model{Name: f.model}, nil
	case len(models) == 0:
		return nil, client.Model{}, errors.New("the server has no models")
	}
	return c, models[0], nil
}

// chatFlags are the flags of chat.
type chatFlags struct {
	serverFlags
	prompt, file, system, effort string
	temperature, topP            float64
	seed                         int64
	maxTokens                    int
	stop                         []string
	raw, showStats, quiet        bool
}

func (a *app) chatCommand() *cobra.Command {
	var f chatFlags
	c := &cobra.Command{
		Use: "chat --server URL [-p TEXT | -f FILE]", Short: "Talk to a model on a server", Args: cobra.ArbitraryArgs,
		Long: `Talk to a model on a server: nstf serve, or another that speaks OpenAI's chat
completions. Answers go to standard output as they come; how the model reasons goes to
standard error, unless --no-reasoning is given. With -p or -f it answers once; else every
line of standard input is a message, as with nstf run --chat, and /help lists the same
commands. What is not said here, the server decides.`,
		Example: `  nstf chat --server http://127.0.0.1:8080
  nstf chat --server https://models.example --key-file key.txt --server-model big -p "Name a colour."`,
		RunE: func(c *cobra.Command, args []string) error {
			s := c.Flags()
			switch {
			case len(args) > 0:
				return &usageError{errors.New("chat takes no model: a server has it"), fmt.Sprintf("nstf run %s --chat talks to a model without a server", formats.Printable(formats.Brief(args[0], 80)))}
			case f.server == "":
				return usagef("say which server by --server URL; nstf run MODEL --chat needs none")
			case s.Changed("prompt") && f.file != "":
				return usagef("give the text by one of -p and -f")
			case slices.Contains(f.stop, ""):
				return usagef("--stop is empty: every text begins with that")
			}
			return a.chatServer(c.Context(), &f, s)
		},
	}
	s := c.Flags()
	f.serverFlags.add(s)
	s.StringVarP(&f.prompt, "prompt", "p", "", "message to answer, once")
	s.StringVarP(&f.file, "file", "f", "", "file with that message")
	s.StringVar(&f.system, "system", "", "system message")
	s.Float64Var(&f.temperature, "temperature", 1, "divides the logits; 0 is greedy; default: the server's")
	s.Float64Var(&f.topP, "top-p", 1, "keep tokens until their probability reaches this; default: the server's")
	s.Int64VarP(&f.seed, "seed", "s", 0, "seed of the random numbers; default: another every time")
	s.IntVarP(&f.maxTokens, "max-tokens", "n", 0, "end after so many tokens; 0: the server's bound")
	s.StringArrayVar(&f.stop, "stop", nil, "end before this text; may be given several times")
	s.StringVar(&f.effort, "reasoning-effort", "", "how long the model shall reason: none, low, medium or high, as far as it knows them")
	s.BoolVar(&f.quiet, "no-reasoning", false, "do not show how the model reasons")
	s.BoolVar(&f.raw, "raw", false, rawUsage)
	s.BoolVar(&f.showStats, "stats", false, "print speed to standard error")
	return c
}

// A remote answers by a server.
type remote struct {
	a     *app
	c     *client.Client
	f     *chatFlags
	ask   client.Request
	model client.Model
	h     generate.History

	began   bool // something of the answer was printed
	last    *client.Result
	thought bool // reasoning is being shown
}

func (a *app) chatServer(ctx context.Context, f *chatFlags, s *pflag.FlagSet) error {
	c, m, err := a.client(ctx, &f.serverFlags)
	if err != nil {
		return err
	}
	r := &remote{a: a, c: c, f: f, model: m, ask: client.Request{Model: m.Name, MaxTokens: f.maxTokens, Stop: f.stop, Effort: f.effort}}
	if s.Changed("temperature") {
		r.ask.Temperature = &f.temperature
	}
	if s.Changed("top-p") {
		r.ask.TopP = &f.topP
	}
	if s.Changed("seed") {
		r.ask.Seed = &f.seed
	}
	r.h.SetSystem(f.system)
	text, once := f.prompt, s.Changed("prompt")
	if f.file != "" {
		p, err := corpus.ReadPlain(f.file, maxInput)
		if err != nil {
			return err
		}
		text, once = string(p), true
	}
	if once {
		return r.finish(r.send(ctx, text))
	}
	return a.talk(ctx, r, f.file)
}

func (r *remote) history() *generate.History { return &r.h }

func (r *remote) send(ctx context.Context, message string) error {
	q := r.ask
	q.Messages = nil
	for _, m := range r.h.Messages() {
		q.Messages = append(q.Messages, client.Message{Role: m.Role, Content: m.Content})
	}
	q.Messages = append(q.Messages, client.Message{Role: "user", Content: message})
	var answer strings.Builder
	emit := r.a.emit(r.f.raw)
	r.began, r.thought = false, false
	result, err := r.c.Answer(ctx, q, func(d client.Delta) error {
		if d.Reasoning != "" && !r.f.quiet {
			r.think(d.Reasoning)
		}
		if d.Text == "" {
			return nil
		}
		r.endThought()
		r.began = true
		answer.WriteString(d.Text)
		return emit(d.Text)
	})
	r.endThought()
	if err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	r.last = &result
	r.h.Add(message, answer.String())
	return err
}

// think shows reasoning, apart from answers.
func (r *remote) think(text string) {
	if !r.thought {
		r.thought = true
		fmt.Fprintln(r.a.err, "(reasoning)")
	}
	if r.a.errTerminal && !r.f.raw {
		text = formats.PrintableText(text)
	}
	io.WriteString(r.a.err, text)
}

func (r *remote) endThought() {
	if r.thought {
		r.thought = false
		io.WriteString(r.a.err, "\n(answer)\n")
	}
}

func (r *remote) finish(err error) error {
	if r.began {
		if _, werr := io.WriteString(r.a.out, "\n"); err == nil {
			err = werr
		}
	}
	if r.f.showStats && err == nil {
		r.stats()
	}
	if err == nil && r.last != nil && r.last.End == "length" && r.ask.MaxTokens == 0 {
		fmt.Fprintln(r.a.err, "the server's bound of tokens, or the end of the context, has cut the answer off")
	}
	return err
}

func (r *remote) stats() bool {
	s := r.last
	if s == nil {
		return false
	}
	t := newTable(2)
	row := func(name, format string, args ...any) { t.AppendRow([]any{name, fmt.Sprintf(format, args...)}) }
	row("model", "%s", formats.Printable(r.model.Name))
	row("prompt", "%d tokens, %d of them known before", s.PromptTokens, s.CachedTokens)
	row("first token", "%v", s.First.Round(time.Millisecond))
	if d := s.All - s.First; s.Tokens > 1 && d > 0 {
		row("answer", "%d tokens, %.1f tokens/s", s.Tokens, float64(s.Tokens-1)/d.Seconds())
	} else {
		row("answer", "%d tokens", s.Tokens)
	}
	if r.model.Context > 0 {
		row("context", "%d of %d positions", max(0, s.PromptTokens+s.Tokens-1), r.model.Context)
	}
	row("ended by", "%s", formats.Printable(s.End))
	printTable(r.a.err, t)
	return true
}
