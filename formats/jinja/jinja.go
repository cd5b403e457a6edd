package jinja

import (
	"context"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"
)

// Limits are the budgets of a template. A template that exceeds one ends in
// an [*Error] that names it. Long conversations need more, so each byte of the
// variables adds [StepsPerByte] steps, [MemoryPerByte] bytes of intermediate
// values and [OutputPerByte] bytes of text.
type Limits struct {
	Source int   // bytes of the template
	Depth  int   // nested brackets and blocks, evaluations, and values within values
	Steps  int64 // evaluated nodes, produced items, and 64 bytes looked at
	Memory int64 // bytes of all intermediate values together
	Output int64 // bytes of the rendered text
}

// What each byte of the variables adds to the budgets.
const (
	StepsPerByte  = 64
	MemoryPerByte = 1024
	OutputPerByte = 64
)

// DefaultLimits are far above what templates in circulation need: the 70 of
// llama.cpp take at most 5,815 steps and 38 KB for conversations of a few
// messages, and for 1,000 messages with 1 MB of text, but for two that are
// quadratic, 220,000 and 3.1 MB (docs/perf/templates.md). A template that does
// nothing but use them up ends within a few seconds.
var DefaultLimits = Limits{Source: 1 << 20, Depth: 5000, Steps: 20_000_000, Memory: 256 << 20, Output: 64 << 20}

// maxNesting bounds what the parser descends into; Python's own parser gives
// up at about a tenth of it.
const maxNesting = 1000

// An Error says what is wrong with a template, or what it did.
type Error struct {
	Template string // as given to Parse
	Line     int    // from 1
	Budget   string // "steps", "depth", "memory", "output" or "source" where it was exceeded
	Raised   bool   // the template called raise_exception
	// Unsupported says that the template is valid Jinja which is not
	// implemented here.
	Unsupported bool
	Reason      string
}

// Error implements error.
func (e *Error) Error() string {
	s := "line " + strconv.Itoa(e.Line) + ": " + e.Reason
	if e.Budget != "" {
		s += " (the budget of " + e.Budget + ")"
	}
	if e.Template != "" {
		s = e.Template + ", " + s
	}
	return s
}

// A failure is how an error unwinds within the package; Parse and Render
// recover it. No other panic is recovered.
type failure struct{ err error }

func fail(template string, line int, format string, args ...any) {
	panic(failure{&Error{Template: template, Line: line, Reason: fmt.Sprintf(format, args...)}})
}

func failBudget(template string, line int, budget, format string, args ...any) {
	panic(failure{&Error{Template: template, Line: line, Budget: budget, Reason: fmt.Sprintf(format, args...)}})
}

func failUnsupported(template string, line int, what string) {
	panic(failure{&Error{Template: template, Line: line, Unsupported: true, Reason: what + " is not implemented"}})
}

func recovered(err *error) {
	switch r := recover().(type) {
	case nil:
	case failure:
		*err = r.err
	default:
		panic(r)
	}
}

// quote quotes foreign text for an error, cut where it is long.
func quote(s string) string {
	const limit = 200
	if len(s) > limit {
		cut := limit
		for cut > 0 && !utf8.RuneStart(s[cut]) {
			cut--
		}
		return strconv.Quote(s[:cut]) + "..."
	}
	return strconv.Quote(s)
}

// A Template is parsed. It is immutable and safe for concurrent use.
type Template struct {
	name   string
	body   []stmt
	limits Limits
}

// Parse reads a template; name is what errors call it. The error is an
// [*Error].
func Parse(name, src string, limits Limits) (t *Template, err error) {
	defer recovered(&err)
	if len(src) > limits.Source {
		failBudget(name, 1, "source", "%d bytes: more than %d", len(src), limits.Source)
	}
	if !utf8.ValidString(src) {
		fail(name, 1, "the template is not UTF-8")
	}
	return &Template{name, parse(name, src, min(maxNesting, limits.Depth)), limits}, nil
}

// Options are what a template sees beside its variables.
type Options struct {
	Now time.Time // what strftime_now tells
	// Verbatim are characters that no repr and no tojson escapes: marks that
	// the caller put into texts and looks for in the result.
	Verbatim string
}

// Render evaluates the template. Variables hold nil, bool, int, int64,
// float64, string, []any, *Dict, and lists and dictionaries of these; they
// are read and never changed. The error is an [*Error], or the context's.
func (t *Template) Render(ctx context.Context, vars map[string]any, o Options) (text string, err error) {
	defer recovered(&err)
	m := newMachine(ctx, t, o)
	f := &frame{vars: make(map[string]Value, len(vars))}
	for k, v := range vars {
		f.vars[k] = m.convert(v)
	}
	m.limits.Steps += StepsPerByte * m.given
	m.limits.Memory += MemoryPerByte * m.given
	m.limits.Output += OutputPerByte * m.given
	m.execAll(t.body, &frame{parent: f})
	return string(m.out.text), nil
}
