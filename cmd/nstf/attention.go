package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/nstf/nstf/calibrate"
	"github.com/nstf/nstf/formats/attention"
	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/nstf"
	"github.com/nstf/nstf/runtime/device"
	"github.com/nstf/nstf/runtime/exec"
)

// attentionFlag is how steps attend to the positions behind them.
type attentionFlag struct {
	kind, pages string
	file        string // of a policy that was measured, "" for none
	mass        float64
	least       int64
	kvHost      string // size
	set         *pflag.FlagSet
}

// Kinds of attention.
const (
	attentionDense  = "dense"
	attentionPolicy = "policy"
)

func (f *attentionFlag) add(s *pflag.FlagSet) {
	f.set = s
	s.StringVar(&f.kind, "attention", attentionDense, "`KIND` of attention: dense, policy, or FILE.json of one")
	s.StringVar(&f.pages, "attention-pages", "10%", "pages that a step or block of a prompt reads, as a `SHARE`, by a policy")
	s.Float64Var(&f.mass, "attention-mass", 1, "`SHARE` of the estimated weight that is enough, by a policy")
	s.StringVar(&f.kvHost, "kv-host", "0", "`SIZE` of the host's memory for keys and values that one GPU has no\nroom for, such as 32GiB, by a policy; of serve: for each model")
	s.Int64Var(&f.least, "attention-least", 0, "`N` positions that a policy reads whole; default: while that is faster")
}

// policy returns what the flags ask for, nil for dense attention.
func (f *attentionFlag) policy() (*device.Policy, error) {
	switch f.kind {
	case attentionDense:
		for _, name := range []string{"attention-pages", "attention-mass", "attention-least", "kv-host"} {
			if f.set.Changed(name) {
				return nil, usagef("--%s goes with --attention %s", name, attentionPolicy)
			}
		}
		return nil, nil
	case attentionPolicy:
	default:
		if !strings.HasSuffix(f.kind, ".json") {
			return nil, usagef("--attention %q is not %s, %s or a file FILE.json", f.kind, attentionDense, attentionPolicy)
		}
		f.file = f.kind
	}
	p := device.DefaultPolicy()
	text, percent := strings.CutSuffix(strings.TrimSpace(f.pages), "%")
	x, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if percent {
		x /= 100
	}
	if err != nil || !(x > 0 && x <= 1) {
		return nil, usagef("--attention-pages %q is not a share above 0 and up to 100%%", f.pages)
	}
	if !(f.mass > 0 && f.mass <= 1) {
		return nil, usagef("--attention-mass %g is not a share above 0 and up to 1", f.mass)
	}
	if f.least != 0 && f.least < device.PolicyPage {
		return nil, usagef("--attention-least %d is less than a page of %d positions", f.least, device.PolicyPage)
	}
	if _, err := f.hosted(); err != nil {
		return nil, err
	}
	p.Pages, p.Mass, p.Least = x, f.mass, f.least
	return &p, nil
}

// hosted returns the bytes of --kv-host.
func (f *attentionFlag) hosted() (int64, error) {
	if f.kvHost == "" || f.kvHost == "0" {
		return 0, nil
	}
	n, err := parseSize(f.kvHost)
	if err != nil {
		return 0, usagef("--kv-host: %v", err)
	}
	return n, nil
}

// on has a device that the flags were checked for keep keys and values as they say.
func (f *attentionFlag) on(d exec.Device) exec.Device {
	d.KVHost, _ = f.hosted() // checked
	return d
}

// fit has a policy take the shares of heads from the file that the flags name, or from
// the package, where it has one.
func (f *attentionFlag) fit(p *device.Policy, m *model.Model) error {
	if p == nil {
		return nil
	}
	file, read := f.file, func() (*attention.Policy, error) { return attention.Read(f.file) }
	if file == "" {
		i := slices.IndexFunc(m.Files, func(x model.File) bool { return x.Name == nstf.AttentionFile })
		if i < 0 {
			return nil
		}
		file = m.Path + ": " + nstf.AttentionFile
		read = func() (*attention.Policy, error) { return attention.Parse(file, m.Files[i].Data) }
	}
	measured, err := read()
	if err != nil {
		return err
	}
	heads := calibrate.PolicyHeads(m)
	if err := measured.Fits(file, heads); err != nil {
		return err
	}
	p.Heads = measured.Shares(len(heads), p.Pages)
	p.Prompts = measured.ForPrompts(len(heads), p.Pages)
	return nil
}

