package main

import (
	"fmt"
	"slices"

	"github.com/nstf/nstf/formats/atomicfile"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/plan"
	"github.com/nstf/nstf/formats/work"
)

// check refuses flags that do not go together, and numbers that are none.
func (f *quantizeFlags) check() error {
	if err := f.readSchemes(); err != nil {
		return err
	}
	if err := f.together(); err != nil {
		return err
	}
	if err := f.long.check(f); err != nil {
		return err
	}
	f.bothDevices(&f.on)
	if err := f.on.check(); err != nil {
		return err
	}
	if f.scheme != "" && !f.needsText() && f.on.named() {
		return usagef("--device says where text is run and trellis codes are searched, and --scheme %s takes neither", f.scheme)
	}
	if err := f.numbers(); err != nil {
		return err
	}
	if f.scheme == "" && f.plan == "" {
		if err := f.planFlags.check(); err != nil {
			return err
		}
	}
	return f.text.check()
}

// readSchemes reads the names of schemes, in any case of letters.
func (f *quantizeFlags) readSchemes() (err error) {
	for _, s := range []struct {
		flag string
		name *string
	}{{"--scheme", &f.scheme}, {"--embed-scheme", &f.embed}, {"--head-scheme", &f.head}} {
		if *s.name, err = readScheme(s.flag, *s.name); err != nil {
			return err
		}
	}
	f.schemes, err = readSchemes("--schemes", f.schemes)
	return err
}

// together refuses flags that do not go together.
func (f *quantizeFlags) together() error {
	aims := 0
	for _, set := range []bool{f.bpw != 0, f.size != "", f.maxKLD != 0, f.scheme != "", f.plan != ""} {
		if set {
			aims++
		}
	}
	switch {
	case aims != 1:
		return &usageError{fmt.Errorf("give one of --bpw, --size, --max-kld, --scheme and --plan, not %d of them", aims),
			"--scheme q4_k rounds within seconds; --bpw 4 --calib FILE is more accurate at that size, and takes longer"}
	case f.maxDrift != 0 && f.parallel:
		return usagef("--max-drift needs blocks in order, not --parallel")
	case f.maxDrift != 0 && !f.calibrated():
		return usagef("--max-drift needs text: give --calib")
	case !f.calibrated() && (f.verify != "" || f.memory != "" || f.parallel || f.times):
		return usagef("--verify-text, --memory, --parallel and --ledger-times need text: give --calib")
	case f.scheme == "" && (f.embed != "" || f.head != ""):
		return usagef("--embed-scheme and --head-scheme go with --scheme")
	case f.effort != 0 && f.plan != "":
		return usagef("the plan says the effort: edit it there, --effort goes with the other aims")
	case f.source != "" && f.plan == "":
		return usagef("--source goes with --plan")
	case f.sequential && f.parallel || f.resume && f.discard:
		return usagef("--sequential and --parallel, and --resume and --discard, exclude each other")
	case (f.scheme != "" || f.plan != "") && (len(f.keep) > 0 || f.forms || f.schemes != "all" || f.device != "" || f.objective != "size"):
		return usagef("--keep, --forms, --schemes, --objective and --latency-device go with --bpw, --size and --max-kld")
	}
	return nil
}

// leastKLD is the least divergence that can be asked for, in nats: a model that is executed
// in two ways is some 3e-7 from itself.
const leastKLD = 1e-6

// numbers refuses numbers that cannot be counted with, and reads --memory.
func (f *quantizeFlags) numbers() error {
	switch {
	case !finite(f.bpw) || !finite(f.maxKLD) || !finite(f.maxDrift):
		return usagef("--bpw, --max-kld and --max-drift are finite, and not negative")
	case f.maxKLD > 0 && f.maxKLD < leastKLD:
		return &usageError{fmt.Errorf("--max-kld %g is finer than divergences are measured", f.maxKLD), fmt.Sprintf("%g nats is about what a model diverges from itself by rounding; 0.01 is hard to tell from the model", leastKLD)}
	case f.tries < 1 || f.effort < 0 || f.threads < 0:
		return usagef("--effort and --threads are not negative, and --tries is at least 1")
	case f.memory == "":
		return nil
	}
	var err error
	if f.limit, err = parseSize(f.memory); err != nil {
		return usagef("--memory: %v", err)
	}
	return nil
}

// quantizeTo opens the package to write, nil where none is.
func (a *app) quantizeTo(m *model.Model, f *quantizeFlags, earlier string) (*atomicfile.Output, error) {
	if f.dry || f.part != nil {
		return nil, nil
	}
	out, err := a.packageOutput(f.out, m, append(modelFiles(earlier), f.text.path, f.verify, f.stats, f.plan)...)
	if err != nil {
		return nil, err
	}
	if f.merge {
		if inStore(f.work) {
			return out, nil
		}
		return out, out.Beside(f.work)
	}
	return out, out.Beside(work.Path(f.out.path))
}

// calibrated reports whether text or statistics are used.
func (f *quantizeFlags) calibrated() bool {
	return f.scheme == "" || f.long.wanted() || f.text.path != "" || f.stats != "" || f.needsText()
}

// needsText reports whether a scheme cannot be had by rounding.
func (f *quantizeFlags) needsText() bool {
	return slices.ContainsFunc([]string{f.scheme, f.embed, f.head}, func(s string) bool {
		c, err := plan.ParseCode(s)
		return err == nil && c.Bits > 0
	})
}

// schemeFlags are the flags that --scheme is recorded by.
func (f *quantizeFlags) schemeFlags() []string {
	var out []string
	for _, x := range [][2]string{{"--scheme", f.scheme}, {"--embed-scheme", f.embed}, {"--head-scheme", f.head}} {
		if x[1] != "" {
			out = append(out, x[0]+"="+x[1])
		}
	}
	return out
}
