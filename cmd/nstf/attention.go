package main

import (
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/nstf/nstf/runtime/device"
)

// attentionFlag is how steps attend to the positions behind them.
type attentionFlag struct {
	kind, pages string
	mass        float64
	set         *pflag.FlagSet
}

// Kinds of attention.
const (
	attentionDense  = "dense"
	attentionPolicy = "policy"
)

func (f *attentionFlag) add(s *pflag.FlagSet) {
	f.set = s
	s.StringVar(&f.kind, "attention", attentionDense, "`KIND` of attention: dense, or policy: to chosen pages (processor)")
	s.StringVar(&f.pages, "attention-pages", "10%", "pages that a step reads at most, as a `SHARE`, by a policy")
	s.Float64Var(&f.mass, "attention-mass", 1, "`SHARE` of the estimated weight that is enough, by a policy")
}

// policy returns what the flags ask for, nil for dense attention.
func (f *attentionFlag) policy() (*device.Policy, error) {
	switch f.kind {
	case attentionDense:
		for _, name := range []string{"attention-pages", "attention-mass"} {
			if f.set.Changed(name) {
				return nil, usagef("--%s goes with --attention %s", name, attentionPolicy)
			}
		}
		return nil, nil
	case attentionPolicy:
	default:
		return nil, usagef("--attention %q is not one of %s, %s", f.kind, attentionDense, attentionPolicy)
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
	p.Pages, p.Mass = x, f.mass
	return &p, nil
}
