// Command nstf converts, measures and runs language models.
//
// One file per command; each reads flags, calls a package and prints. Only
// this package prints, reads the environment or exits.
package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/atomicfile"
)

func main() {
	ctx, cancel := context.WithCancelCause(context.Background())
	a := &app{in: os.Stdin, out: os.Stdout, err: os.Stderr, interrupts: &interrupts{cancel: cancel}, self: ownProcess}
	a.env, a.outClosed = processEnvironment(), mayBeClosed(os.Stdout.Fd())
	a.inTerminal = term.IsTerminal(int(os.Stdin.Fd()))
	a.outTerminal = term.IsTerminal(int(os.Stdout.Fd()))
	a.errTerminal = term.IsTerminal(int(os.Stderr.Fd()))
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		for s := range signals {
			if a.interrupts.signal(s == os.Interrupt) {
				signal.Stop(signals) // the next one ends the process at once
				time.AfterFunc(patience, a.leave)
				return
			}
		}
	}()
	os.Exit(a.run(ctx, os.Args[1:]))
}

// patience is what a command has to end after a signal.
const patience = 700 * time.Millisecond

// leave ends the process where the command does not: it may wait for a pipe that nobody
// writes to, or be amid a long step. Nothing of its outputs is left.
func (a *app) leave() {
	a.mu.Lock() // for good: no output is begun any more
	for _, o := range a.outputs {
		o.Discard()
		a.warnWork(o.Path())
	}
	a.printError(errInterrupted)
	os.Exit(exitInterrupted)
}

// An app is one invocation: where it reads, writes and is interrupted.
type app struct {
	in         io.Reader
	env        environment
	out, err   io.Writer
	interrupts *interrupts
	mu         sync.Mutex
	outputs    []*atomicfile.Output // that may be being written
	started    bool                 // a command began: what fails from here on is not its usage
	remote     formats.Remote       // files that are read from a hub
	streams    int64                // what of them is kept in memory
	// which of them is a terminal
	inTerminal, outTerminal, errTerminal bool
	outClosed                            bool // out may have been closed when the process began
	// self makes a process of this program, for what is measured from its start;
	// nil: that is not measured.
	self func(ctx context.Context, args ...string) *exec.Cmd
}

// run executes a command line and returns the exit code.
func (a *app) run(ctx context.Context, args []string) int {
	a.err = &lockedWriter{w: a.err}
	out := &results{w: a.out}
	a.out = out
	root := a.root()
	args, idle, err := translate(root, args)
	if err != nil {
		a.printError(err)
		return exitCode(err)
	}
	if len(idle) > 0 {
		a.warn("left out, for they change nothing here: " + strings.Join(idle, ", "))
	}
	root.SetArgs(args)
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	refuseUnknown(root)
	err = root.ExecuteContext(ctx)
	if out.err != nil {
		a.started = true
		if err == nil {
			err = out.err
		}
	}
	if cause := context.Cause(ctx); err != nil && cause != nil && errors.Is(err, context.Canceled) {
		err = cause
	}
	var usage *usageError
	if err != nil && !a.started && !errors.As(err, &usage) {
		err = &usageError{err: err}
	}
	if a.outClosed && out.written {
		a.warn(lostOutput)
	}
	a.printError(err)
	return exitCode(err)
}

func (a *app) root() *cobra.Command {
	version := newVersionReport()
	root := &cobra.Command{
		Use:   "nstf",
		Short: "Convert, quantize, measure and run language models",
		Long: `nstf turns Hugging Face directories and GGUF files into verified .nstf packages,
makes them smaller, measures what that costs, and runs them.

MODEL and SRC are a .nstf package, a GGUF file (any part of a split one), a
Hugging Face directory, a .safetensors file in one, or the name of a model on
Hugging Face's hub (ORG/NAME, see nstf pull --help).

Exit codes:
  0    fine
  1    failure
  2    wrong usage: what cannot be meant, a context too short for what is asked, or an
       output that is an input or would replace another kind of file
  3    bad input file: missing, damaged, truncated, or not what its name says
  4    valid input that this program does not support
  130  interrupted

Flags that llama.cpp's tools take are taken where they mean the same: -m, -n, -c, -t,
--temp and others. nstf config shows defaults that a file or the environment sets.`,
		Example:       "  nstf demo\n  nstf convert ./Llama-3.2-1B -o llama.nstf\n  nstf run llama.nstf -p \"Once upon a time\"",
		SilenceErrors: true, SilenceUsage: true,
		Args:    unknownCommand,
		RunE:    func(c *cobra.Command, _ []string) error { return c.Help() },
		Version: version.short(),
	}
	root.SetFlagErrorFunc(unknownFlag)
	root.AddCommand(a.pullCommand(), a.listCommand(), a.removeCommand(), a.pushCommand(), a.convertCommand(), a.calibrateCommand(), a.quantizeCommand(), a.planCommand(), a.exportCommand(), a.inspectCommand(), a.diffCommand(), a.reportCommand(), a.verifyCommand(), a.tokenizeCommand(),
		a.evalCommand(), a.benchCommand(), a.runCommand(), a.placeCommand(), a.chatCommand(), a.serveCommand(), a.demoCommand(), a.doctorCommand(), a.configCommand(), a.versionCommand(), a.manCommand(), a.devCommand())
	for _, c := range root.Commands() {
		acceptAliases(c)
		c.Args = countArgs(c.Args)
		body := c.RunE
		c.RunE = func(c *cobra.Command, args []string) error {
			a.started = true
			if err := a.useSettings(c); err != nil {
				return err
			}
			if err := a.fetchModels(c, args); err != nil {
				return err
			}
			return body(c, args)
		}
	}
	return root
}
