package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/nstf/nstf/calibrate"
	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/stats"
)

// calibrateFlags are the flags of calibrate.
type calibrateFlags struct {
	text        textFlags
	device      deviceFlag
	out         outputFlag
	memory      string
	merge       []string
	threads     int
	sensitivity bool
	json        bool
	limit       int64 // --memory in bytes
	attention   bool
	steps       int
	kv          string
	kept        keptFlags
}

func (a *app) calibrateCommand() *cobra.Command {
	var f calibrateFlags
	c := &cobra.Command{
		Use: "calibrate SRC -o OUT", Short: "Measure what a model's matrices read, and what errors in them cost", Args: cobra.ExactArgs(1),
		Long: `Run text through a model, block by block, and write statistics that plan and quantize take
by --stats, so that any number of target sizes cost one calibration: the second moments and
the largest values of what each matrix reads, of each expert of a mixture too, and how much
KL divergence an error in each matrix costs. An eighth of the text is held out, as quantize
holds it out with the same flags.

FILE is plain text, .jsonl with a "text" or chat "messages" per line, or .parquet with such
a column; conversations are rendered with the model's chat template. It should be like what
the model will read. Without --calib a small mixed text is taken.

A GPU runs the text and sums up what matrices read where --device names one or, with auto,
one is found; the statistics differ from the processor's in the last digits of float32,
and are the same from run to run on one device. The card holds the weights of one block,
the sums of one input at least, and as many hidden states as have room.

--attention writes something else: a policy of attention, in JSON, for run, serve, eval and
bench. It measures on the processor what each key-value head loses where its steps read few
pages of keys and values, on windows as long as --ctx says, and what all of them lose
together, on those that are held out; and the same of prompts, whose queries choose pages in
blocks of 64. Read for this many tokens, and be patient.

--kv-bpw and --kv-kld write something else too: a choice of bits for the keys and values of each
block, in JSON, for convert --kv. Every block is measured alone in each format, at the end of
windows as long as --ctx says; the choice is that of the least loss in so many bits a number, or
of the fewest bits that lose no more on windows that are held out.

--merge adds statistics of the same model on other text. --memory bounds what hidden states
and finished statistics take of the processor's memory; what is beyond lies in temporary
files beside OUT. The weights and the moments of one block come on top.`,
		Example: "  nstf calibrate ./Llama-3.2-1B --calib text.jsonl -o llama.nstats\n  nstf quantize ./Llama-3.2-1B --stats llama.nstats --calib text.jsonl --bpw 4 -o llama-4bit.nstf",
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.check(); err != nil {
				return err
			}
			if f.kept.given() {
				return a.calibrateKept(c.Context(), args[0], &f)
			}
			if f.attention {
				return a.calibrateAttention(c.Context(), args[0], &f)
			}
			return a.calibrate(c.Context(), args[0], &f)
		},
	}
	s := c.Flags()
	f.out.add(s, "file to write")
	f.text.add(s)
	f.device.add(s)
	s.StringArrayVar(&f.merge, "merge", nil, "add the statistics of this file; may be repeated")
	s.BoolVar(&f.sensitivity, "sensitivity", true, "measure what errors cost; without it plans are made by errors alone")
	s.StringVar(&f.memory, "memory", "", "memory for hidden states and statistics, such as 4GiB; default: all")
	s.BoolVar(&f.attention, "attention", false, "measure a policy of attention")
	s.IntVar(&f.steps, "steps", 32, "tokens at the end of each window that are run one by one, with --attention")
	s.StringVar(&f.kv, "kv", "", "how keys and values are kept, with --attention")
	f.kept.add(s)
	s.IntVarP(&f.threads, "threads", "t", 0, "threads; 0: one per core")
	s.BoolVar(&f.json, "json", false, "print a JSON report")
	c.MarkFlagRequired("output")
	return c
}

func (f *calibrateFlags) check() error {
	if err := f.text.check(); err != nil {
		return err
	}
	if err := f.device.check(); err != nil {
		return err
	}
	switch {
	case f.threads < 0:
		return usagef("--threads is not negative")
	case f.kept.given() && (f.attention || len(f.merge) > 0 || f.memory != "" || f.device.named()):
		return usagef("bits of keys and values are chosen on the processor, and without --attention, --device, --merge and --memory")
	case f.attention && (len(f.merge) > 0 || f.memory != "" || f.device.named()):
		return usagef("--attention is measured on the processor, and takes neither --device nor --merge and --memory")
	case !f.attention && f.kv != "":
		return usagef("--kv goes with --attention")
	case f.steps < 2:
		return usagef("--steps %d: at least 2 are needed", f.steps)
	case f.kept.given() && f.text.set.Changed("ctx") && f.text.ctx < calibrate.KeptLeast:
		return usagef("--ctx %d: bits of keys and values are chosen by longer windows, of %d tokens at least", f.text.ctx, calibrate.KeptLeast)
	case f.attention && f.text.set.Changed("ctx") && f.text.ctx < calibrate.AttentionLeast(f.steps):
		return usagef("--ctx %d: heads are measured on longer windows, of %d tokens at least with --steps %d", f.text.ctx, calibrate.AttentionLeast(f.steps), f.steps)
	}
	if err := f.kept.check(); err != nil {
		return err
	}
	if err := checkKV(f.kv); err != nil {
		return err
	}
	if f.memory == "" {
		return nil
	}
	var err error
	if f.limit, err = parseSize(f.memory); err != nil {
		return usagef("--memory: %v", err)
	}
	return nil
}

