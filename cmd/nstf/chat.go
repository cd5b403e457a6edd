package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/nstf/nstf/runtime/generate"
)

// maxMessage bounds a line that is typed or piped in.
const maxMessage = 64 << 20

// chat answers every line of standard input until it ends.
func (a *app) chat(ctx context.Context, g *generate.Generator, f *runFlags) error {
	c, err := g.NewChat(f.template, f.system)
	if err != nil {
		return err
	}
	keys := newChatKeys(a)
	a.interrupts.handle(keys.pressed)
	defer a.interrupts.handle(nil)
	if a.inTerminal {
		fmt.Fprintln(a.err, "Each line is a message. Ctrl-C stops an answer, twice leaves; so does the end of the input.")
	}
	lines, failed := readLines(a.in)
	for {
		if a.inTerminal {
			fmt.Fprint(a.err, "> ")
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case line, ok := <-lines:
			if !ok {
				return <-failed
			}
			if strings.TrimSpace(line) == "" {
				continue
			}
			if err := a.turn(ctx, c, keys, line, f); err != nil {
				return err
			}
		}
	}
}

// turn answers one message. A stopped answer is no failure.
func (a *app) turn(ctx context.Context, c *generate.Chat, keys *chatKeys, line string, f *runFlags) error {
	answerCtx, stop := context.WithCancel(ctx)
	defer stop()
	keys.begin(stop)
	stats, err := c.Send(answerCtx, line, f.Options, a.emit)
	keys.end()
	if errors.Is(err, context.Canceled) && ctx.Err() == nil {
		err = nil
	}
	return a.finish(stats, f, err)
}

// chatKeys makes the first Ctrl-C stop an answer and the second leave.
type chatKeys struct {
	a    *app
	mu   sync.Mutex
	stop func() // ends the answer in progress, nil between answers
	once bool   // pressed since the last answer began
}

func newChatKeys(a *app) *chatKeys { return &chatKeys{a: a} }

func (k *chatKeys) begin(stop func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stop, k.once = stop, false
}

func (k *chatKeys) end() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stop = nil
}

func (k *chatKeys) pressed() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.once {
		return false
	}
	k.once = true
	if k.stop != nil {
		k.stop()
	} else {
		fmt.Fprint(k.a.err, "\nCtrl-C again leaves.\n> ")
	}
	return true
}

// readLines reads lines in a goroutine of its own, so that an interrupt need
// not wait for one. The error, nil at the end of input, follows the last line.
func readLines(r io.Reader) (<-chan string, <-chan error) {
	lines, failed := make(chan string), make(chan error, 1)
	go func() {
		s := bufio.NewScanner(r)
		s.Buffer(nil, maxMessage)
		for s.Scan() {
			lines <- s.Text()
		}
		failed <- s.Err()
		close(lines)
	}()
	return lines, failed
}
