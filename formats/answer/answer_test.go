package answer

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats/tokenizer"
)

// A call as a test wants it.
type wanted struct {
	name      string
	arguments map[string]any
}

var wantedCalls = []wanted{
	{"get_weather", map[string]any{"city": "São \"Paulo\", SP", "days": 3.0}},
	{"add", map[string]any{"list": []any{1.0, 2.5, -3.0}, "exact": true, "note": "a\nb", "nested": map[string]any{"k": "v", "n": nil}}},
	{"now", map[string]any{}},
}

var wantedTools = []string{
	`{"type":"function","function":{"name":"get_weather","description":"Weather","parameters":{"type":"object","properties":{"city":{"type":"string","description":"city"},"days":{"type":"integer","description":"days"}},"required":["city"]}}}`,
	`{"type":"function","function":{"name":"add","description":"Add","parameters":{"type":"object","properties":{"list":{"type":"array","items":{"type":"number"},"description":"l"},"exact":{"type":"boolean","description":"e"},"note":{"type":"string","description":"n"},"nested":{"type":"object","description":"o","properties":{}}},"required":["list"]}}}`,
	`{"type":"function","function":{"name":"now","description":"Now","parameters":{"type":"object","properties":{},"required":[]}}}`,
}

func template(t *testing.T, source string) *tokenizer.Template {
	t.Helper()
	vocab, err := os.ReadFile("../../testdata/demo/model/tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.FromFiles("test", tokenizer.Files{JSON: vocab, ChatTemplate: []byte(source), Config: []byte(`{"bos_token":"<s>","eos_token":"</s>"}`)})
	if err != nil {
		t.Fatal(err)
	}
	tp, err := tok.ChatTemplate("")
	if err != nil {
		t.Fatal(err)
	}
	return tp
}

// readBack lets the template write an answer and a Reader read it; cut is the length of
// the pieces that come. It returns what differs.
func readBack(tp *tokenizer.Template, source string, calls []wanted, content string, cut int) error {
	f, err := Learn(context.Background(), tp, source)
	if err != nil {
		return err
	}
	var raw []json.RawMessage
	var tools []Tool
	for _, w := range wantedTools {
		raw = append(raw, json.RawMessage(w))
		tool, ok := ParseTool([]byte(w))
		if !ok {
			return fmt.Errorf("the tool %s is none", w)
		}
		tools = append(tools, tool)
	}
	m := tokenizer.Message{Role: "assistant", Content: content}
	for i, c := range calls {
		arguments, _ := json.Marshal(c.arguments)
		m.ToolCalls = append(m.ToolCalls, json.RawMessage(fmt.Sprintf(`{"id":"abcdefgh%d","type":"function","function":{"name":%q,"arguments":%s}}`, i, c.name, arguments)))
	}
	question := tokenizer.Message{Role: "user", Content: "What?"}
	o := tokenizer.RenderOptions{Tools: raw, AddGenerationPrompt: true}
	prompt, err := tp.Render(context.Background(), []tokenizer.Message{question}, o)
	if err != nil {
		return err
	}
	o.AddGenerationPrompt = false
	whole, err := tp.Render(context.Background(), []tokenizer.Message{question, m}, o)
	if err != nil && strings.Contains(err.Error(), "single tool-calls") {
		return nil
	}
	if err != nil {
		return err
	}
	n := commonPrefix(prompt.Text, whole.Text)
	for i, c := range calls {
		if !strings.Contains(whole.Text[n:], c.name) { // some templates write one call alone
			calls = calls[:i]
			break
		}
	}
	r := f.NewReader(prompt.Text[:n], tools)
	var parts []Part
	text := whole.Text[n:]
	for text != "" {
		k := min(cut, len(text))
		parts = append(parts, r.Push(text[:k], false)...)
		text = text[k:]
	}
	parts = append(parts, r.Close()...)
	var got []wanted
	var said strings.Builder
	var arguments strings.Builder
	for _, p := range parts {
		switch p.Kind {
		case Text:
			said.WriteString(p.Text)
		case Call:
			got = append(got, wanted{name: p.Text})
			arguments.Reset()
			if p.Index != len(got)-1 {
				return fmt.Errorf("call %d has index %d", len(got)-1, p.Index)
			}
		case Arguments:
			arguments.WriteString(p.Text)
		case CallEnd:
			if err := json.Unmarshal([]byte(arguments.String()), &got[len(got)-1].arguments); err != nil {
				return fmt.Errorf("arguments %s of %s: %v", arguments.String(), got[len(got)-1].name, err)
			}
		}
	}
	if len(got) != len(calls) {
		return fmt.Errorf("%d calls of %d, text %q, of %q", len(got), len(calls), said.String(), whole.Text[n:])
	}
	for i := range calls {
		if !reflect.DeepEqual(got[i], calls[i]) {
			return fmt.Errorf("call %v, want %v, of %q", got[i], calls[i], whole.Text[n:])
		}
	}
	if len(calls) == 0 && !strings.HasPrefix(said.String(), content) || content != "" && !strings.Contains(said.String(), content) {
		return fmt.Errorf("text %q, want %q, of %q", said.String(), content, whole.Text[n:])
	}
	return nil
}

// Arguments of an object are given out as they come, where the name stands before them;
// what breaks off is a call all the same.
func TestObjectsAsTheyCome(t *testing.T) {
	source, err := os.ReadFile("../../testdata/answer/object.jinja")
	if err != nil {
		t.Fatal(err)
	}
	f, err := Learn(context.Background(), template(t, string(source)), string(source))
	if err != nil {
		t.Fatal(err)
	}
	tool, _ := ParseTool([]byte(wantedTools[0]))
	for _, c := range []struct {
		pieces []string // a bar each where something was given out
		want   string
	}{
		{[]string{"<tool_call>\n{\"na", "me\" : \"get_weather\", \"argu", "ments\":{\"city\": \"P", "aris\"}", ", \"id\": {}}\n</tool_call>"}, "||call get_weather {\"city\": \"P|aris\"} end|||"},
		{[]string{"<tool_call>{\"arguments\": {\"city\":", "\"Paris\"}, \"name\": \"get_weather\"}</tool_call>"}, "|call get_weather {\"city\":\"Paris\"} end||"},
		{[]string{"<tool_call>{\"name\": \"get_weather\", \"arguments\": \"{}\"}</tool_call>"}, "call get_weather {} end||"},
		{[]string{"<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"city\": "}, "call get_weather {\"city\": |end|"},
		{[]string{"<tool_call>{\"name\": \"get_we"}, "|<tool_call>{\"name\": \"get_we|"},
		{[]string{"<tool_call>{\"name\": 3, \"a\": {}}"}, "<tool_call>{\"name\": 3, \"a\": {}}||"},
	} {
		r := f.NewReader("", []Tool{tool})
		var got strings.Builder
		write := func(parts []Part) {
			var all []string
			for _, p := range parts {
				all = append(all, map[Kind]string{Call: "call ", CallEnd: "end"}[p.Kind]+p.Text)
			}
			got.WriteString(strings.Join(all, " ") + "|")
		}
		for _, p := range c.pieces {
			write(r.Push(p, false))
		}
		write(r.Close())
		if got.String() != c.want {
			t.Errorf("%q gives %q, want %q", c.pieces, got.String(), c.want)
		}
	}
}

var cuts = []int{1, 7, 1 << 20}

func TestWaysOfCalling(t *testing.T) {
	files, _ := filepath.Glob("../../testdata/answer/*.jinja")
	if len(files) < 7 {
		t.Fatalf("only %d templates", len(files))
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".jinja")
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		tp := template(t, string(source))
		for _, cut := range cuts {
			for i, calls := range [][]wanted{nil, wantedCalls[:1], wantedCalls[1:2], wantedCalls[:2], wantedCalls[2:], wantedCalls} {
				for _, content := range []string{"", "I look it up."} {
					if (calls == nil) == (content == "") && (calls == nil || name == "bare") {
						continue
					}
					if err := readBack(tp, string(source), calls, content, cut); err != nil {
						t.Errorf("%s, case %d, in pieces of %d: %v", name, i, cut, err)
					}
				}
			}
		}
	}
}

