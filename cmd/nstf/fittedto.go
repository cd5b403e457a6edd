package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/nstf/nstf/calibrate"
	"github.com/nstf/nstf/formats/inspect"
	"github.com/nstf/nstf/formats/ledger"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/nstf"
	"github.com/nstf/nstf/formats/stats"
)

// warnFittedTo says where a text to measure on is one that the package was fitted to: what
// is measured on it is too good. The package names its text by the hash of the file, and by
// that of the windows of tokens that were cut of it, whatever file they come from.
func (a *app) warnFittedTo(ctx context.Context, m *model.Model, text string) {
	info, err := os.Stat(text)
	if m.Kind != model.KindNSTF || err != nil || !info.Mode().IsRegular() {
		return // a pipe is read once
	}
	p, err := nstf.OpenStored(m.Path)
	if err != nil {
		return
	}
	defer p.Close()
	from := p.Provenance()
	l, _ := inspect.Ledger(m.Path) // nil: none was kept
	if sameFile(ctx, &from, l, text, info.Size()) || l != nil && a.sameWindows(ctx, m, &from, l, text) {
		of := ""
		if l != nil && strings.HasPrefix(l.Source.Held, heldOut) {
			of = fmt.Sprintf("; %d of its windows were held out, and what they cost stands in nstf inspect --ledger", l.Source.HeldCount)
		}
		a.warn(fmt.Sprintf("%s is the text that the package was calibrated on: measure on another one, for this one flatters it%s", text, of))
	}
}

// heldOut begins the name of what was measured on where it is part of the text.
const heldOut = "held-out windows of "

// sameFile reports whether a text is, byte for byte, that of the package's provenance. A
// text that was given only to measure on is not what was fitted to.
func sameFile(ctx context.Context, p *nstf.Provenance, l *ledger.Ledger, text string, size int64) bool {
	for _, s := range p.Sources {
		if s.Role != "text" || s.Size != size || l != nil && s.Name != l.Source.Text {
			continue
		}
		if _, hash, err := nstf.HashFile(ctx, text); err == nil && hash == s.Hash {
			return true
		}
	}
	return false
}

// sameWindows cuts a text as that of a package was cut, and compares.
func (a *app) sameWindows(ctx context.Context, m *model.Model, p *nstf.Provenance, l *ledger.Ledger, text string) bool {
	f := textFlags{ctx: int(l.Source.Context), seed: l.Source.Seed, samples: -1}
	for _, flag := range p.Flags {
		if n, ok := strings.CutPrefix(flag, "--samples="); ok {
			f.samples, _ = strconv.Atoi(n)
		}
	}
	if l.Source.TextHash == "" || f.samples < 0 || f.check() != nil {
		return false
	}
	windows, err := f.cut(ctx, a, m, text, f.samples)
	if err != nil {
		return false
	}
	fit, _ := calibrate.Split(windows)
	return stats.HashWindows(fit) == l.Source.TextHash
}
