package main

import (
	"slices"

	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/plan"
	"github.com/nstf/nstf/runtime/place"
)

// check refuses flags that do not go together, and numbers that are none.
func (f *quantizeFlags) check() error {
	if err := f.together(); err != nil {
		return err
	}
	f.bothDevices()
	if err := f.on.check(); err != nil {
		return err
	}
	if f.scheme != "" && !f.needsText() && f.on.named() {
		return usagef("--device says where trellis codes are searched, and --scheme %s has none", f.scheme)
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
		return usagef("give one of --bpw, --size, --max-kld, --scheme and --plan, not %d of them", aims)
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

// numbers refuses numbers that cannot be counted with, and reads --memory.
func (f *quantizeFlags) numbers() error {
	switch {
	case !finite(f.bpw) || !finite(f.maxKLD) || !finite(f.maxDrift):
		return usagef("--bpw, --max-kld and --max-drift are finite, and not negative")
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

// bothDevices takes a device of --objective latency that was given as plan takes it.
func (f *quantizeFlags) bothDevices() {
	if f.objective != "latency" || f.device != "" || !slices.Contains(deviceNames(), f.on.name) {
		return
	}
	if f.device = f.on.name; f.device != thisCPU {
		f.on.name = string(place.Auto)
	}
}

// writable finds out whether the package can be written, unless it is not to be.
func (f *quantizeFlags) writable(m *model.Model, earlier string) error {
	if f.dry {
		return nil
	}
	return writable(f.out, m, f.text.path, f.verify, f.stats, f.plan, earlier)
}

// calibrated reports whether text or statistics are used.
func (f *quantizeFlags) calibrated() bool {
	return f.scheme == "" || f.text.path != "" || f.stats != "" || f.needsText()
}

// needsText reports whether a scheme cannot be had by rounding.
func (f *quantizeFlags) needsText() bool {
	return slices.ContainsFunc([]string{f.scheme, f.embed, f.head}, func(s string) bool { return plan.TrellisBits(s) > 0 })
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