// What real templates write is read but for those that are listed, each with its reason.
func TestForeignTemplates(t *testing.T) {
	folder := filepath.Join(os.Getenv("NSTF_SHARED"), "templates")
	files, _ := filepath.Glob(folder + "/*.jinja")
	if os.Getenv("NSTF_SHARED") == "" || len(files) == 0 {
		t.Skip("no templates in the shared folder")
	}
	known := map[string]string{
		"CohereForAI-c4ai-command-r-plus-tool_use": "the test's tools have no additionalProperties",
		"Kimi-K3":                             "attributes of calls between name and arguments",
		"MiniMax-M3":                          "a value's end repeats the key",
		"muse-glimmer":                        "the name stands twice",
		"openbmb-MiniCPM5-1B":                 "CDATA",
		"upstage-Solar-Open-100B":             "an id stands before the name",
		"Mistral-Small-3.2-24B-Instruct-2506": "it asks for the model's own eos_token",
		"NVIDIA-Nemotron-Nano-v2":             "the prompt opens reasoning that an answer without does not close",
	}
	learned := 0
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".jinja")
		tp := template(t, string(source))
		f, err := Learn(context.Background(), tp, string(source))
		if err != nil || f.Calls == nil && !f.Harmony || known[name] != "" {
			t.Logf("%s: no calls, %v %s", name, err, known[name])
			continue
		}
		learned++
		for _, cut := range cuts {
			for i, calls := range [][]wanted{nil, wantedCalls[:1], wantedCalls[1:2], wantedCalls[:2], wantedCalls[2:], wantedCalls} {
				content := ""
				if calls == nil {
					content = "Plain text."
				}
				if err := readBack(tp, string(source), calls, content, cut); err != nil {
					t.Errorf("%s, case %d, in pieces of %d: %v", name, i, cut, err)
				}
			}
		}
	}
	if learned < 40 {
		t.Errorf("the calls of %d templates are known", learned)
	}
}

