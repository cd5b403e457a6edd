package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/atomicfile"
	"github.com/nstf/nstf/formats/hub"
	"github.com/nstf/nstf/formats/work"
	"github.com/nstf/nstf/quantize/pipeline"
	"github.com/nstf/nstf/quantize/plan/candidates"
	"github.com/nstf/nstf/runtime/eval"
	"github.com/nstf/nstf/runtime/exec"
	"github.com/nstf/nstf/runtime/generate"
	"github.com/nstf/nstf/runtime/gpu"
	"github.com/nstf/nstf/runtime/gpu/driver"
	"github.com/nstf/nstf/runtime/serve"
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
type usageError struct {
	err  error
	hint string // what was meant, or ""
}

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// usagef makes a usageError.
func usagef(format string, args ...any) error { return &usageError{err: fmt.Errorf(format, args...)} }

// exitCode maps an error to the code that the process ends with.
func exitCode(err error) int {
	var usage *usageError
	var rule *candidates.RuleError
	var refused *atomicfile.RefusedError
	var format *formats.FormatError
	var unsupported *formats.UnsupportedError
	var refusal *hub.Error
	var store *work.StoreError
	var holes *pipeline.HolesError
	switch {
	case err == nil:
		return exitFine
	case errors.Is(err, errInterrupted), errors.Is(err, context.Canceled):
		return exitInterrupted
	case errors.As(err, &usage), errors.As(err, &rule), errors.As(err, &refused), errors.Is(err, exec.ErrContextFull):
		return exitUsage
	case errors.As(err, &holes), errors.As(err, &format), errors.Is(err, fs.ErrNotExist), errors.As(err, &refusal) && refusal.Missing, errors.As(err, &store) && store.Missing:
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
	var refused *atomicfile.RefusedError
	var busy *atomicfile.BusyError
	var refusal *hub.Error
	var store *work.StoreError
	var holes *pipeline.HolesError
	switch {
	case planHint(err) != "":
		return planHint(err)
	case errors.As(err, &unsupported) && unsupported.Hint != "":
		return unsupported.Hint
	case errors.As(err, &refused):
		return refused.Hint
	case errors.As(err, &usage) && usage.hint != "":
		return usage.hint
	case err != nil && strings.HasPrefix(err.Error(), `required flag(s) "output"`):
		return "name the file to write by -o FILE"
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
	case errors.Is(err, errUnfinished):
		return "allow more tokens by --max-tokens N, or a longer context by --ctx N; a schema with maxLength and maxItems keeps texts short"
	case errors.Is(err, exec.ErrContextFull):
		return "give a longer context by --ctx N, or let the oldest text be forgotten by --ctx-shift"
	case errors.Is(err, eval.ErrOtherText):
		return "use the flags that the reference was saved with, or save it again by --save-ref"
	case errors.Is(err, generate.ErrNoPrompt):
		return "give a text by -p, -f or on standard input"
	case errors.Is(err, syscall.EADDRINUSE):
		return "another program listens there: --listen 127.0.0.1:0 takes any port that is free"
	case errors.As(err, &refusal):
		return refusal.Hint
	case errors.As(err, &store):
		return store.Hint
	case modelsBeside(err) != "":
		return modelsBeside(err)
	case errors.As(err, &busy):
		return "wait for it, or choose another output"
	case errors.Is(err, work.ErrExists):
		return "go on by --resume, or begin anew by --discard"
	case errors.As(err, &holes):
		return "run a shard again with the same flags: it does what is missing"
	case errors.As(err, &drift):
		return "allow more bytes or a larger drift (--max-drift); --discard removes what was finished"
	case errors.As(err, &bound):
		if n := len(bound.Tries); n > 0 && bound.Tries[n-1].Predicted == 0 {
			return "allow a larger divergence; --discard removes what was tried"
		}
		return "allow a larger divergence or more tries (--tries); --discard removes what was tried"
	}
	return ""
}

// modelsBeside says which models a folder holds that is none itself, "" for another error.
func modelsBeside(err error) string {
	var e *formats.FormatError
	if !errors.As(err, &e) || filepath.Base(e.File) != configFile || !errors.Is(e, fs.ErrNotExist) {
		return ""
	}
	models, err := serve.ModelsOf(filepath.Dir(e.File))
	if err != nil {
		return ""
	}
	const listed = 5
	switch n := len(models); {
	case n == 0:
		return "a Hugging Face directory holds " + configFile + " beside its weights; a .gguf or .nstf file is named itself"
	case n == 1:
		return "name the model in the folder: " + models[0]
	case n > listed:
		return fmt.Sprintf("name one of the models in the folder: %s and %d more", strings.Join(models[:listed], ", "), n-listed)
	}
	return "name one of the models in the folder: " + strings.Join(models, ", ")
}

// printError writes the lines that tell the user what went wrong.
func (a *app) printError(err error) {
	if err == nil {
		return
	}
	for _, line := range errorLines(err) {
		fmt.Fprintf(a.err, "error: %s\n", strings.ReplaceAll(line, "\n", "\n       "))
	}
	if h := hint(err); h != "" {
		fmt.Fprintf(a.err, "hint: %s\n", formats.Printable(h))
	}
}

// maxErrorLine bounds what one error says, in bytes.
const maxErrorLine = 4096

// errorLines returns what an error says, errors that were joined one by one. What it
// quotes of files, the operating system and templates cannot act on the terminal.
func errorLines(err error) []string {
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		if joined := errors.Join(several.Unwrap()...); joined != nil && joined.Error() == err.Error() {
			var lines []string
			for _, e := range several.Unwrap() {
				lines = append(lines, errorLines(e)...)
			}
			return lines
		}
	}
	return []string{formats.PrintableText(formats.Brief(missingFile(err), maxErrorLine))}
}

// missingFile returns what an error says, with the words of formats/model for a file that
// is not there.
func missingFile(err error) string {
	text := err.Error()
	var e *fs.PathError
	if errors.As(err, &e) && errors.Is(e, fs.ErrNotExist) {
		const not = ": there is no such file or directory"
		text = strings.Replace(text, e.Path+": "+e.Error(), e.Path+not, 1)
		text = strings.Replace(text, e.Error(), e.Path+not, 1)
	}
	return text
}

// warn writes a line that does not end the command.
func (a *app) warn(text string) {
	fmt.Fprintf(a.err, "warning: %s\n", formats.Printable(formats.Brief(text, maxErrorLine)))
}
