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
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

func main() {
	ctx, cancel := context.WithCancelCause(context.Background())
	a := &app{in: os.Stdin, out: os.Stdout, err: os.Stderr, interrupts: &interrupts{cancel: cancel}, self: ownProcess}
	a.inTerminal = term.IsTerminal(int(os.Stdin.Fd()))
	a.errTerminal = term.IsTerminal(int(os.Stderr.Fd()))
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		for s := range signals {
			if a.interrupts.signal(s == os.Interrupt) {
				signal.Stop(signals) // the next one ends the process at once
				return
			}
		}
	}()
	os.Exit(a.run(ctx, os.Args[1:]))
}

// An app is one invocation: where it reads, writes and is interrupted.
type app struct {
	in                      io.Reader
	out, err                io.Writer
	inTerminal, errTerminal bool
	interrupts              *interrupts
	started                 bool // a command began: what fails from here on is not its usage
	// self makes a process of this program, for what is measured from its start;
	// nil: that is not measured.
	self func(ctx context.Context, args ...string) *exec.Cmd
}

// run executes a command line and returns the exit code.
func (a *app) run(ctx context.Context, args []string) int {
	root := a.root()
	root.SetArgs(args)
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	err := root.ExecuteContext(ctx)
	if cause := context.Cause(ctx); err != nil && cause != nil && errors.Is(err, context.Canceled) {
		err = cause
	}
	if err != nil && !a.started {
		err = &usageError{err}
	}
	a.printError(err)
	return exitCode(err)
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "nstf",
		Short: "Convert, quantize, measure and run language models",
		Long: `nstf turns Hugging Face directories and GGUF files into verified .nstf packages,
makes them smaller, measures what that costs, and runs them.

MODEL and SRC are a .nstf package, a GGUF file (any part of a split one), a
Hugging Face directory, or a .safetensors file in one.

Exit codes:
  0    fine
  1    failure
  2    wrong usage
  3    bad input file: missing, damaged, truncated, or not what its name says
  4    valid input that this program does not support
  130  interrupted`,
		Example:       "  nstf demo\n  nstf convert ./Llama-3.2-1B -o llama.nstf\n  nstf run llama.nstf -p \"Once upon a time\"",
		SilenceErrors: true, SilenceUsage: true,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(a.convertCommand(), a.calibrateCommand(), a.quantizeCommand(), a.planCommand(), a.exportCommand(), a.inspectCommand(), a.diffCommand(), a.reportCommand(), a.verifyCommand(), a.tokenizeCommand(),
		a.evalCommand(), a.benchCommand(), a.runCommand(), a.demoCommand(), a.doctorCommand(), a.versionCommand(), a.devCommand())
	for _, c := range root.Commands() {
		body := c.RunE
		c.RunE = func(c *cobra.Command, args []string) error {
			a.started = true
			return body(c, args)
		}
	}
	return root
}