// read has a Reader read an answer that is special tokens where special says so.
func read(f *Format, prompt string, tools []Tool, pieces []string, special func(string) bool) string {
	r := f.NewReader(prompt, tools)
	var b strings.Builder
	last := Kind(-1)
	write := func(parts []Part) {
		for _, p := range parts {
			if p.Kind != last || p.Kind == Call {
				fmt.Fprintf(&b, "|%d:", p.Kind)
			}
			last = p.Kind
			b.WriteString(p.Text)
		}
	}
	for _, p := range pieces {
		write(r.Push(p, special(p)))
	}
	write(r.Close())
	return b.String()
}

func TestReader(t *testing.T) {
	tags := &Format{ThinkOpen: "<think>\n", ThinkClose: "\n</think>\n\n",
		Calls: &Calls{Arguments: StyleObject, Before: "<tool_call>\n", After: "\n</tool_call>", Between: "\n", NameKey: "name", ArgKey: "arguments"}}
	none := &Format{}
	harmony := &Format{Harmony: true}
	tools := []Tool{{Name: "f"}}
	for _, c := range []struct {
		name, prompt, answer, want string
		f                          *Format
		tools                      []Tool
	}{
		{"text", "", "Hello there", "|0:Hello there", tags, tools},
		{"reasoning and text", "", "<think>\nhm\n</think>\n\nHello", "|1:hm|0:Hello", tags, nil},
		{"the prompt has opened it", "x<think>\n", "hm</think>Hello", "|1:hm|0:Hello", tags, nil},
		{"and the model opens it again", "x<think>\n", "<think>\nhm</think>Hello", "|1:hm|0:Hello", tags, nil},
		{"reasoning that breaks off", "", "<think>hm </th", "|1:hm </th", tags, nil},
		{"a call", "", "Look:\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"}\"}}\n</tool_call>", `|0:Look:|2:f|3:{"a": "}"}|4:`, tags, tools},
		{"a call without white space", "", `<tool_call>{"arguments": {}, "name": "f"}</tool_call>`, `|2:f|3:{}|4:`, tags, tools},
		{"arguments in a string", "", `<tool_call>{"name": "f", "arguments": "{\"a\": 1}"}</tool_call>`, `|2:f|3:{"a": 1}|4:`, tags, tools},
		{"no tools, no call", "", `<tool_call>{"name": "f"}</tool_call>`, `|0:<tool_call>{"name": "f"}</tool_call>`, tags, nil},
		{"no call after all", "", `<tool_call> is a tag`, `|0:<tool_call> is a tag`, tags, tools},
		{"a call that breaks off", "", `a <tool_call>{"name": "f", "argum`, `|0:a <tool_call>{"name": "f", "argum`, tags, tools},
		{"what tells of no format", "", "<think>a</think>", "|0:<think>a</think>", none, tools},
		{"harmony", "", "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>Hi", "|1:hm|0:Hi", harmony, nil},
		{"harmony calls", "", `<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a":1}<|call|>`, `|2:f|3:{"a":1}|4:`, harmony, tools},
		{"harmony without a header", "", "Hello", "|0:Hello", harmony, nil},
	} {
		for _, cut := range cuts {
			var pieces []string
			for rest := c.answer; rest != ""; {
				n := min(cut, len(rest))
				pieces, rest = append(pieces, rest[:n]), rest[n:]
			}
			if got := read(c.f, c.prompt, c.tools, pieces, func(string) bool { return false }); got != c.want {
				t.Errorf("%s in pieces of %d: %q, want %q", c.name, cut, got, c.want)
			}
		}
	}
	// Special tokens are no text, and begin calls all the same.
	got := read(tags, "", tools, []string{"Hi", "<|eot|>", "<tool_call>", `{"name":"f","arguments":{}}`, "</tool_call>", "<|end|>"}, func(s string) bool { return s[0] == '<' })
	if want := "|0:Hi|2:f|3:{}|4:"; got != want {
		t.Errorf("with special tokens %q, want %q", got, want)
	}
}

