package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats"
)

// talkTo gives lines to a conversation with the demo's model.
func talkTo(t *testing.T, input string, flags ...string) result {
	t.Helper()
	r := invokeWith(context.Background(), strings.NewReader(input), append([]string{"run", demoModel, "--chat", "--greedy", "--max-tokens", "4"}, flags...)...)
	if r.code != exitFine {
		t.Fatalf("exit %d: %s", r.code, r.err)
	}
	return r
}

// Commands change the conversation: what is forgotten is answered as if it had never
// been said.
func TestChatCommands(t *testing.T) {
	first := talkTo(t, "Who is there?\n").out
	both := talkTo(t, "Who is there?\nTell me more of it.\n").out
	second := strings.TrimPrefix(both, first)
	if second == both || second == "" {
		t.Fatalf("%q, then %q", first, both)
	}
	for name, c := range map[string]struct{ input, want string }{
		"clear":          {"Go away.\n/clear\nWho is there?\n", talkTo(t, "Go away.\n").out + first},
		"undo":           {"Who is there?\nGo away.\n/undo\nTell me more of it.\n", ""},
		"fence":          {"\"\"\"Who is\nthere?\"\"\"\n", talkTo(t, "Who is\\\nthere?\n").out},
		"a fence to EOF": {"\"\"\"\nWho is there?\n", first},
		"exit":           {"Who is there?\n/exit\nGo away.\n", first},
		"unknown":        {"/usr/bin is there?\nWho is there?\n", first},
		"two slashes":    {"//clear is what?\n", talkTo(t, "/system\n//clear is what?\n").out},
	} {
		got := talkTo(t, c.input).out
		if name == "undo" {
			if !strings.HasSuffix(got, second) || !strings.HasPrefix(got, first) {
				t.Errorf("undo: %q, without %q", got, both)
			}
			continue
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	r := talkTo(t, "/help\n/stats\nWho is there?\n/stats\n/system\n/system Be brief.\n/system\n/undo\n/save\n/load nosuch\n/clearr\n")
	for _, want := range []string{"/undo", "there was no answer yet", "decode", "there is no system message", "begins anew", "Be brief.", "nothing to undo", "needs the name of a file", "nosuch", "unknown command /clearr"} {
		if !strings.Contains(r.err, want) {
			t.Errorf("%q is not said in:\n%s", want, r.err)
		}
	}
	if got, want := talkTo(t, "/system Be brief.\nWho is there?\n").out, talkTo(t, "Who is there?\n", "--system", "Be brief.").out; got != want {
		t.Errorf("with /system %q, with --system %q", got, want)
	}
}

// A conversation that was saved goes on where it was.
func TestChatSaved(t *testing.T) {
	file := filepath.Join(t.TempDir(), "talk.json")
	first := talkTo(t, "Who is there?\n/save "+file+"\n").out
	both := talkTo(t, "Who is there?\nTell me more of it.\n").out
	if got := talkTo(t, "/load "+file+"\nTell me more of it.\n").out; first+got != both {
		t.Errorf("loaded: %q, want %q behind %q", got, both, first)
	}
	other := filepath.Join(t.TempDir(), "notes.txt")
	for text, want := range map[string]string{"plain": "not a saved", `{"messages":[{"role":"assistant","content":"x"}]}`: "should follow", `{"messages":[{"role":"user","content":"x"}]}`: "no answer"} {
		if err := os.WriteFile(other, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		if r := talkTo(t, "/load "+other+"\n"); !strings.Contains(r.err, want) {
			t.Errorf("%s: %s", text, r.err)
		}
	}
	if err := os.WriteFile(other, []byte("my notes"), 0o666); err != nil {
		t.Fatal(err)
	}
	talkTo(t, "/save "+other+"\n")
	if got, err := os.ReadFile(other); err != nil || string(got) != "my notes" {
		t.Errorf("/save replaced another file: %q, %v", got, err)
	}
}

// What the context has no room for any more is told.
func TestChatForgets(t *testing.T) {
	r := talkTo(t, strings.Repeat("Tell me more about all of it, please.\n", 8), "--ctx", "96", "--ctx-shift")
	if !strings.Contains(r.err, "the context is full: the oldest message, “Tell me more about all of it, please.”, and its answer were forgotten") {
		t.Errorf("%s", r.err)
	}
	r = invoke("run", demoModel, "-p", "Once", "--greedy", "--ctx", "32", "--ctx-shift", "-n", "60")
	if r.code != exitFine || !strings.Contains(r.err, "tokens behind the first are forgotten") {
		t.Errorf("exit %d: %s", r.code, r.err)
	}
}

func TestChatWithoutTemplate(t *testing.T) {
	r := invoke("run", filepath.Join(micro, "gpt2"), "--chat", "-p", "x")
	r.fails(t, exitUnsupported, "no chat template")
	if !strings.Contains(r.err, "-p TEXT continues") {
		t.Errorf("%s", r.err)
	}
}

// scripted is an input of lines, some of them Ctrl-C.
type scripted []string

func (s *scripted) read(context.Context, string) (string, error) {
	if len(*s) == 0 {
		return "", io.EOF
	}
	line := (*s)[0]
	if *s = (*s)[1:]; line == "^C" {
		return "", errAborted
	}
	return line, nil
}

func (s *scripted) close() {}

func TestReadMessage(t *testing.T) {
	for _, c := range []struct {
		lines []string
		want  string
		err   error
	}{
		{[]string{"one"}, "one", nil},
		{[]string{`one\`, `two\`, "three", "four"}, "one\ntwo\nthree", nil},
		{[]string{`one\`}, "one\n", nil},
		{[]string{`"""one"""`}, "one", nil},
		{[]string{`"""`, "one", "", "  two", `"""`, "three"}, "one\n\n  two", nil},
		{[]string{`one\`, "^C"}, "", errAborted},
		{[]string{"^C"}, "", errAborted},
		{nil, "", io.EOF},
	} {
		s := scripted(c.lines)
		got, err := readMessage(context.Background(), &s)
		if got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%q: %q, %v", c.lines, got, err)
		}
	}
	if got := completeCommand("/s"); strings.Join(got, " ") != "/system /save /stats" {
		t.Errorf("%q", got)
	}
	if got := completeCommand("s"); got != nil {
		t.Errorf("%q", got)
	}
	if formats.Controls('“') {
		t.Error("quotes of messages are no control characters")
	}
}
