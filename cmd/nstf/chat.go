package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/tokenizer"
	"github.com/nstf/nstf/runtime/exec"
	"github.com/nstf/nstf/runtime/generate"
)

// maxMessage bounds a message that is typed or piped in.
const maxMessage = 64 << 20

// A speaker answers a user.
type speaker interface {
	history() *generate.History
	// send answers a message, and prints the answer without ending its line.
	send(ctx context.Context, message string) error
	// finish ends the line of an answer, and says what is to be said of it; err is what
	// send returned, nil where the user has stopped it.
	finish(err error) error
	// stats prints those of the last answer, false: there was none.
	stats() bool
}

// A talk is a conversation with a user.
type talk struct {
	a     *app
	s     speaker
	keys  *chatKeys
	reads string // a file that the command reads, which /save leaves alone
}

// A local answers by a model in this process.
type local struct {
	a    *app
	c    *generate.Chat
	f    *runFlags
	now  *generate.Stats // of the answer in progress, nil where there is none
	last *generate.Stats // of the last answer, nil before the first
}

func (l *local) history() *generate.History { return &l.c.History }

func (l *local) send(ctx context.Context, message string) (err error) {
	if l.now, err = l.c.Send(ctx, message, l.f.Options, l.a.emit(l.f.raw)); l.now != nil {
		l.last = l.now
	}
	return err
}

func (l *local) finish(err error) error { return l.a.finish(l.now, l.f, err) }

func (l *local) stats() bool {
	if l.last != nil {
		l.a.printStats(l.last, l.f)
	}
	return l.last != nil
}

// chat answers every message of standard input until it ends.
func (a *app) chat(ctx context.Context, g *generate.Generator, f *runFlags) error {
	c, err := newChat(g, f)
	if err != nil {
		return err
	}
	return a.talk(ctx, &local{a: a, c: c, f: f}, f.file)
}

// talk has a speaker answer every message of standard input until it ends.
func (a *app) talk(ctx context.Context, s speaker, reads string) error {
	t := &talk{a: a, s: s, keys: newChatKeys(a), reads: reads}
	a.interrupts.handle(t.keys.pressed)
	defer a.interrupts.handle(nil)
	if a.inTerminal {
		fmt.Fprintln(a.err, "Each line is a message, /help lists commands. Ctrl-C stops an answer, twice leaves; so does Ctrl-D.")
	}
	lines := a.newLineReader(completeCommand)
	defer lines.close()
	for {
		message, err := readMessage(ctx, lines)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, errAborted):
			if !t.keys.pressed() {
				return errInterrupted
			}
			continue
		case err != nil:
			return err
		case strings.TrimSpace(message) == "":
			continue
		}
		if done, err := t.hear(ctx, message); done || err != nil {
			return err
		}
	}
}

// newChat begins a conversation, or says what to do with a model that holds none.
func newChat(g *generate.Generator, f *runFlags) (*generate.Chat, error) {
	c, err := g.NewChat(f.template, f.system)
	var none *formats.UnsupportedError
	if errors.As(err, &none) && len(g.Tokenizer().ChatTemplates()) == 0 {
		none.Hint = "it was not taught to talk, or its files lack chat_template.jinja: without --chat, -p TEXT continues a text"
	}
	return c, err
}

// hear does what a message asks for and reports whether the conversation is over.
func (t *talk) hear(ctx context.Context, message string) (done bool, err error) {
	if name, rest, ok := parseCommand(message); ok {
		done, err = t.do(name, rest)
		if err != nil { // a command that fails ends nothing
			t.a.printError(err)
		}
		return done, nil
	}
	err = t.turn(ctx, strings.TrimPrefix(message, "/"+"/"))
	if errors.Is(err, exec.ErrContextFull) && t.a.inTerminal {
		t.a.printError(err)
		fmt.Fprintln(t.a.err, "the message was not taken: /undo and /clear make room")
		return false, nil
	}
	return false, err
}

// turn answers one message. A stopped answer is no failure.
func (t *talk) turn(ctx context.Context, message string) error {
	answerCtx, stop := context.WithCancel(ctx)
	defer stop()
	t.keys.begin(stop)
	err := t.s.send(answerCtx, message)
	t.keys.end()
	if errors.Is(err, context.Canceled) && ctx.Err() == nil {
		err = nil
	}
	err = t.s.finish(err)
	t.sayForgotten()
	return err
}

// sayForgotten tells what the last message pushed out of the context.
func (t *talk) sayForgotten() {
	gone := t.s.history().Forgotten()
	if len(gone) == 0 {
		return
	}
	first, last := gone[0], gone[0]
	turns := 0
	for _, m := range gone {
		if m.Role == "user" {
			last = m
			turns++
		}
	}
	what := fmt.Sprintf("the oldest message, %s, and its answer were", quoteMessage(first))
	if turns > 1 {
		what = fmt.Sprintf("the oldest %d messages, from %s to %s, and their answers were", turns, quoteMessage(first), quoteMessage(last))
	}
	fmt.Fprintf(t.a.err, "the context is full: %s forgotten\n", what)
}

func quoteMessage(m tokenizer.Message) string {
	return "“" + clip(strings.Join(strings.Fields(formats.Brief(m.Content, 200)), " "), 40) + "”"
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
		fmt.Fprintln(k.a.err, "\nCtrl-C again leaves.")
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
