package main

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A terminal is the far end of one that a process believes to be typed at.
type terminal struct {
	t    *testing.T
	end  *os.File
	mu   sync.Mutex
	seen strings.Builder
}

// openTerminal starts a command line at a terminal of 100 columns.
func openTerminal(t *testing.T, args ...string) (*terminal, func() error) {
	t.Helper()
	return openTerminalOf(t, unix.Winsize{Row: 40, Col: 100}, args...)
}

func openTerminalOf(t *testing.T, size unix.Winsize, args ...string) (*terminal, func() error) {
	t.Helper()
	end, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { end.Close() })
	n, err := unix.IoctlGetInt(int(end.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(int(end.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(int(end.Fd()), unix.TIOCSWINSZ, &size); err != nil {
		t.Fatal(err)
	}
	near, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	c := command(t, args...)
	c.Env = append(c.Env, "TERM=xterm")
	c.Stdin, c.Stdout, c.Stderr = near, near, near
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Process.Kill() })
	x := &terminal{t: t, end: end}
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := end.Read(buf)
			x.mu.Lock()
			x.seen.Write(buf[:n])
			x.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return x, c.Wait
}

// say types keys once what is waited for has been printed since the last time.
func (x *terminal) say(await, keys string) {
	x.t.Helper()
	for range 600 {
		x.mu.Lock()
		_, rest, found := strings.Cut(x.seen.String(), await)
		if found {
			x.seen.Reset()
			x.seen.WriteString(rest)
		}
		x.mu.Unlock()
		if found {
			if _, err := x.end.WriteString(keys); err != nil {
				x.t.Fatal(err)
			}
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.t.Fatalf("no %q in %q", await, x.seen.String())
}

// At a terminal a line can be edited, the one before fetched back and a command
// completed, and Ctrl-C twice leaves.
func TestChatAtTerminal(t *testing.T) {
	x, wait := openTerminal(t, "run", demoModel, "--chat", "--greedy", "-n", "4")
	x.say("> ", "Who iz\x7fs there?\r")      // a key taken back
	x.say("> Who is there?", "")             // as the editor shows it
	x.say("\n> ", "\x1b[A\x1b[Dmore \x05\r") // the line before, with a word in it
	x.say("theremore ?", "")                 // in front of its last letter
	x.say("\n> ", "/he\t\r")                 // completed
	x.say("forget the last message", "")     // its answer
	x.say("\n> ", "\x03")                    // Ctrl-C
	x.say("Ctrl-C again leaves", "")         // once
	x.say("> ", "\x03")                      // twice
	x.say("interrupted", "")                 // and out
	if err := wait(); err == nil || !strings.Contains(err.Error(), "130") {
		t.Errorf("it ended with %v", err)
	}
}

// At a terminal that knows no size, as script makes one where it has none, lines are edited
// as well.
func TestChatAtTerminalWithoutSize(t *testing.T) {
	x, wait := openTerminalOf(t, unix.Winsize{}, "run", demoModel, "--chat", "--greedy", "-n", "4")
	x.say("> ", "Who iz\x7fs there?\r")
	x.say("> Who is there?", "")
	x.say("\n> ", "\x1b[A\x1b[Dmore \x05\r")
	x.say("theremore ?", "")
	x.say("\n> ", "\x04")
	if err := wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
}