func FuzzReader(f *testing.F) {
	files, _ := filepath.Glob("../../testdata/answer/*.jinja")
	var formats []*Format
	for _, file := range files {
		source, _ := os.ReadFile(file)
		vocab, _ := os.ReadFile("../../testdata/demo/model/tokenizer.json")
		tok, err := tokenizer.FromFiles("fuzz", tokenizer.Files{JSON: vocab, ChatTemplate: source})
		if err != nil {
			f.Fatal(err)
		}
		tp, err := tok.ChatTemplate("")
		if err != nil {
			f.Fatal(err)
		}
		format, err := Learn(context.Background(), tp, string(source))
		if err != nil {
			f.Fatal(err)
		}
		formats = append(formats, format)
	}
	formats = append(formats, &Format{Harmony: true})
	f.Add("<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>", 3)
	f.Add("[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}]", 1)
	f.Add("<|channel|>analysis<|message|>a<|end|>", 2)
	f.Add("<|tool_call_start|>[f(a='b', c=[1, {'x': None}])]<|tool_call_end|>", 5)
	f.Fuzz(func(t *testing.T, answer string, cut int) {
		cut = max(1, cut&15)
		for i, format := range formats {
			tools := []Tool{{Name: "f", Parameters: map[string]string{"a": "integer"}}}
			var whole string
			for _, n := range []int{len(answer) + 1, cut} {
				var pieces []string
				for rest := answer; rest != ""; {
					n := min(n, len(rest))
					pieces, rest = append(pieces, rest[:n]), rest[n:]
				}
				got := read(format, "", tools, pieces, func(string) bool { return false })
				if n > len(answer) {
					whole = got
				} else if got != whole {
					t.Errorf("format %d, %q in pieces of %d: %q; whole: %q", i, answer, cut, got, whole)
				}
			}
		}
	})
}
