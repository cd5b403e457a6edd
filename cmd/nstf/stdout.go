package main

import (
	"fmt"
	"io"
)

// results is standard output: all that goes there passes it, and what was lost on the
// way ends the command with an error, whoever wrote it. A standard output that was
// closed before the program began cannot fail: Go's runtime has opened the null device in
// its place. That is told in a warning and is no error, for other programs hand down the
// same to hide what they start says ([mayBeClosed]), and want to know how it ended.
type results struct {
	w       io.Writer
	written bool
	err     error // the first; nothing is written after it
}

// Write implements io.Writer.
func (r *results) Write(p []byte) (int, error) {
	if r.err != nil {
		return 0, r.err
	}
	n, err := r.w.Write(p)
	r.written = r.written || n > 0
	if err != nil {
		r.err = fmt.Errorf("standard output: %w", err)
	}
	return n, r.err
}

// lostOutput is what is said of a standard output that looks closed.
const lostOutput = "standard output is closed, or hidden by the program that started this one: what was printed is lost"