// A calibrationReport is what calibrate prints.
type calibrationReport struct {
	File        string                 `json:"file"`
	Source      stats.Source           `json:"source"`
	HeldOut     int                    `json:"held_out_windows"`
	Inputs      int                    `json:"inputs"`
	Seconds     float64                `json:"seconds"`
	Sensitivity map[string]float64     `json:"sensitivity,omitempty"`
	Experts     []stats.ExpertCoverage `json:"experts,omitempty"`
}

func (a *app) calibrate(ctx context.Context, src string, f *calibrateFlags) error {
	begin := time.Now()
	m, err := checkpoint.Open(src)
	if err != nil {
		return err
	}
	defer m.Close()
	out, err := a.output(f.out.path, statisticsKind, f.out.force, m, append(f.merge, f.text.path)...)
	if err != nil {
		return err
	}
	merge, err := f.others(m)
	defer func() {
		for _, s := range merge {
			s.Close()
		}
	}()
	if err != nil {
		return err
	}
	windows, held, err := a.windows(ctx, m, &f.text)
	if err != nil {
		return err
	}
	on, err := a.opened(&f.device, m, windows)
	if err != nil {
		return err
	}
	defer on.Close()
	o := calibrate.Options{Threads: f.threads, On: on, Memory: f.limit, Dir: filepath.Dir(f.out.path)}
	s, err := a.measure(ctx, m, windows, &f.text, o, f.sensitivity)
	if err != nil {
		return err
	}
	defer s.Close()
	if f.sensitivity && len(merge) == 0 {
		a.warnFew(s.Source.Tokens)
	}
	for _, other := range merge {
		if s, err = stats.Merge(s, other); err != nil {
			return err
		}
	}
	if err := s.Write(out); err != nil {
		return err
	}
	r := calibrationReport{File: f.out.path, Source: s.Source, HeldOut: len(held), Inputs: len(s.Inputs), Seconds: time.Since(begin).Seconds(),
		Sensitivity: s.Sensitivity, Experts: s.Coverage()}
	if f.json {
		return printJSON(a.out, &r)
	}
	a.printCalibration(&r)
	return nil
}

// others opens the statistics that are to be merged.
func (f *calibrateFlags) others(m *model.Model) (out []*stats.File, err error) {
	for _, path := range f.merge {
		s, err := stats.Open(path)
		if err != nil {
			return out, err
		}
		out = append(out, s)
		if err := s.Check(m); err != nil {
			return out, err
		}
	}
	return out, nil
}

// measure measures what matrices read of a text's windows, and, where sensitivity
// is set, what errors in them cost.
func (a *app) measure(ctx context.Context, m *model.Model, windows [][]int32, text *textFlags, o calibrate.Options, sensitivity bool) (*stats.File, error) {
	o.Text, o.Seed, o.Tool = text.name(), uint64(text.seed), toolName()
	step, end := a.progress("calibrating", "blocks")
	o.Progress = step
	s, err := calibrate.Measure(ctx, m, windows, o)
	end()
	if err != nil || !sensitivity {
		return s, err
	}
	step, end = a.progress("measuring sensitivities", "steps")
	o.Progress = step
	err = calibrate.Sensitivities(ctx, m, s, windows, calibrate.SensitivityOptions{Options: o})
	end()
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (a *app) printCalibration(r *calibrationReport) {
	t := newTable(2)
	row := func(name, format string, args ...any) { t.AppendRow([]any{name, fmt.Sprintf(format, args...)}) }
	row("model", "%s", clip(r.Source.Model, 70))
	row("text", "%s, %d windows, %d tokens; %d windows held out", clip(r.Source.Text, 50), r.Source.Windows, r.Source.Tokens, r.HeldOut)
	row("inputs", "%d", r.Inputs)
	row("time", "%.1f s", r.Seconds)
	row("statistics", "%s", r.File)
	printTable(a.out, t)
	a.printSensitivities(r.Sensitivity)
	a.printCoverage(r.Experts)
}

// printSensitivities shows the tensors whose errors cost most.
func (a *app) printSensitivities(all map[string]float64) {
	if len(all) == 0 {
		return
	}
	const most = 5
	names := make([]string, 0, len(all))
	for name := range all {
		names = append(names, name)
	}
	slices.SortFunc(names, func(x, y string) int { return cmp.Or(cmp.Compare(all[y], all[x]), cmp.Compare(x, y)) })
	fmt.Fprintln(a.out)
	t := newTable(1, "most sensitive", "KL of a 1 % error")
	for _, name := range names[:min(most, len(names))] {
		t.AppendRow([]any{clip(name, 60), fmt.Sprintf("%.6f", all[name]/100)})
	}
	printTable(a.out, t)
}

// printCoverage names the experts that lack tokens.
func (a *app) printCoverage(all []stats.ExpertCoverage) {
	if len(all) == 0 {
		return
	}
	fmt.Fprintln(a.out)
	t := newTable(1, "what experts read", "experts", "least tokens", "shrunk", "never routed to")
	for _, c := range all {
		t.AppendRow([]any{clip(c.Input, 40), len(c.Tokens), slices.Min(c.Tokens), len(c.Shrunk), len(c.Block)})
	}
	printTable(a.out, t)
}
