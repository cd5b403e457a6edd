package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/formats/corpus"
	"github.com/nstf/nstf/runtime/eval"
)

// evalFlags are the flags of eval.
type evalFlags struct {
	eval.Options
	protocol  string
	tokenIDs  string
	dump      string
	save      string
	force     outputFlag
	json      bool
	device    deviceFlag
	attention attentionFlag
}

func (a *app) evalCommand() *cobra.Command {
	var f evalFlags
	c := &cobra.Command{
		Use: "eval MODEL --text FILE", Short: "Measure perplexity on a text, and divergence from another model", Args: cobra.ExactArgs(1),
		Long: `Measure how well a model predicts a text: perplexity with its standard error.
With --ref also how far it is from another model: KL divergence (mean, median, 90th and
99th percentile, nats per token) and how often the most likely token agrees.

FILE is plain text, or .jsonl with a "text" string per line: each text is tokenized
alone without special tokens, then all are joined. Windows hold BOS, where the model has
one, and ctx-1 tokens, all of which are scored. --protocol llama.cpp counts as that
project's perplexity tool does, to compare with its figures; on a processor it also
rounds activations as that project does, unless --exact or --activations asks otherwise.

--save-ref stores this model's log-probabilities in a file that --ref takes instead of
the model. --token-ids with --dump-logits writes raw logits instead of measuring, in
float32 throughout unless --exact=false or --kv asks otherwise.

--steps N runs the last N tokens of each window one by one, behind a prompt, and scores
those alone; with --attention policy, of which the reference knows nothing, --ref MODEL
then says what it costs to read some pages of keys and values.

A text that the package was calibrated on flatters it, and is warned of.`,
		Example: `  nstf eval model.nstf --text book.txt
  nstf eval small.nstf --text book.txt --ref model.nstf --json
  nstf eval model.gguf --text wiki.test.raw --protocol llama.cpp --save-ref wiki.ref
  nstf eval model.nstf --token-ids ids.json --dump-logits logits.npy`,
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.check(); err != nil {
				return err
			}
			f.Device, f.Input = f.attention.on(a.device(&f.device)), a.in
			if f.dump != "" {
				if !c.Flags().Changed("exact") && !c.Flags().Changed("kv") {
					f.Exact = true // raw logits are asked for to be compared
				}
				return a.dumpLogits(c.Context(), args[0], &f)
			}
			return a.eval(c.Context(), args[0], &f)
		},
	}
	s := c.Flags()
	s.StringVarP(&f.Text, "text", "f", "", "text to measure on, plain or .jsonl; a pipe, or - for standard input")
	s.IntVarP(&f.Context, "ctx", "c", 512, "tokens per window")
	s.IntVar(&f.MaxTokens, "max-tokens", 0, "use only this many tokens of the text; 0: all")
	s.StringVar(&f.protocol, "protocol", string(eval.ProtocolNSTF), "how windows are cut and scored: "+strings.Join(eval.Protocols(), " or "))
	s.StringVar(&f.Ref, "ref", "", "model, or file made by --save-ref, to compare with")
	s.StringVar(&f.save, "save-ref", "", "store log-probabilities in this file")
	s.StringVar(&f.tokenIDs, "token-ids", "", "JSON array of token ids to run as they are, with --dump-logits")
	s.StringVar(&f.dump, "dump-logits", "", "write float32 logits [T][V] to this .npy file, with --token-ids")
	f.force.addForce(s)
	s.IntVarP(&f.Threads, "threads", "t", 0, "threads; 0: one per core")
	addPrecision(s, &f.Exact, &f.KV)
	f.attention.add(s)
	s.IntVar(&f.Steps, "steps", 0, "run and score only the last `N` tokens, one by one; 0: all at once")
	s.StringVar(&f.Activations, "activations", "", "round activations as "+strings.Join(eval.Activations(), " or ")+" does; default: as --protocol says")
	f.device.addSeveral(s)
	f.device.addMemory(s)
	s.BoolVar(&f.json, "json", false, "print JSON")
	return c
}

