package main

import (
	"fmt"
	"time"

	"github.com/nstf/nstf/formats/ledger"
	"github.com/nstf/nstf/quantize/pipeline"
)

// sayGuessed says what a forecast lacks that was made before the model was measured.
func (a *app) sayGuessed(f *quantizeFlags) {
	tries := ""
	if f.maxKLD > 0 && f.tries > 1 {
		tries = fmt.Sprintf(" time is that of the first of at most %d tries;", f.tries)
	}
	fmt.Fprintf(a.err, "nothing was measured:%s the divergence is predicted with --stats FILE of nstf calibrate, and by nstf plan\n", tries)
}

func (a *app) printForecast(f *pipeline.Forecast, asJSON bool) error {
	if asJSON {
		return printJSON(a.out, f)
	}
	t := newTable(2)
	row := func(name, format string, args ...any) { t.AppendRow([]any{name, fmt.Sprintf(format, args...)}) }
	if f.Bytes > 0 {
		row("tensors", "%s, %.3f bits per weight", size(f.Bytes), f.BPW)
	} else {
		row("tensors", "as few bytes as keep the divergence: known when the model is measured")
	}
	if f.KLD > 0 {
		row("predicted divergence", "%.4g nats", f.KLD)
	}
	row("time", "about %s", (time.Duration(f.Seconds * float64(time.Second))).Round(time.Second))
	row("memory", "%s", size(f.Memory))
	row("disk", "%s, the package included", size(f.Disk))
	if f.Device > 0 {
		row("GPU memory", "%s", size(f.Device))
	}
	printTable(a.out, t)
	return nil
}

func (a *app) printOutcome(o *pipeline.Outcome, asJSON bool) error {
	for _, w := range o.Warnings {
		a.warn(w)
	}
	if asJSON {
		return printJSON(a.out, o)
	}
	a.printEncoded(o.Report)
	t := newTable(2)
	row := func(name, format string, args ...any) { t.AppendRow([]any{name, fmt.Sprintf(format, args...)}) }
	if p := o.Plan.Predicted.KLD; p > 0 {
		row("predicted divergence", "%.4g nats", p)
	}
	if m := o.Measured; m != nil {
		row("measured divergence", "%s nats, noise floor %.2g", plusMinus(m.KLD), m.Floor.Mean)
		row("perplexity", "%s, was %s", plusMinus(m.Perplexity), plusMinus(m.Original))
		row("same top token", "%.2f ± %.2f %%", 100*m.Top1.Mean, 100*m.Top1.SE)
		row("measured on", "%d windows, %s", o.Ledger.Source.HeldCount, clip(o.Ledger.Source.Held, 60))
	}
	for i, try := range o.Tries {
		row(fmt.Sprintf("try %d", i+1), "%s of tensors, predicted %.4g, measured %.4g, at most %.4g", size(try.Bytes), try.Predicted, try.Measured, try.Bound)
	}
	printTable(a.out, t)
	if o.Kept != nil {
		fmt.Fprintln(a.out)
		a.printKept(o.Kept)
	}
	if o.Policy != nil {
		fmt.Fprintln(a.out)
		a.printPolicy(o.Policy)
	}
	if n := len(o.Ledger.Experts); n > 0 {
		a.warn(fmt.Sprintf("%d experts saw too few tokens of the calibration text: nstf inspect --ledger lists them", n))
	}
	return nil
}

func plusMinus(f ledger.Figure) string { return fmt.Sprintf("%.4g ± %.2g", f.Mean, f.SE) }
