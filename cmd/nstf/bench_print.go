package main

import (
	"fmt"
	"time"

	"github.com/nstf/nstf/runtime/bench"
	"github.com/nstf/nstf/runtime/place"
)

// spread writes a rate with its percentiles.
func spread(r place.Rate) string {
	return fmt.Sprintf("%s (%s to %s)", figure(r.Median), figure(r.P10), figure(r.P90))
}

// figure writes three digits or more.
func figure(f float64) string {
	switch {
	case f >= 100:
		return fmt.Sprintf("%.0f", f)
	case f >= 10:
		return fmt.Sprintf("%.1f", f)
	}
	return fmt.Sprintf("%.2f", f)
}

func (a *app) printBench(r *bench.Result) {
	t := newTable(2)
	row := func(name, format string, args ...any) {
		t.AppendRow([]any{name, clip(fmt.Sprintf(format, args...), tableWidth-16)})
	}
	row("model", "%s", r.Model)
	row("weights", "%s, %s", count(r.Params), size(r.Bytes))
	memory := "memory"
	if r.Device != "" {
		row("device", "%s", r.Device)
		memory = "copying memory"
	} else {
		row("machine", "%s, %s, %d threads", r.Machine.CPU, r.Machine.Level, r.Threads)
	}
	row("rounds", "%d, medians (10th to 90th percentile)", r.Repeat)
	if p := r.Prompt; p != nil {
		row("prompt", "%s tokens/s, %d tokens", spread(p.Rate), p.Tokens)
		switch {
		case p.Kind != "":
			row("", "%s GFLOP/s, %.1f %% of %s of %s", spread(p.Gops), 100*p.Share, figure(p.Peak.Median), p.Kind)
		case r.Device != "":
			row("", "%s GFLOP/s", spread(p.Gops))
		}
	}
	if d := r.Decode; d != nil {
		row("decode", "%s tokens/s, %d tokens behind %d", spread(d.Rate), d.Tokens, d.Depth)
		row("", "%s GB/s: %s of weights and %s of cache a token", spread(d.GBs), size(d.WeightBytes), size(d.CacheBytes))
		if d.Share > 0 {
			row("", "%.1f %% of %s GB/s of %s%s", 100*d.Share, spread(d.Memory), memory, beyond(d.Share))
		}
		if d.Expected > 0 {
			row("", "%s tokens/s were expected, behind 512 tokens", figure(d.Expected))
		}
		if d.InPlace != nil {
			row("", "%.1f %% of %s GB/s of the weights where they lie", 100*d.InPlaceShare, spread(*d.InPlace))
		}
	}
	if r.FirstToken != nil {
		row("first token", "%s s from the start of the process", spread(*r.FirstToken))
	}
	row("load", "%.3f s", r.LoadS)
	if r.PeakRSS > 0 {
		row("peak memory", "%s, mapped weights included", size(r.PeakRSS))
	}
	printTable(a.out, t)
	for _, k := range r.Kernels {
		fmt.Fprintln(a.out, clip(fmt.Sprintf("%10.1f us %4d x %8.2f us  %s", k.Microseconds, k.Calls, k.Microseconds/float64(k.Calls), k.Name), 4*tableWidth))
	}
}

// beyond says why more than all that memory gives was used.
func beyond(share float64) string {
	if share > 1.005 {
		return ": caches give the rest"
	}
	return ""
}

func (a *app) printProfile(p *place.Profile) {
	t := newTable(2)
	row := func(name, format string, args ...any) { t.AppendRow([]any{name, fmt.Sprintf(format, args...)}) }
	m := &p.Machine
	row("cpu", "%s, %s", m.CPU, m.System)
	row("kernels", "%s", m.Level)
	row("cores", "%d, %d threads, %d memory nodes", m.Cores, m.Threads, m.Nodes)
	for _, c := range m.Caches {
		shared := ""
		if c.Sharing > 1 {
			shared = fmt.Sprintf(", shared by %d threads", c.Sharing)
		}
		row(fmt.Sprintf("L%d", c.Level), "%s%s", size(c.Bytes), shared)
	}
	if m.Memory > 0 {
		row("memory", "%s", size(m.Memory))
	}
	row("measured", "%s, medians (10th to 90th percentile)", p.Measured.Local().Format(time.DateTime))
	row("read", "%s GB/s by 1 thread, %s by %d, of %s", spread(p.ReadOne), spread(p.ReadAll), p.Threads, size(p.Buffer))
	for _, k := range p.Peaks {
		row(k.Kind, "%s GFLOP/s by 1 thread, %s by %d", spread(k.One), spread(k.All), p.Threads)
	}
	printTable(a.out, t)
}
