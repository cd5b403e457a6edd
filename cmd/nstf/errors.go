package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/atomicfile"
	"github.com/nstf/nstf/formats/work"
	"github.com/nstf/nstf/quantize/pipeline"
	"github.com/nstf/nstf/quantize/plan/candidates"
	"github.com/nstf/nstf/runtime/eval"
	"github.com/nstf/nstf/runtime/exec"
	"github.com/nstf/nstf/runtime/generate"
	"github.com/nstf/nstf/runtime/gpu"
	"github.com/nstf/nstf/runtime/gpu/driver"
)

// The exit codes, as `nstf --help` lists them.
const (
	exitFine        = 0
	exitFailure     = 1
	exitUsage       = 2
	exitInput       = 3
	exitUnsupported = 4
	exitInterrupted = 130
)

// errInterrupted is why the context ends at a signal.
var errInterrupted = errors.New("interrupted")

// A usageError says that the command line is wrong.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// usagef makes a usageError.
func usagef(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// exitCode maps an error to the code that the process ends with.
func exitCode(err error) int {
	var usage *usageError
	var rule *candidates.RuleError
	var format *formats.FormatError
	var unsupported *formats.UnsupportedError
	switch {
	case err == nil:
		return exitFine
	case errors.Is(err, errInterrupted), errors.Is(err, context.Canceled):
		return exitInterrupted
	case errors.As(err, &usage), errors.As(err, &rule):
		return exitUsage
	case errors.As(err, &format), errors.Is(err, fs.ErrNotExist):
		return exitInput
	case errors.As(err, &unsupported):
		return exitUnsupported
	}
	return exitFailure
}

// hint returns what the user can do about an error, or "".
func hint(err error) string {
	var usage *usageError
	var unsupported *formats.UnsupportedError
	var full *atomicfile.DiskFullError
	var large *gpu.TooLargeError
	var room *gpu.TrellisMemoryError
	var device *driver.Error
	var bound *pipeline.BoundError
	var drift *pipeline.DriftError
	switch {
	case planHint(err) != "":
		return planHint(err)
	case errors.As(err, &unsupported) && unsupported.Hint != "":
		return unsupported.Hint
	case errors.As(err, &usage):
		return "nstf --help and nstf COMMAND --help show usage and examples"
	case errors.As(err, &large):
		return large.Hint()
	case errors.As(err, &room):
		return room.Hint()
	case errors.As(err, &device) && device.Hint != "":
		return device.Hint
	case errors.As(err, &full):
		return "free some space, or write to another disk"
	case errors.Is(err, exec.ErrContextFull):
		return "give a longer context by --ctx N, or let the oldest text be forgotten by --ctx-shift"
	case errors.Is(err, eval.ErrOtherText):
		return "use the flags that the reference was saved with, or save it again by --save-ref"
	case errors.Is(err, generate.ErrNoPrompt):
		return "give a text by -p, -f or on standard input"
	case errors.Is(err, work.ErrExists):
		return "go on by --resume, or begin anew by --discard"
	case errors.As(err, &drift):
		return "allow more bytes or a larger drift (--max-drift); --discard removes what was finished"
	case errors.As(err, &bound):
		return "allow a larger divergence or more tries (--tries); --discard removes what was tried"
	}
	return ""
}

// printError writes the lines that tell the user what went wrong.
func (a *app) printError(err error) {
	if err == nil {
		return
	}
	fmt.Fprintf(a.err, "error: %v\n", err)
	if h := hint(err); h != "" {
		fmt.Fprintf(a.err, "hint: %s\n", h)
	}
}

// warn writes a line that does not end the command.
func (a *app) warn(text string) { fmt.Fprintf(a.err, "warning: %s\n", text) }
