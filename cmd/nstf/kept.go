package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/nstf/nstf/calibrate"
	"github.com/nstf/nstf/formats/attention"
	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/nstf"
)

// keptBy returns how a model keeps keys and values where flags do not say: as its package
// does, which chose is nil without.
func keptBy(m *model.Model, kv string, exact bool) (list string, chose *attention.Kept, err error) {
	if kv != "" || exact {
		return kv, nil, nil
	}
	if chose, err = measured(m, "", nstf.KVFile, attention.ParseKept, attention.ReadKept); err != nil || chose == nil {
		return kv, nil, err
	}
	if err := chose.Fits(m.Path+": "+nstf.KVFile, len(m.Graph.Blocks)); err != nil {
		return "", nil, err
	}
	return chose.List(), chose, nil
}

// keep is keptBy for commands that tell people.
func (a *app) keep(m *model.Model, kv *string, exact bool) error {
	list, chose, err := keptBy(m, *kv, exact)
	if err != nil || chose == nil {
		return err
	}
	*kv = list
	fmt.Fprintf(a.err, "%s\n", describeKept(chose))
	return nil
}

// describeKept says in a line how a package has keys and values kept.
func describeKept(k *attention.Kept) string {
	return fmt.Sprintf("keys and values as the package says: %s, %.3f bits, KL %.5f measured (--kv overrides)", clip(keptList(k), 60), k.Measured.Bits, k.Measured.KLD)
}

// keptList is what was chosen, runs of blocks together.
func keptList(k *attention.Kept) string {
	var runs []string
	for i, n := 0, 0; i < len(k.Chosen); i += n {
		for n = 1; i+n < len(k.Chosen) && k.Chosen[i+n] == k.Chosen[i]; n++ {
		}
		run := k.Chosen[i]
		if n > 1 {
			run = fmt.Sprintf("%s*%d", run, n)
		}
		runs = append(runs, run)
	}
	return strings.Join(runs, ",")
}

// mostKeptWindow is the most tokens of a window that keys and values are measured on where
// nobody says.
const mostKeptWindow = 4096

// calibrateKept chooses bits of keys and values.
func (a *app) calibrateKept(ctx context.Context, src string, f *calibrateFlags) error {
	begin := time.Now()
	m, err := checkpoint.Open(src)
	if err != nil {
		return err
	}
	defer m.Close()
	out, err := a.output(f.out.path, keptKind, f.out.force, m, f.text.path)
	if err != nil {
		return err
	}
	if !f.text.set.Changed("ctx") {
		f.text.ctx = int(min(m.Graph.Context, mostKeptWindow))
	}
	if !f.text.set.Changed("samples") {
		f.text.samples = attentionWindows
	}
	windows, held, err := a.windows(ctx, m, &f.text)
	if err != nil {
		return err
	}
	o := calibrate.KeptOptions{Options: calibrate.Options{Threads: f.threads, Text: f.text.name()}, Bits: f.kept.bits, KLD: f.kept.kld}
	step, end := a.progress("measuring blocks", "windows")
	o.Progress = step
	k, err := calibrate.Kept(ctx, m, windows, held, o)
	end()
	if err != nil {
		return err
	}
	if err := k.Write(out); err != nil {
		return err
	}
	if f.json {
		return printJSON(a.out, k)
	}
	a.printKept(k)
	fmt.Fprintf(a.out, "\n%s, %.1f s\n", f.out.path, time.Since(begin).Seconds())
	return nil
}

// printKept shows what was chosen, and what each block loses.
func (a *app) printKept(k *attention.Kept) {
	t := newTable(2)
	s := &k.Source
	t.AppendRow([]any{"measured on", fmt.Sprintf("%s, windows of %d tokens, %d to fit and %d held out", clip(s.Text, 50), s.Context, s.Windows, s.Held)})
	t.AppendRow([]any{"keys and values", clip(keptList(k), 80)})
	t.AppendRow([]any{"bits of a number", fmt.Sprintf("%.3f", k.Measured.Bits)})
	t.AppendRow([]any{"KL from " + k.Formats[0], fmt.Sprintf("%.5f ± %.5f", k.Measured.KLD, k.Measured.SE)})
	t.AppendRow([]any{"same top token", fmt.Sprintf("%.1f %%", 100*k.Measured.Top1)})
	printTable(a.out, t)
	fmt.Fprintln(a.out)
	header := []any{"block", "kept in"}
	for _, f := range k.Formats[1:] {
		header = append(header, "KL "+f)
	}
	t = newTable(2, header...)
	for i := range k.Blocks {
		b := &k.Blocks[i]
		row := []any{b.Block, k.Chosen[b.Block]}
		for _, x := range b.KLD[1:] {
			row = append(row, fmt.Sprintf("%.6f", x))
		}
		t.AppendRow(row)
	}
	printTable(a.out, t)
}
