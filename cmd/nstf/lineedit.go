package main

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"

	"github.com/peterh/liner"
)

// errAborted says that Ctrl-C was pressed where a line was to be typed.
var errAborted = errors.New("aborted")

// A lineReader gives the lines of a conversation. The end of the input is io.EOF.
type lineReader interface {
	read(ctx context.Context, prompt string) (string, error)
	close()
}

// newLineReader returns an editor with history where somebody types, else what reads the
// input line by line.
func (a *app) newLineReader(complete func(line string) []string) lineReader {
	if a.inTerminal && a.outTerminal && liner.TerminalSupported() {
		undo := widenTerminal(int(os.Stdout.Fd()))
		state := liner.NewLiner()
		state.SetCtrlCAborts(true)
		state.SetMultiLineMode(true) // what is longer than a row goes on in the next
		state.SetCompleter(complete)
		return &editor{state, undo}
	}
	r := &pipedLines{a: a}
	r.lines, r.failed = readLines(a.in)
	return r
}

// An editor is a terminal with editing keys and a history of this conversation.
type editor struct {
	state *liner.State
	undo  func() // of what was changed before it began
}

func (e *editor) read(ctx context.Context, prompt string) (string, error) {
	type result struct {
		line string
		err  error
	}
	typed := make(chan result, 1)
	go func() {
		line, err := e.state.Prompt(prompt)
		if errors.Is(err, liner.ErrPromptAborted) {
			err = errAborted
		}
		typed <- result{line, err}
	}()
	select {
	case <-ctx.Done():
		return "", context.Cause(ctx)
	case r := <-typed:
		if r.err == nil && strings.TrimSpace(r.line) != "" {
			e.state.AppendHistory(r.line)
		}
		return r.line, r.err
	}
}

// close gives the terminal back as it was.
func (e *editor) close() {
	e.state.Close()
	e.undo()
}

// pipedLines are those of an input that nobody edits.
type pipedLines struct {
	a      *app
	lines  <-chan string
	failed <-chan error
	end    error // once the input has ended
}

func (p *pipedLines) read(ctx context.Context, prompt string) (string, error) {
	if p.a.inTerminal {
		io.WriteString(p.a.err, prompt)
	}
	select {
	case <-ctx.Done():
		return "", context.Cause(ctx)
	case line, ok := <-p.lines:
		if ok {
			return line, nil
		}
		if p.end == nil {
			if p.end = <-p.failed; p.end == nil {
				p.end = io.EOF
			}
		}
		return "", p.end
	}
}

func (p *pipedLines) close() {}

// fence begins and ends a message of several lines.
const fence = `"""`

// readMessage reads a message: a line, several of which all but the last end in a
// backslash, or what stands between two fences.
func readMessage(ctx context.Context, r lineReader) (string, error) {
	line, err := r.read(ctx, "> ")
	if err != nil {
		return "", err
	}
	if rest, ok := strings.CutPrefix(strings.TrimSpace(line), fence); ok {
		return fenced(ctx, r, rest)
	}
	var b strings.Builder
	for {
		part, more := strings.CutSuffix(line, `\`)
		b.WriteString(part)
		if !more {
			return b.String(), nil
		}
		b.WriteByte('\n')
		if line, err = r.read(ctx, ". "); errors.Is(err, io.EOF) {
			return b.String(), nil
		} else if err != nil {
			return "", err
		}
		if b.Len() > maxMessage {
			return "", usagef("a message of more than %d bytes", maxMessage)
		}
	}
}

// fenced reads on to the second fence, or to the end of the input.
func fenced(ctx context.Context, r lineReader, line string) (string, error) {
	var b strings.Builder
	for {
		if last, ok := strings.CutSuffix(strings.TrimRight(line, " \t\r"), fence); ok {
			b.WriteString(last)
			return strings.Trim(b.String(), "\n"), nil
		}
		b.WriteString(line)
		b.WriteByte('\n')
		if b.Len() > maxMessage {
			return "", usagef("a message of more than %d bytes", maxMessage)
		}
		var err error
		if line, err = r.read(ctx, ". "); errors.Is(err, io.EOF) {
			return strings.Trim(b.String(), "\n"), nil
		} else if err != nil {
			return "", err
		}
	}
}
