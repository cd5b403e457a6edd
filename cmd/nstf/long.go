package main

import (
	"context"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/nstf/nstf/calibrate"
	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/corpus"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/quantize/pipeline"
	"github.com/nstf/nstf/runtime/device"
)

// keptFlags bound how keys and values are kept.
type keptFlags struct{ bits, kld float64 }

func (f *keptFlags) add(s *pflag.FlagSet) {
	s.Float64Var(&f.bits, "kv-bpw", 0, "choose how keys and values are kept: bits of a number at most")
	s.Float64Var(&f.kld, "kv-kld", 0, "choose how keys and values are kept: KL divergence at most")
}

// given reports whether there is a bound.
func (f *keptFlags) given() bool { return f.bits != 0 || f.kld != 0 }

func (f *keptFlags) check() error {
	switch {
	case !(f.bits >= 0 && f.bits <= 32) || !(f.kld >= 0 && f.kld <= 100):
		return usagef("--kv-bpw is from 0 to 32 bits, --kv-kld a divergence from 0 to 100")
	case f.bits > 0 && f.kld > 0:
		return usagef("--kv-bpw and --kv-kld are two bounds of one choice: give one")
	}
	return nil
}

// longFlags say what quantize measures for long contexts.
type longFlags struct {
	keptFlags
	policy          bool
	window, samples int
}

func (f *longFlags) add(s *pflag.FlagSet) {
	s.BoolVar(&f.policy, "long-context", false, "measure a policy of attention, and bits for keys and values, into the package")
	f.keptFlags.add(s)
	s.IntVar(&f.window, "long-window", 0, fmt.Sprintf("tokens of a window that these are measured on; 0: the model's context, up to %d", mostAttentionWindow))
	s.IntVar(&f.samples, "long-samples", attentionWindows, "windows of the text that these are measured on")
}

// wanted reports whether something is measured.
func (f *longFlags) wanted() bool { return f.policy || f.given() }

// Where nobody says: the divergence that bits of keys and values keep to, and the steps of a
// window that heads are measured in.
const (
	longKLD   = 0.001
	longSteps = 32
)

func (f *longFlags) check(q *quantizeFlags) error {
	if err := f.keptFlags.check(); err != nil {
		return err
	}
	switch {
	case !f.wanted() && (f.window != 0 || f.samples != attentionWindows):
		return usagef("--long-window and --long-samples go with --long-context, --kv-bpw and --kv-kld")
	case !f.wanted():
		return nil
	case q.text.path == "" || q.text.path == corpus.Standard:
		return usagef("long contexts are measured on long text, which is read twice: give --calib FILE")
	case q.dry || q.memory != "":
		return usagef("--dry-run and --memory do not foretell what --long-context, --kv-bpw and --kv-kld take")
	case f.samples < 2 || f.samples > maxTokens || f.window < 0 || f.window > maxTokens:
		return usagef("--long-samples is 2 at least, of which one is held out, and --long-window not negative")
	case f.window > 0 && f.window < f.least():
		return usagef("--long-window %d: %d tokens are the least", f.window, f.least())
	}
	return nil
}

// least is how many tokens a window has at least.
func (f *longFlags) least() int {
	if f.policy {
		return max(calibrate.KeptLeast, calibrate.AttentionLeast(longSteps))
	}
	return calibrate.KeptLeast
}

// flags are those that decided something.
func (f *longFlags) flags() (out []string) {
	if f.policy {
		out = append(out, "--long-context")
	}
	if f.bits > 0 {
		out = append(out, fmt.Sprintf("--kv-bpw=%g", f.bits))
	}
	if f.kld > 0 {
		out = append(out, fmt.Sprintf("--kv-kld=%g", f.kld))
	}
	if f.window > 0 {
		out = append(out, fmt.Sprintf("--long-window=%d", f.window))
	}
	return append(out, fmt.Sprintf("--long-samples=%d", f.samples))
}

// cut returns what is measured, nil where nothing is.
func (f *longFlags) cut(ctx context.Context, a *app, m *model.Model, text textFlags) (*pipeline.Long, error) {
	if !f.wanted() {
		return nil, nil
	}
	l := &pipeline.Long{Text: text.name(), Bits: f.bits, KLD: f.kld, Steps: longSteps, Pages: attentionPages(), LayerPages: layerPages}
	if !f.given() {
		l.KLD = longKLD
	}
	if err := calibrate.CheckKept(m, f.bits); err != nil {
		return nil, err
	}
	if f.policy {
		p := device.DefaultPolicy()
		if err := p.Check(m.Graph); err != nil {
			return nil, err
		}
	}
	windows := func(most, least int) (fit, held [][]int32, err error) {
		w := text
		w.samples, w.ctx = f.samples, min(int(m.Graph.Context), most)
		if f.window > 0 {
			w.ctx = min(f.window, most)
		}
		if w.ctx < least { // before anything is fitted
			return nil, nil, formats.Unsupportedf(m.Path, "", "long contexts of a model whose context is %d: windows of %d tokens are the least", m.Graph.Context, least)
		}
		all, err := w.cut(ctx, a, m, w.path, w.samples)
		if err != nil {
			return nil, nil, err
		}
		fit, held = calibrate.Split(all)
		return fit, held, nil
	}
	var err error
	if l.Kept, l.KeptHeld, err = windows(mostKeptWindow, calibrate.KeptLeast); err != nil || !f.policy {
		return l, err
	}
	l.Windows, l.Held, err = windows(max(f.window, mostAttentionWindow), calibrate.AttentionLeast(longSteps))
	return l, err
}
