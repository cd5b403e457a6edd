package main

import (
	"fmt"
	"strings"

	"github.com/nstf/nstf/formats/inspect"
	"github.com/nstf/nstf/formats/ledger"
)

// inspectLedger shows the ledger of a package.
func (a *app) inspectLedger(path string, asJSON bool) error {
	l, err := inspect.Ledger(path)
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(a.out, l)
	}
	a.printLedgerHead(l)
	t := newTable(2, "tensor", "recipe", "bits", "predicted", "obtained", "loss", "method", "next", "its loss")
	for i := range l.Tensors {
		x := &l.Tensors[i]
		if x.Method == "" && x.RunnerUp == nil {
			continue // nothing was done and nothing was to be chosen
		}
		row := []any{clip(x.Name, 28), clip(x.Recipe, 13), fmt.Sprintf("%.2f", x.Bits), small(x.Predicted), small(x.Obtained), small(x.Loss), clip(x.Method, 8), "", ""}
		if r := x.RunnerUp; r != nil {
			row[7], row[8] = clip(r.Recipe, 7), small(r.Loss)
		}
		t.AppendRow(row)
	}
	fmt.Fprintln(a.out)
	printTable(a.out, t)
	a.printLayers(l.Layers)
	return nil
}

// printLedgerHead writes what a ledger says of the model as a whole.
func (a *app) printLedgerHead(l *ledger.Ledger) {
	t := newTable(2)
	row := func(name, format string, args ...any) {
		t.AppendRow([]any{name, clip(fmt.Sprintf(format, args...), tableWidth-24)})
	}
	s, m := &l.Source, &l.Model
	row("model", "%s, %.16s", s.Model, s.Hash)
	row("fitted on", "%d windows of %d tokens, %s", s.Windows, s.Context, s.Text)
	row("measured on", "%d windows, %s", s.HeldCount, s.Held)
	row("size of tensors", "%s, %.3f bits per weight", size(m.Bytes), m.BPW)
	if m.PredictedKLD > 0 {
		row("predicted divergence", "%.4g nats", m.PredictedKLD)
	}
	for _, f := range []struct {
		name   string
		figure *ledger.Figure
		scale  float64
		unit   string
	}{{"measured divergence", m.KLD, 1, "nats"}, {"noise floor", m.Floor, 1, "nats"}, {"perplexity", m.Perplexity, 1, ""},
		{"original's", m.Original, 1, ""}, {"same top token", m.Top1, 100, "%"}} {
		if f.figure != nil {
			row(f.name, "%s", strings.TrimSpace(fmt.Sprintf("%s %s", plusMinus(ledger.Figure{Mean: f.scale * f.figure.Mean, SE: f.scale * f.figure.SE}), f.unit)))
		}
	}
	if n := len(l.Blocks); n > 0 {
		row("drift", "%.3g behind block %d, %.3g behind block %d", l.Blocks[0].Drift, l.Blocks[0].Index, l.Blocks[n-1].Drift, l.Blocks[n-1].Index)
	}
	for _, n := range l.Notes {
		t.AppendRow([]any{"note", wrap(strings.Fields(n))})
	}
	for _, e := range l.Experts {
		row("expert", "%d of %s: %d tokens, used %s", e.Expert, e.Input, e.Tokens, e.Used)
	}
	printTable(a.out, t)
}
