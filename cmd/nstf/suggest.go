package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// nearest returns the word that was most likely meant by s, "" where none is close: as
// few as two letters, or a third of s, differ, or it is the only one that s begins.
func nearest(s string, words []string) string {
	best, least := "", max(2, len(s)/3)+1
	begun := ""
	for _, w := range words {
		if d := distance(strings.ToLower(s), strings.ToLower(w)); d < least && d < len(w) {
			best, least = w, d
		}
		if len(s) > 1 && strings.HasPrefix(w, s) {
			if begun != "" {
				begun = " "
			} else {
				begun = w
			}
		}
	}
	if best == "" && begun != " " {
		return begun
	}
	return best
}

// distance is Levenshtein's: insertions, deletions and replacements that make b of a.
// Words are cut where they are longer than any of ours.
func distance(a, b string) int {
	const longest = 64
	a, b = a[:min(len(a), longest)], b[:min(len(b), longest)]
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		left, corner := i+1, i
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			d := min(left+1, row[j+1]+1, corner+cost)
			corner, row[j] = row[j+1], left
			left = d
		}
		row[len(b)] = left
	}
	return row[len(b)]
}

// didYouMean is the hint of a word that is not known.
func didYouMean(prefix, s string, words []string) string {
	if w := nearest(s, words); w != "" {
		return "did you mean " + prefix + w + "?"
	}
	return ""
}

// unknownCommand refuses what is no command.
func unknownCommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, sub := range c.Commands() {
		if !sub.Hidden {
			names = append(append(names, sub.Name()), sub.Aliases...)
		}
	}
	e := &usageError{err: errors.New("unknown command " + quoted(args[0])), hint: otherTools[args[0]]}
	if e.hint == "" {
		e.hint = didYouMean("nstf ", args[0], names)
	}
	return e
}

// refuseUnknown has cobra's own commands, which print their help instead, refuse what they
// do not know. They write where the root does now.
func refuseUnknown(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		switch c.Name() {
		case "help":
			c.Args = func(_ *cobra.Command, args []string) error {
				if found, left, err := root.Find(args); err != nil || found == root {
					return unknownCommand(root, left)
				}
				return nil
			}
		case "completion":
			var shells []string
			for _, shell := range c.Commands() {
				shells = append(shells, shell.Name())
			}
			c.Args = cobra.ArbitraryArgs
			c.RunE = func(c *cobra.Command, args []string) error {
				if len(args) == 0 {
					return c.Help()
				}
				return &usageError{errors.New("no completion for " + quoted(args[0])), "nstf completion takes one of " + strings.Join(shells, ", ")}
			}
		}
	}
}

// countArgs is an Args of cobra's that answers with the command's form.
func countArgs(args cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, given []string) error {
		if args == nil {
			return nil
		}
		err := args(c, given)
		var usage *usageError
		if err == nil || errors.As(err, &usage) {
			return err
		}
		if c.Name() == "eval" && len(given) == 2 && !c.Flags().Changed("text") {
			return &usageError{errors.New("the text is a flag here"), fmt.Sprintf("%s %s --text %s", c.CommandPath(), given[0], given[1])}
		}
		if c.Name() == "tokenize" && len(given) > 1 {
			return &usageError{errors.New("the text is a flag here"), "give it by -p TEXT, in quotes, by -f FILE or on standard input"}
		}
		return &usageError{fmt.Errorf("%s with %d arguments", c.CommandPath(), len(given)), "usage: " + strings.TrimSuffix(c.UseLine(), " [flags]")}
	}
}

// outputIsFlag is an Args of cobra's that tells those who name the output last.
func outputIsFlag(args cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, given []string) error {
		if len(given) == 2 && !c.Flags().Changed("output") {
			return &usageError{errors.New("the output is a flag here"), fmt.Sprintf("%s %s -o %s", c.CommandPath(), given[0], given[1])}
		}
		return args(c, given)
	}
}

// notThat says what a flag's value is not, "" for an error that is not of reading one.
func notThat(err error) string {
	var n *strconv.NumError
	switch {
	case !errors.As(err, &n):
		return ""
	case errors.Is(n.Err, strconv.ErrRange):
		return "is out of range"
	case n.Func == "ParseFloat":
		return "is not a number"
	case n.Func == "ParseBool":
		return "is neither true nor false"
	case n.Func == "ParseUint":
		return "is not a whole number of 0 or more"
	}
	return "is not a whole number"
}

// unknownFlag says what was meant by a flag that a command lacks.
func unknownFlag(c *cobra.Command, err error) error {
	e := &usageError{err: err}
	var missing *pflag.NotExistError
	if !errors.As(err, &missing) {
		var value *pflag.InvalidValueError
		if not := notThat(err); not != "" && errors.As(err, &value) {
			e.err = fmt.Errorf("--%s %s %s", value.GetFlag().Name, quoted(value.GetValue()), not)
		}
		return e
	}
	name := missing.GetSpecifiedName()
	if letters := missing.GetSpecifiedShortnames(); letters != "" {
		e.hint = habitHint(c.Name(), "-"+letters)
		if e.hint == "" && len(letters) > 1 {
			e.hint = didYouMean("--", letters, flagNames(c))
		}
		return e
	}
	if e.hint = habitHint(c.Name(), "--"+name); e.hint == "" {
		e.hint = didYouMean("--", name, flagNames(c))
	}
	return e
}

func flagNames(c *cobra.Command) (names []string) {
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	return names
}