// check refuses flags that do not go together.
func (f *evalFlags) check() error {
	switch {
	case (f.tokenIDs == "") != (f.dump == ""):
		return usagef("--token-ids and --dump-logits belong together")
	case (f.Text == "") == (f.tokenIDs == ""):
		return usagef("give either --text, or --token-ids with --dump-logits")
	case f.tokenIDs != "" && (f.Ref != "" || f.save != "" || f.MaxTokens != 0):
		return usagef("--ref, --save-ref and --max-tokens go with --text")
	case !slices.Contains(eval.Protocols(), f.protocol):
		return usagef("--protocol %q is not one of %s", f.protocol, strings.Join(eval.Protocols(), ", "))
	case f.Activations != "" && !slices.Contains(eval.Activations(), f.Activations):
		return usagef("--activations %q is not one of %s", f.Activations, strings.Join(eval.Activations(), ", "))
	case f.Activations != "" && f.Exact:
		return usagef("--exact rounds no activations: leave out --activations")
	case f.Context < 2:
		return usagef("--ctx %d: at least 2 are needed", f.Context)
	case f.MaxTokens < 0 || f.Threads < 0:
		return usagef("--max-tokens and --threads are not negative")
	}
	if err := checkKV(f.KV); err != nil {
		return err
	}
	var err error
	switch f.Policy, err = f.attention.policy(); {
	case err != nil:
		return err
	case f.Steps < 0:
		return usagef("--steps is not negative")
	case f.Policy != nil && f.Steps == 0:
		return usagef("--attention policy is for single tokens: say by --steps how many of a window are run so")
	}
	if err := f.device.check(); err != nil {
		return err
	}
	f.Protocol = eval.Protocol(f.protocol)
	return nil
}

func (a *app) dumpLogits(ctx context.Context, path string, f *evalFlags) error {
	ids, err := corpus.ReadIDs(f.tokenIDs)
	if err != nil {
		return err
	}
	if len(ids) == 0 {
		return formats.Errorf(f.tokenIDs, "", "no token ids")
	}
	m, err := checkpoint.Open(path)
	if err != nil {
		return err
	}
	defer m.Close()
	if err := errors.Join(f.attention.fit(f.Policy, m), a.keep(m, &f.KV, f.Exact)); err != nil {
		return err
	}
	out, err := a.output(f.dump, arrayKind, f.force.force, m, f.tokenIDs)
	if err != nil {
		return err
	}
	step, end := a.progress("evaluating", "tokens")
	defer end()
	f.Progress = step
	return eval.DumpLogits(ctx, m, ids, out, f.Options)
}

func (a *app) eval(ctx context.Context, path string, f *evalFlags) error {
	m, err := checkpoint.Open(path)
	if err != nil {
		return err
	}
	defer m.Close()
	if f.save != "" {
		if f.SaveRef, err = a.output(f.save, referenceKind, f.force.force, m, append(modelFiles(f.Ref), f.Text)...); err != nil {
			return err
		}
	}
	if err := errors.Join(f.attention.fit(f.Policy, m), a.keep(m, &f.KV, f.Exact)); err != nil {
		return err
	}
	if int64(f.Context) > m.Graph.Context {
		a.warn(fmt.Sprintf("--ctx %d is beyond the %d positions that the model was made for", f.Context, m.Graph.Context))
	}
	a.warnFittedTo(ctx, m, f.Text)
	step, end := a.progress("evaluating", "tokens")
	f.Progress = step
	r, err := eval.Run(ctx, m, f.Options)
	end()
	if err != nil {
		return err
	}
	if f.json {
		return printJSON(a.out, r)
	}
	a.printResult(r)
	return nil
}

func (a *app) printResult(r *eval.Result) {
	t := newTable(2)
	row := func(name, format string, args ...any) { t.AppendRow([]any{name, fmt.Sprintf(format, args...)}) }
	row("model", "%s", clip(r.Model, 70))
	row("text", "%s, %d tokens", clip(r.Text, 70), r.Tokens)
	row("protocol", "%s, %d windows of %d tokens, %d tokens scored", r.Protocol, r.Windows, r.Context, r.Scored)
	row("activations", "%s", r.Activations)
	if r.PagesRead > 0 {
		row("pages read", "%.1f %%, %d steps of a window", 100*r.PagesRead, r.Steps)
	}
	row("speed", "%.0f tokens/s, %.1f s", r.TokensPerS, r.Seconds)
	row("perplexity", "%.4f ± %.4f", r.Perplexity.Value, r.Perplexity.StdErr)
	if c := r.Ref; c != nil {
		row("reference", "%s", clip(c.Name, 70))
		row("its perplexity", "%.4f ± %.4f", c.Perplexity.Value, c.Perplexity.StdErr)
		row("ln of the ratio", "%.6f ± %.6f", c.LogRatio.Value, c.LogRatio.StdErr)
		row("KL mean", "%.6f ± %.6f", c.KL.Value, c.KL.StdErr)
		row("KL median", "%.6f ± %.6f", c.Median.Value, c.Median.StdErr)
		row("KL 90 %", "%.6f ± %.6f", c.P90.Value, c.P90.StdErr)
		row("KL 99 %", "%.6f ± %.6f", c.P99.Value, c.P99.StdErr)
		row("same top token", "%.3f ± %.3f %%", 100*c.Top1.Value, 100*c.Top1.StdErr)
	}
	printTable(a.out, t)
}
