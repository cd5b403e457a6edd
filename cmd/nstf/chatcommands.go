package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/atomicfile"
	"github.com/nstf/nstf/formats/tokenizer"
)

// chatCommands are what a message that begins with a slash may ask for.
var chatCommands = []struct{ name, argument, what string }{
	{"help", "", "list these"},
	{"clear", "", "forget the conversation, but for the system message"},
	{"undo", "", "forget the last message and its answer"},
	{"system", "[TEXT]", "begin anew with this system message; alone: show it"},
	{"save", "FILE", "write the conversation as JSON"},
	{"load", "FILE", "go on with a conversation that was saved"},
	{"stats", "", "print speed and memory of the last answer"},
	{"exit", "", "leave; so do Ctrl-D and Ctrl-C twice"},
}

// parseCommand reads a message as a command. What begins with two slashes is a message.
func parseCommand(message string) (name, rest string, ok bool) {
	if !strings.HasPrefix(message, "/") || strings.HasPrefix(message, "//") {
		return "", "", false
	}
	name, rest, _ = strings.Cut(message[1:], " ")
	name = strings.TrimSpace(name)
	if name == "quit" || name == "bye" {
		name = "exit"
	}
	return name, strings.TrimSpace(rest), true
}

func commandNames() (names []string) {
	for _, c := range chatCommands {
		names = append(names, c.name)
	}
	return names
}

// completeCommand is what the tabulator key offers.
func completeCommand(line string) (out []string) {
	for _, name := range commandNames() {
		if strings.HasPrefix("/"+name, line) && strings.HasPrefix(line, "/") {
			out = append(out, "/"+name)
		}
	}
	return out
}

// do executes a command and reports whether the conversation is over.
func (t *talk) do(name, rest string) (done bool, err error) {
	switch name {
	case "help":
		t.help()
	case "clear":
		t.s.history().Clear()
		t.say("the conversation is forgotten")
	case "undo":
		if !t.s.history().Undo() {
			return false, usagef("there is nothing to undo")
		}
		t.say("the last message and its answer are forgotten")
	case "system":
		t.system(rest)
	case "save":
		return false, t.save(rest)
	case "load":
		return false, t.load(rest)
	case "stats":
		if !t.s.stats() {
			return false, usagef("there was no answer yet")
		}
	case "exit":
		return true, nil
	default:
		return false, &usageError{err: fmt.Errorf("unknown command /%s", formats.Printable(formats.Brief(name, 40))), hint: "/help lists commands; a message that begins with a slash is written with two"}
	}
	return false, nil
}

// say tells what a command did.
func (t *talk) say(format string, args ...any) { fmt.Fprintf(t.a.err, format+"\n", args...) }

func (t *talk) help() {
	table := newTable(2)
	for _, c := range chatCommands {
		table.AppendRow([]any{strings.TrimSpace("/" + c.name + " " + c.argument), c.what})
	}
	printTable(t.a.err, table)
	t.say(`A line that ends in \ goes on in the next; %s begins and ends a message of several lines.`, fence)
}

func (t *talk) system(text string) {
	if text != "" {
		t.s.history().SetSystem(text)
		t.say("the conversation begins anew")
		return
	}
	if m := t.s.history().Messages(); len(m) > 0 && m[0].Role == "system" {
		t.say("%s", formats.PrintableText(m[0].Content))
		return
	}
	t.say("there is no system message")
}

// A savedChat is a conversation in a file, a line of it what calibrate reads.
type savedChat struct {
	Messages []savedMessage `json:"messages"`
}

type savedMessage struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

var chatKind = atomicfile.Kind{Name: "a conversation", Is: func(head []byte) bool {
	return bytes.HasPrefix(head, []byte("{")) && bytes.Contains(head, []byte(`"messages"`))
}}

func (t *talk) save(path string) error {
	if path == "" {
		return usagef("/save needs the name of a file")
	}
	out, err := t.a.output(path, chatKind, false, nil, t.reads)
	if err != nil {
		return err
	}
	saved := savedChat{Messages: []savedMessage{}}
	for _, m := range t.s.history().Messages() {
		saved.Messages = append(saved.Messages, savedMessage{m.Role, m.Content})
	}
	var text bytes.Buffer
	if err := printJSON(&text, saved); err != nil {
		return err
	}
	if err := out.WriteFile(text.Bytes()); err != nil {
		return err
	}
	t.say("%s: %d messages", formats.Printable(path), len(saved.Messages))
	return nil
}

func (t *talk) load(path string) error {
	if path == "" {
		return usagef("/load needs the name of a file")
	}
	raw, err := formats.ReadFile(path, maxMessage, "a conversation")
	if err != nil {
		return err
	}
	var saved savedChat
	if err := json.Unmarshal(raw, &saved); err != nil {
		return formats.Errorf(path, "", "not a saved conversation: %v", err)
	}
	var messages []tokenizer.Message
	for _, m := range saved.Messages {
		messages = append(messages, tokenizer.Message{Role: m.Role, Content: m.Content})
	}
	if err := t.s.history().Resume(messages); err != nil {
		return formats.Errorf(path, "messages", "%v", err)
	}
	t.say("%s: %d messages", formats.Printable(path), len(messages))
	return nil
}
