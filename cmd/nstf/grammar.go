package main

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/runtime/generate"
	"github.com/nstf/nstf/runtime/grammar"
)

// grammarFlags say what an answer may be.
type grammarFlags struct {
	schema, gbnf, regex string
	choice              []string
	flags               *pflag.FlagSet
}

func (f *grammarFlags) add(s *pflag.FlagSet) {
	f.flags = s
	s.StringVar(&f.schema, "json-schema", "", "write JSON that this schema allows: a file, or the schema itself; docs/grammar.md")
	s.StringVar(&f.gbnf, "grammar", "", "write what this grammar allows, in GBNF: a file, or the grammar itself")
	s.StringVar(&f.regex, "regex", "", "write what this regular expression matches as a whole")
	s.StringSliceVar(&f.choice, "choice", nil, "write one of these, as a,b,c; may be given several times")
}

// given returns the flag that was, "" for none.
func (f *grammarFlags) given() (name string, err error) {
	for _, n := range []string{"json-schema", "grammar", "regex", "choice"} {
		if !f.flags.Changed(n) {
			continue
		}
		if name != "" {
			return "", usagef("--%s and --%s are two grammars: give one", name, n)
		}
		name = n
	}
	return name, nil
}

// maxGrammar bounds the file of a grammar or a schema, in bytes.
const maxGrammar = 4 << 20

// read returns the grammar, nil where none is asked for.
func (f *grammarFlags) read() (*grammar.Grammar, error) {
	name, err := f.given()
	if err != nil {
		return nil, err
	}
	in := func(file string, g *grammar.Grammar, err error) (*grammar.Grammar, error) {
		return g, formats.In(file, err)
	}
	switch name {
	case "json-schema":
		if inlineSchema(f.schema) {
			g, err := grammar.ParseSchema([]byte(f.schema))
			return in("--json-schema", g, err)
		}
		raw, err := formats.ReadFile(f.schema, maxGrammar, "a schema")
		if err != nil {
			return nil, err
		}
		g, err := grammar.ParseSchema(bytes.TrimPrefix(raw, []byte("\ufeff")))
		return in(f.schema, g, err)
	case "grammar":
		if strings.Contains(f.gbnf, "::=") {
			g, err := grammar.ParseGBNF(f.gbnf)
			return in("--grammar", g, err)
		}
		raw, err := formats.ReadFile(f.gbnf, maxGrammar, "a grammar")
		if err != nil {
			return nil, err
		}
		g, err := grammar.ParseGBNF(strings.TrimPrefix(string(raw), "\ufeff"))
		return in(f.gbnf, g, err)
	case "regex":
		g, err := grammar.ParseRegex(f.regex)
		return in("--regex", g, err)
	case "choice":
		g, err := grammar.Choices(f.choice)
		return in("--choice", g, err)
	}
	return nil, nil
}

// inlineSchema reports whether a value is a schema rather than the name of a file.
func inlineSchema(s string) bool {
	s = strings.TrimSpace(s)
	return strings.HasPrefix(s, "{") || s == "true" || s == "false"
}

// compile prepares a grammar for a model's vocabulary.
func compileGrammar(g *generate.Generator, of *grammar.Grammar) (*grammar.Compiled, error) {
	if of == nil {
		return nil, nil
	}
	v, err := g.Vocabulary()
	if err != nil {
		return nil, err
	}
	return v.Compile(of), nil
}

// errUnfinished says that a text ended where its grammar does not.
var errUnfinished = errors.New("the text ended before its grammar allows it to")

// unfinished returns that error with what ended the text.
func unfinished(s *generate.Stats) error {
	why := string(s.Reason)
	if why == "" {
		return errUnfinished
	}
	return fmt.Errorf("%w: %s, behind %d tokens", errUnfinished, why, s.Tokens)
}