// attentionPages are the shares of pages that calibrate measures.
func attentionPages() []float64 { return []float64{0.1, 0.2, 0.3} }

// calibrateAttention measures a policy.
func (a *app) calibrateAttention(ctx context.Context, src string, f *calibrateFlags) error {
	begin := time.Now()
	m, err := checkpoint.Open(src)
	if err != nil {
		return err
	}
	defer m.Close()
	out, err := a.output(f.out.path, policyKind, f.out.force, m, f.text.path)
	if err != nil {
		return err
	}
	if !f.text.set.Changed("ctx") {
		f.text.ctx = int(min(m.Graph.Context, mostAttentionWindow))
	}
	if !f.text.set.Changed("samples") {
		f.text.samples = attentionWindows
	}
	windows, held, err := a.windows(ctx, m, &f.text)
	if err != nil {
		return err
	}
	o := calibrate.AttentionOptions{Options: calibrate.Options{Threads: f.threads, Text: f.text.name()}, KV: f.kv, Steps: f.steps, Pages: attentionPages()}
	step, end := a.progress("measuring heads", "runs")
	o.Progress = step
	p, err := calibrate.Attention(ctx, m, windows, held, o)
	end()
	if err != nil {
		return err
	}
	if err := p.Write(out); err != nil {
		return err
	}
	if f.json {
		return printJSON(a.out, p)
	}
	a.printPolicy(p)
	fmt.Fprintf(a.out, "\n%s, %.1f s\n", f.out.path, time.Since(begin).Seconds())
	return nil
}

// What is measured where nobody says: windows, and the most tokens of each.
const (
	attentionWindows    = 4
	mostAttentionWindow = 16384
)

// printPolicy shows what a policy promises, and the heads that lose most.
func (a *app) printPolicy(p *attention.Policy) {
	t := newTable(2)
	s := &p.Source
	t.AppendRow([]any{"measured on", fmt.Sprintf("%s, windows of %d tokens, %d to fit and %d held out", clip(s.Text, 50), s.Context, s.Windows, s.Held)})
	t.AppendRow([]any{"heads", fmt.Sprintf("%d, each at %d shares of its pages", len(p.Heads), len(p.Grid))})
	printTable(a.out, t)
	fmt.Fprintln(a.out)
	for i, points := range [][]attention.Point{p.Measured, p.Prompts} {
		if len(points) == 0 {
			continue
		}
		t = newTable(1, "pages asked for", []string{"read by steps", "read by prompts"}[i], "KL from dense", "same top token")
		for _, x := range points {
			t.AppendRow([]any{fmt.Sprintf("%.1f %%", 100*x.Pages), fmt.Sprintf("%.1f %%", 100*x.Read), fmt.Sprintf("%.5f ± %.5f", x.KLD, x.SE), fmt.Sprintf("%.1f %%", 100*x.Top1)})
		}
		printTable(a.out, t)
		fmt.Fprintln(a.out)
	}
	const most = 5
	heads := slices.Clone(p.Heads)
	slices.SortStableFunc(heads, func(x, y attention.Head) int {
		switch {
		case x.KLD[0] > y.KLD[0]:
			return -1
		case x.KLD[0] < y.KLD[0]:
			return 1
		}
		return 0
	})
	t = newTable(1, "needs most", fmt.Sprintf("KL with %g %% of its pages", 100*p.Grid[0]))
	for _, h := range heads[:min(most, len(heads))] {
		t.AppendRow([]any{fmt.Sprintf("block %d, head %d", h.Block, h.Head), fmt.Sprintf("%.5f", h.KLD[0])})
	}
	printTable(a.out, t)
}
